"""Several tables of the same samples become one frame and its views."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone

import kernelweave
from estimators import every_estimator, output
from kernelweave import KernelFDA, join_tables
from kernelweave.exceptions import KernelWarning
from kernelweave.views.ids import read_ids

pd = pytest.importorskip("pandas")

IDS = [f"TCGA-{i:02d}" for i in range(24)]


def draw_tables():
    """RNA of the first 20 samples, in order, and data of the last 20, backwards."""
    rng = np.random.default_rng(0)
    ill = np.tile([0, 1], 12)
    numbers = rng.normal(size=(24, 5)) + 2 * ill[:, None]
    rna = pd.DataFrame(numbers[:20, :3], columns=["g1", "g2", "age"])
    rna.insert(1, "patient", IDS[:20])
    clinical = pd.DataFrame(numbers[4:, 3:], columns=["age", "dose"])
    clinical = clinical.assign(patient=IDS[4:], ill=ill[4:])[::-1]
    return rna, clinical, numbers, ill


@pytest.fixture
def tables():
    rna, clinical, *_ = draw_tables()
    return {"rna": rna, "clinical": clinical}


def as_polars(table):
    return pytest.importorskip("polars").from_dict(table.to_dict("list"))


def as_arrow(table):
    return pytest.importorskip("pyarrow").Table.from_pandas(table, preserve_index=False)


@pytest.mark.parametrize(
    "convert",
    [lambda t: t, lambda t: t.set_index("patient"), as_polars, as_arrow],
    ids=["column", "index", "polars", "pyarrow"],
)
def test_rows_are_aligned_by_id(convert):
    rna, clinical, numbers, _ = draw_tables()
    given = {"rna": convert(rna), "clinical": convert(clinical.drop(columns="ill"))}
    joined = join_tables(given, on="patient")
    assert joined.data.index.tolist() == joined.data["patient"].tolist()
    data = joined.data.loc[IDS]
    assert list(data.columns) == [
        "patient",
        "rna.g1",
        "rna.g2",
        "rna.age",
        "clinical.age",
        "clinical.dose",
    ]
    wanted = numbers.copy()
    wanted[20:, :3] = wanted[:4, 3:] = np.nan
    assert_allclose(data.iloc[:, 1:].to_numpy(dtype=float), wanted)
    assert joined.views == [
        ("rna", "auto", ["rna.g1", "rna.g2", "rna.age"]),
        ("clinical", "auto", ["clinical.age", "clinical.dose"]),
    ]


@every_estimator
def test_every_estimator_takes_joined_tables(estimator, tables):
    joined = join_tables(tables, on="patient", target="ill", kernel="rbf")
    model = clone(estimator).set_params(views=joined.views, missing="zero")
    model.fit(joined.data, joined.target)
    assert model.view_weights_.keys() == {"rna", "clinical"}
    new = join_tables(
        {"rna": tables["rna"], "clinical": tables["clinical"][:5]}, "patient"
    )
    with pytest.warns(KernelWarning, match="19 of 24 rows lack the view 'clinical'"):
        assert len(output(model, new.data)) == len(new.data) == 24


def test_target_is_no_feature(tables):
    _, _, _, ill = draw_tables()
    labels = tables["clinical"][["patient", "ill"]]
    tables["clinical"] = tables["clinical"].drop(columns="ill")
    joined = join_tables({**tables, "labels": labels}, "patient", target="ill")
    assert [name for name, *_ in joined.views] == ["rna", "clinical"]
    assert not any("ill" in column for column in joined.data)
    assert joined.left_out == IDS[:4]
    assert joined.target.index.equals(joined.data.index)
    truth = dict(zip(IDS, ill, strict=True))
    assert joined.target.tolist() == [truth[i] for i in joined.data["patient"]]


def test_a_sample_with_nothing_but_a_target_is_left_out(tables):
    labels = pd.DataFrame({"patient": [*IDS, "extra"], "y": np.arange(25)})
    joined = join_tables({**tables, "labels": labels}, "patient", target="y")
    assert joined.left_out == ["extra"] and len(joined.data) == 24
    tables["ids"] = labels[["patient"]]  # those of a matrix of similarities, say
    joined = join_tables({**tables, "labels": labels}, "patient", target="y")
    assert joined.left_out == [] and len(joined.data) == 25


def test_what_was_found_is_said(tables):
    joined = join_tables(tables, on="patient", target="ill")
    assert joined.shared.to_numpy().tolist() == [[16, 16], [16, 20]]
    assert joined.summary.splitlines() == [
        "20 samples from 2 tables, matched by 'patient'",
        "  rna: 16 samples, 3 columns; 4 samples lack it",
        "  clinical: 20 samples, 2 columns; no sample lacks it",
        "  in rna and in clinical: 16 samples",
        "  in every table: 16 samples",
        "  target 'ill'; 4 samples without it, or with nothing else, left out",
    ]


def test_kernels_by_table_and_ids_by_table(tables):
    tables["clinical"] = tables["clinical"].rename(columns={"patient": "case"})
    on = {"rna": "patient", "clinical": "case"}
    joined = join_tables(tables, on, kernel={"rna": "linear"})
    assert [kernel for _, kernel, _ in joined.views] == ["linear", "auto"]
    assert joined.shared.loc["rna", "clinical"] == 16


def test_booleans_and_categories_survive_gaps(tables):
    odd = pd.DataFrame({"flag": [True, False], "kind": pd.Categorical(["a", "b"])})
    tables["odd"] = odd.assign(patient=IDS[:2])
    data = join_tables(tables, "patient").data
    assert data["odd.flag"].dtype == "boolean" and data["odd.kind"].dtype == "category"
    assert data["odd.flag"].isna().sum() == 22
    pl = pytest.importorskip("polars")
    kinds = pl.Series(["a", None], dtype=pl.Categorical)
    tables["odd"] = pl.DataFrame({"patient": IDS[:2], "kind": kinds})
    kind = join_tables(tables, "patient").data["odd.kind"]
    assert kind.dtype == "category" and kind.isna().sum() == 23


SPELLED = r"The tables 'a' and 'b' spell 24 ids differently: "


@pytest.mark.parametrize(
    ("left", "right", "match"),
    [
        (
            IDS,
            [f" {i.lower()}" for i in IDS],
            SPELLED + "'TCGA-00' and ' tcga-00'",
        ),
        (
            [str(i) for i in range(24)],
            [f"{i:03d}" for i in range(24)],
            SPELLED + r"'0' and '000'.*str.zfill\(3\)",
        ),
        (
            [str(i) for i in range(24)],
            [f"{i}.0" for i in range(24)],
            SPELLED + r"'0' and '0.0'.*same way in both\.$",
        ),
        (
            range(24),
            map(str, range(24)),
            SPELLED + "0 and '0'.*int and some str",
        ),
        (
            range(24),
            np.arange(24) * 1.0,
            SPELLED + "0 and 0.0.*float and some int",
        ),
        (
            IDS,
            [f"S{i}" for i in range(24)],
            r"'a' shares no id.*'TCGA-00'.*'b' has 'S0'",
        ),
        (IDS, IDS[:22] + IDS[:2], r"'b': it has 2 id.*'TCGA-00' \(2 rows\).*average"),
        (IDS, [None, *IDS[1:]], r"'b': it has no id in row 0 \(counted from 0\)"),
    ],
    ids=[
        "case",
        "zeros",
        "decimals",
        "text",
        "float",
        "none common",
        "duplicates",
        "gaps",
    ],
)
def test_ids_that_do_not_match_are_an_error(left, right, match):
    frames = [pd.DataFrame({"id": list(ids), "x": 1.0}) for ids in (left, right)]
    with pytest.raises(ValueError, match=match):
        join_tables(dict(zip("ab", frames, strict=True)), on="id")


def test_ids_that_only_look_like_numbers_stay_apart():
    """'01' and '1' are one id in one table and two in another: exact ids win."""
    frames = {name: pd.DataFrame({"id": ["01", "1"], name: [1, 2]}) for name in "ab"}
    assert join_tables(frames, on="id").shared.loc["a", "b"] == 2


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"on": "patiant"}, "'rna': there is no column 'patiant'.*mean 'patient'"),
        ({"on": None}, "'rna': its index merely counts the rows"),
        ({"on": {"dna": "patient"}}, "on names the table.* 'dna'"),
        ({"target": "il"}, "it is in no table.*mean 'ill'"),
        ({"target": "age"}, "in the tables 'rna', 'clinical'.*all but one"),
    ],
)
def test_wrong_names_are_an_error(tables, changes, match):
    with pytest.raises(ValueError, match=match):
        join_tables(**{"tables": tables, "on": "patient", **changes})


def test_tables_that_are_no_tables(tables):
    with pytest.raises(TypeError, match=r"'x': a pandas or polars DataFrame.*ndarray"):
        join_tables({**tables, "x": np.ones((3, 2))}, on="patient")
    with pytest.raises(TypeError, match="a dict from names to tables"):
        join_tables(list(tables.values()), on="patient")
    lazy = as_polars(tables["rna"]).lazy()
    with pytest.raises(TypeError, match=r"it is lazy; pass table.collect"):
        join_tables({**tables, "rna": lazy}, on="patient")
    with pytest.raises(TypeError, match=r"keys 'rna', 'clinical'.*join_tables"):
        KernelFDA().fit(tables, [0, 1])


def test_pandas_is_optional(tables, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="join_tables needs pandas"):
        kernelweave.join_tables(tables, on="patient")


@pytest.mark.parametrize(
    "column",
    [
        np.asarray,
        pd.Series,
        pd.Index,
        lambda ids: pd.array(ids, dtype="Int64"),
        lambda ids: pytest.importorskip("polars").Series(ids),
        lambda ids: pytest.importorskip("pyarrow").array(ids),
        lambda ids: pytest.importorskip("pyarrow").table({"id": ids})["id"],
        lambda ids: pytest.importorskip("pyarrow").table({"id": ids}),
    ],
    ids=["numpy", "Series", "Index", "Int64", "polars", "pyarrow", "chunks", "table"],
)
def test_ids_are_python_objects(column):
    found = read_ids(column([7, 5, 6]))
    assert found == [7, 5, 6] and {type(one) for one in found} == {int}
