"""The commands print results, write what they announce, and refuse in one line."""

from __future__ import annotations

import csv
import gzip
import json
import re
import runpy
import sys
import warnings

import numpy as np
import pytest

import kernelweave
from kernelweave.cli import demo, fit, output, read
from kernelweave.cli.main import build_parser, main
from kernelweave.datasets import make_views
from kernelweave.inspection import weight_intervals

pandas = pytest.importorskip("pandas")
TABLES = {"certificate.json", "weights.csv", "columns.csv", "predictions.csv"}
PICTURES = {"weights.png", "projection.png"}


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def made():
    return make_views(
        90, n_views=3, n_informative=1, n_features=10, as_frame=False, random_state=0
    )


@pytest.fixture
def data(made, tmp_path):
    """A CSV file with a column of names, three views and a column of classes."""
    return write_csv(
        tmp_path / "data.csv",
        ["patient", *made.feature_names, "diagnosis"],
        [
            [f"p{i}", *row, made.target_names[code]]
            for i, (row, code) in enumerate(zip(made.data, made.target, strict=True))
        ],
    )


@pytest.fixture
def no_pictures(monkeypatch):
    """Skip the plots, which take time."""
    monkeypatch.setattr(output, "_write_pictures", lambda *arguments: True)


def write_csv(path, header, rows, **options):
    with open(path, "w", newline="", encoding="utf-8") as file:
        csv.writer(file, **options).writerows([header, *rows])
    return str(path)


def read_csv(path):
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def hide(monkeypatch, *names):
    """Make the import of these packages fail."""
    for name in {*names, *sys.modules}:
        if name.partition(".")[0] in names:
            monkeypatch.setitem(sys.modules, name, None)


FAST = ["--norm", "1", "--alpha", "1", "--folds", "2"]
FIT = ["--label", "diagnosis", "--drop", "patient", *FAST]


def test_demo(tmp_path, capsys, monkeypatch):
    """Learned weights are clearly ahead; intervals, a gap and a report are shown."""
    page = lambda model, X, y, path, **settings: path.write_text("page")  # noqa: E731
    monkeypatch.setattr(demo, "write_report", page)
    few = {"n_resamples": 2}  # only shown, and twenty take long
    monkeypatch.setattr(
        demo, "weight_intervals", lambda *a, **k: weight_intervals(*a, **k | few)
    )
    monkeypatch.setattr(output, "_write_pictures", lambda *arguments: True)
    assert main(["demo", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    learned, equal, machine = told["accuracy"].values()
    assert learned > equal + 0.02  # measured: by 0.04, with a standard error of 0.007
    assert learned > machine + 0.05
    assert told["gap"] < 1e-6
    shares = told["view_shares"]
    # measured: 0.061
    assert sum(share for view, share in shares.items() if "noise" in view) < 0.3
    written = {p.name for p in (tmp_path / "kernelweave-demo").iterdir()}
    assert written == TABLES | {"report.html"}
    mark = json.loads((tmp_path / "kernelweave-demo/certificate.json").read_text())
    assert set(mark["files"]) == written  # so that the next run may replace them


def test_fit(data, made, tmp_path, capsys):
    assert main(["fit", data, *FIT, "--view-prefix", "--out", "results"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "view0 (10 columns), view1 (10 columns), view2 (10 columns)" in out
    assert "Columns dropped: patient" in out
    rows = read_csv(tmp_path / "results" / "weights.csv")
    assert sum(float(row["share"]) for row in rows) == pytest.approx(1)
    best = max(rows, key=lambda row: float(row["view_weight"]))
    assert best["view"] in made.informative
    predictions = read_csv(tmp_path / "results" / "predictions.csv")
    assert [row["row"] for row in predictions] == [str(i) for i in range(1, 91)]
    chances = np.array(
        [[float(row[f"probability_class{c}"]) for c in range(3)] for row in predictions]
    )
    np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-5)
    best_class = np.array([f"class{c}" for c in chances.argmax(axis=1)])
    np.testing.assert_array_equal(
        best_class, [row["prediction"] for row in predictions]
    )
    model = kernelweave.MultipleKernelFDA(made.views, norm=1, alpha=1.0, cv=None)
    model.fit(made.data, made.target_names[made.target])
    written = [float(row["weight"]) for row in rows]
    np.testing.assert_allclose(written, model.kernel_weights_, atol=1e-12)
    proof = model.certificate_
    for line in (
        f"status       {proof.status}",
        f"value        {proof.value:.10g}",
        f"lower bound  {proof.lower_bound:.10g}",
        f"gap          {proof.gap:.2e} {proof.unit}",
        f"problem      {proof.problem}",
    ):
        assert f"  {line}\n" in out


@pytest.mark.parametrize(
    ("views", "expected"),
    [
        ([], {"all": 30}),
        (["a=view0_*", "b=view1", "c=view2_?"], {"a": 10, "b": 10, "c": 10}),
        (["a=view0", "b=view0_3,view1"], {"a": 10, "b": 11}),  # a column in both
    ],
)
def test_views(data, tmp_path, capsys, no_pictures, views, expected):
    arguments = [text for view in views for text in ("--view", view)]
    assert main(["fit", data, *FIT, *arguments, "--out", "results"]) == 0
    out = capsys.readouterr().out
    for name, size in expected.items():
        assert f"{name} ({size} columns)" in out
    rows = read_csv(tmp_path / "results" / "weights.csv")
    assert {row["view"] for row in rows} == set(expected)


def test_predict_new_rows(data, made, tmp_path, no_pictures):
    order = list(reversed(made.feature_names))
    rows = made.data[:7, ::-1].tolist()
    new = write_csv(tmp_path / "new.csv", order, rows)
    assert main(["fit", data, *FIT, "--predict", new, "--out", "results"]) == 0
    predictions = read_csv(tmp_path / "results" / "predictions.csv")
    assert len(predictions) == 7
    assert not {"diagnosis", "fold"} & set(predictions[0])
    model = kernelweave.MultipleKernelFDA(norm=1, alpha=1.0)
    model.fit(made.data, made.target_names[made.target])
    written = [float(row["probability_class1"]) for row in predictions]
    known = model.predict_proba(made.data[:7])[:, 1]
    np.testing.assert_allclose(written, known, atol=1e-6)


def test_integer_classes_between_semicolons(made, tmp_path, no_pictures):
    rows = [[*row, c] for row, c in zip(made.data, made.target, strict=True)]
    path = write_csv(
        tmp_path / "d.csv", [*made.feature_names, "c"], rows, delimiter=";"
    )
    assert main(["fit", path, "--label", "c", *FAST, "--norm", "4/3"]) == 0
    folder = tmp_path / "kernelweave-fit"
    assert json.loads((folder / "certificate.json").read_text())["norm"] == 4 / 3
    assert {row["prediction"] for row in read_csv(folder / "predictions.csv")} <= set(
        "012"
    )


def refusal(capsys, arguments):
    """The only line on standard error of a command that fails."""
    assert main(arguments) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("kernelweave: error: ")
    return lines[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["none.csv", "--label", "y"], "there is no file 'none.csv'"),
        ([".", "--label", "y"], "'.' is a folder; name a file"),
        (["data.csv", "--label", "diagnoses"], "did you mean 'diagnosis'?"),
        (["data.csv", "--label", "Diagnosis"], "did you mean 'diagnosis'?"),
        (["data.csv", "--label", "zzz"], "the columns are 'patient', 'view0_0'"),
        (["data.csv"], "name the column to predict with --label"),
        (["data.csv", "--id", "patient", "--label", "patient"], "holds the ids"),
        (["data.csv", *FIT, "--views", "no.toml"], "there is no file 'no.toml'"),
        (["data.csv", *FIT, "--save", "no/m.kw"], "there is no folder 'no'"),
        (["a=data.csv", "b=data.csv", *FIT], "name its column with --id"),
        (["data.csv", *FIT, "--drop", "age"], "the column to drop 'age' is not in"),
        (["data.csv", *FIT, "--view", "a"], "--view must be NAME=COLUMNS; got 'a'"),
        (["data.csv", *FIT, "--view", "a=age"], "view 'a': no column is called 'age',"),
        (["data.csv", *FIT, "--view", "a=view0", "--view", "a=view1"], "given twice"),
        (["data.csv", *FIT, "--kernel", "rbff"], "Did you mean 'rbf'?"),
        (["data.csv", *FIT, "--norm", "0.5"], "'norm' parameter of MultipleKernelFDA"),
        (["data.csv", *FIT, "--predict", "none.csv"], "there is no file 'none.csv'"),
    ],
)
def test_refusals(data, capsys, arguments, message):
    assert message in refusal(capsys, ["fit", *arguments])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no rows"),
        (b"a,y\n", "has no rows"),
        (b"a,a,y\n1,2,3\n", "several columns called 'a'"),
        (b"a,y\n1,0\n2\n", "line 3 has 1 cell, but the header has 2"),
        (b"a,y\n1,\n2,\n", "the label column 'y' is empty"),
        (b"a;y\n1,5;0\n2.5;1\n", "line 2 holds '1,5' and line 3 holds '2.5'"),
        (b"\x00\x01,y\n", "line 1 holds a zero byte"),
        (b"a,y\n1,0\n2,0\n", "needs at least 2 classes"),
        (b"y\n1\n2\n", "no columns besides the label 'y'"),
        (b"a,y\n1,0\n2\x00,1\n", "line 3 holds a zero byte"),
        (b"a y\n1 0\n2 1\n", "its only column is 'a y': separate cells by commas"),
        (b'a,y\n1,0\n2,"1\n3,0\n', "line 3 is not a row of a table: its quotation"),
        (b"a,y\n\x81,0\n", "line 2 holds the byte 0x81, which is neither"),
        (b"a,y\n2023-02-28,0\n2023-02-29,1\n", "'a' holds '2023-02-29' among dates"),
    ],
)
def test_refuses_files(tmp_path, capsys, content, message):
    (tmp_path / "bad.csv").write_bytes(content)
    assert message in refusal(capsys, ["fit", "bad.csv", "--label", "y"])


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("plain", ["the column 'copy' determines the label 'plain' in every row"]),
        ("cased", ["the classes 'JA', 'ja' of 'cased' differ only in case"]),
        ("number", []),
    ],
)
def test_likely_mistakes_in_the_label(tmp_path, capsys, label, expected):
    rows = [
        [i % 5, "uv"[i % 2], ("ja", "nein")[i % 2], "JA" if i == 4 else "ja", i / 3]
        for i in range(12)
    ]
    names = ["a", "copy", "plain", "cased", "number"]
    write_csv(tmp_path / "odd.csv", names, rows)
    arguments = ["fit", "odd.csv", "--label", label, "--drop", "number"]
    arguments += ["--drop", "plain"] * (label != "plain")
    if label == "number":
        arguments = arguments[:4]
    fit.read_problem(build_parser().parse_args(arguments))
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(expected)
    for line, text in zip(lines, expected, strict=True):
        assert line.startswith(f"warning: {text}")


@pytest.mark.parametrize(
    "write",
    [
        lambda t: t.encode("utf-8-sig"),
        lambda t: t.encode("utf-16"),
        lambda t: t.encode("cp1252"),
        lambda t: gzip.compress(t.encode()),
        lambda t: t.replace(";", "\t").encode(),
        lambda t: t.replace(",", ".").replace(";", "|").encode(),
        lambda t: t.replace(",", ".").replace(";", ",").replace("\n", "\r\n").encode(),
        lambda t: t.replace(";", " ; ").replace("\n", " \n").encode(),
        lambda t: re.sub(r"([^;\n]+)", r'"\1"', t).encode(),
    ],
)
def test_texts_of_every_kind(tmp_path, write):
    text = "näme;größe;day;flag\n007;1,5;2020-01-02;True\n8;;2021-03-04;False\n"
    (tmp_path / "t.csv").write_bytes(write(text))
    frame = read.read_frame("t.csv", ["näme"])
    assert frame.columns.tolist() == ["näme", "größe", "day", "flag"]
    assert frame["näme"].tolist() == ["007", "8"]
    assert frame["größe"].tolist()[0] == 1.5
    assert frame["größe"].isna().tolist() == [False, True]
    assert frame["day"].tolist() == ["2020-01-02", "2021-03-04"]
    assert frame["flag"].tolist() == [True, False]


def test_columns_without_a_name(tmp_path):
    (tmp_path / "t.csv").write_text('x," ","  ",\n1,a,2020-01-02,3\n')
    names = ["x", "Unnamed: 1", "Unnamed: 2", "Unnamed: 3"]
    assert read.read_frame("t.csv").columns.tolist() == names


def test_folders_of_others_are_left_alone(data, tmp_path, capsys, no_pictures):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "weights.csv").write_text("mine")
    line = refusal(capsys, ["fit", data, *FIT, "--out", "thesis"])
    assert "'thesis' holds files that kernelweave did not write" in line
    assert (tmp_path / "thesis" / "weights.csv").read_text() == "mine"
    assert "is a file; choose a folder" in refusal(
        capsys, ["demo", "--out", "data.csv"]
    )
    (tmp_path / "new").mkdir()
    assert main(["fit", data, *FIT, "--out", "new"]) == 0


def test_debug_shows_the_traceback():
    with pytest.raises(ValueError, match="there is no file"):
        main(["fit", "none.csv", "--label", "y", "--debug"])


def test_without_matplotlib(data, tmp_path, capsys, monkeypatch):
    hide(monkeypatch, "matplotlib")
    assert main(["fit", data, *FIT, "--out", "results"]) == 0
    assert "no plots: matplotlib is not installed" in capsys.readouterr().out
    assert {path.name for path in (tmp_path / "results").iterdir()} == TABLES


def test_tables_are_aligned(capsys):
    output.print_table(("view", "weight"), [("[bold]a", "1.0"), ("b", "10.25")])
    assert capsys.readouterr().out.splitlines() == [
        "  view     weight",
        "  -------  ------",
        "  [bold]a     1.0",
        "  b         10.25",
    ]


def test_warnings_are_one_line_each(capsys):
    with output.shown_warnings():
        for _ in range(2):
            warnings.warn("a kernel\n  is constant", UserWarning, stacklevel=1)
        warnings.warn("other", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: a kernel is constant\nwarning: other\n"


def test_warning_of_a_fit(made, tmp_path, capsys, no_pictures):
    rows = [[*row[:4], 1.0, c] for row, c in zip(made.data, made.target, strict=True)]
    path = write_csv(tmp_path / "d.csv", ["a", "b", "c", "d", "flat", "y"], rows)
    views = ["--view", "v=a,b,c,d", "--view", "w=flat"]
    arguments = ["fit", path, "--label", "y", "--kernel", "linear", *views]
    assert main([*arguments, *FAST]) == 0
    err = capsys.readouterr().err
    assert err.startswith("warning: ")
    assert err.count("\n") == 1
    assert "constant" in err


@pytest.mark.parametrize("arguments", [["--norm", "two"], ["--alpha", "1/0"]])
def test_numbers_of_the_command_line(data, capsys, arguments):
    with pytest.raises(SystemExit) as stop:
        main(["fit", data, "--label", "diagnosis", *arguments])
    assert stop.value.code == 2
    assert "is neither a number nor 'loo'" in capsys.readouterr().err


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.strip() == f"kernelweave {kernelweave.__version__}"


def test_as_a_module(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["kernelweave", "fit", "none.csv", "--label", "y"])
    with pytest.raises(SystemExit) as stop:
        runpy.run_module("kernelweave", run_name="__main__")
    assert stop.value.code == 2
    message = "kernelweave: error: there is no file 'none.csv'\n"
    assert capsys.readouterr().err == message
