"""From three tables to a saved model, its predictions, and what is said of them."""

from __future__ import annotations

import errno
import json
import os
import sys
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import kernelweave
import kernelweave.report
from estimators import some
from kernelweave._files import to_csv
from kernelweave._writing import DRAFT
from kernelweave.cli import evaluate, output, read, samples
from kernelweave.cli.main import main
from kernelweave.cli.samples import MANY, read_target
from kernelweave.cli.score import print_score, score_classes
from kernelweave.models import (
    MultipleKernelFDA,
    MultipleKernelRidge,
    MultipleKernelSVC,
)
from kernelweave.persistence import read_header

pandas = pytest.importorskip("pandas")
pytest.importorskip("skops")

FAST = ["--norm", "1", "--alpha", "1", "--folds", "2"]
#: Numbers alone, and one kernel for each view: as fast as can be.
PLAIN = [*FAST, "--kernel", "linear", "--label", "subtype"]
for _name in ("age", "smoker", "seen"):
    PLAIN += ["--drop", _name]
N = 24


@pytest.fixture(scope="module")
def frames():
    """Three tables of patients in different orders; two lack rows, one has gaps."""
    rng = np.random.default_rng(0)
    ids = [f"0{i:02d}" for i in range(N)]  # zeros that a number would lose
    y = np.arange(N) % 2
    rna = pandas.DataFrame(
        rng.normal(size=(N, 3)) + 2 * y[:, None], columns=list("abc")
    )
    mirna = pandas.DataFrame(rng.normal(size=(N, 2)), columns=["a", "m"])
    clinical = pandas.DataFrame(
        {
            "age": rng.integers(30, 80, N).astype(float),
            "smoker": np.where(rng.random(N) > 0.5, "yes", "no"),
            "seen": pandas.date_range("2020-01-01", periods=N).astype(str),
            "subtype": np.where(y, "=ill", "well"),
            "dose": rng.normal(size=N) - 3,
        }
    )
    clinical.loc[[0, 1], "age"] = np.nan
    for frame in (rna, mirna, clinical):
        frame.insert(0, "patient", ids)
    return {
        "rna": rna.iloc[::-1].iloc[:-2],
        "mirna": mirna.sample(frac=1, random_state=0).iloc[3:],
        "clinical": clinical,
    }


@pytest.fixture(scope="module")
def fitted(frames, tmp_path_factory):
    """The folder of a fit to the three tables, with the saved model."""
    folder = tmp_path_factory.mktemp("fitted")
    before = output._write_pictures
    output._write_pictures = lambda *arguments: True
    try:
        for name, frame in frames.items():
            frame.to_csv(folder / f"{name}.csv", index=False)
        drop = ["--drop", "dose", "--save", str(folder / "model.kw")]
        out = ["--out", str(folder / "out"), "--quiet", "--label", "subtype"]
        assert main(["fit", *three(folder), *FAST, *drop, *out]) == 0
    finally:
        output._write_pictures = before
    return folder


@pytest.fixture(autouse=True)
def quick(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(output, "_write_pictures", lambda *arguments: True)


def three(folder, *names):
    names = names or ("rna", "mirna", "clinical")
    return [*(f"{name}={folder / name}.csv" for name in names), "--id", "patient"]


def told(capsys, *arguments):
    """What a command answers to --json."""
    assert main([*map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(capsys, *arguments):
    """The one line of a command that exits with 2."""
    assert main([*map(str, arguments)]) == 2
    err = capsys.readouterr().err
    assert err.startswith("kernelweave: error: ") and err.count("\n") == 1
    return err


def table(path):
    return pandas.read_csv(path, dtype=str, keep_default_na=False)


# fit ----------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", [None, "available"])
def test_files_frames_and_arrays_treat_gaps_alike(tmp_path, frames, missing):
    """Two views are lacking in some rows; both tell the classes apart a little."""
    numbers = {**frames, "clinical": frames["clinical"][["patient", "dose", "subtype"]]}
    ill = frames["mirna"]["patient"].astype(int) % 2
    numbers["mirna"] = frames["mirna"].assign(m=frames["mirna"]["m"] + ill)
    weaker = frames["rna"].drop(columns=["a", "b"])
    numbers["rna"] = weaker.assign(c=np.sin(4 * weaker["c"]))
    for name, frame in numbers.items():
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
    save = ["--save", str(tmp_path / "model.kw"), "--folds", "2", "--quiet"]
    chosen = [] if missing is None else ["--missing", missing]
    given = [*three(tmp_path), "--label", "subtype", *save, *chosen]
    assert main(["fit", *given, "--out", str(tmp_path / "out")]) == 0
    parameters = {} if missing is None else {"missing": missing}
    joined = kernelweave.join_tables(numbers, on="patient", target="subtype")
    model = MultipleKernelFDA(joined.views, cv=None, **parameters)
    by_frame = model.fit(joined.data, joined.target).view_shares_
    columns = [own for _, _, own in joined.views]
    ends = np.cumsum([0, *map(len, columns)])
    views = [
        (name, "auto", list(range(start, end)))
        for (name, _, _), start, end in zip(
            joined.views, ends[:-1], ends[1:], strict=True
        )
    ]
    X = joined.data[[name for own in columns for name in own]].to_numpy(float)
    assert np.isnan(X).any()
    model.set_params(views=views).fit(X, joined.target.to_numpy())
    by_array = model.view_shares_
    by_file = kernelweave.load(tmp_path / "model.kw").view_shares_
    assert by_frame == pytest.approx(by_file, abs=1e-6)
    assert by_array == pytest.approx(by_file, abs=1e-6)


def test_three_tables_make_three_views(fitted, frames):
    """Any order of rows, rows missing in some; the label is never a feature."""
    model = kernelweave.load(fitted / "model.kw")
    columns = [record["column"] for record in model.column_summary_]
    assert set(model.view_shares_) == {"rna", "mirna", "clinical"}
    assert not [c for c in columns if "subtype" in c or "patient" in c or "dose" in c]
    found = table(fitted / "out" / "predictions.csv").set_index("patient")
    assert sorted(found.index) == [f"0{i:02d}" for i in range(N)]
    lacking = {k: set(found.index) - set(frames[k]["patient"]) for k in frames}
    for patient, views in found["missing_views"].items():
        wanted = [name for name in frames if patient in lacking[name]]
        assert views == "; ".join(wanted)


def test_labels_are_never_features(fitted, frames, tmp_path, capsys):
    """In any table, also twice; a table of ids and labels alone is no view."""
    labels = frames["clinical"][["patient", "subtype"]]
    labels.to_csv(tmp_path / "labels.csv", index=False)
    rna = frames["rna"].merge(labels, on="patient")
    rna.to_csv(tmp_path / "rna.csv", index=False)
    given = ["--id", "patient", *FAST]
    message = refused(
        capsys, "fit", "rna=rna.csv", "labels=labels.csv", *given, "--label", "subtype"
    )
    assert "say which one you mean, as in rna.subtype" in message
    label = ["--label", "labels.subtype", "--save", "model.kw"]
    assert main(["fit", "rna=rna.csv", "labels=labels.csv", *given, *label]) == 0
    assert "left out of rna: 'subtype', a copy of the label" in capsys.readouterr().out
    model = kernelweave.load("model.kw")
    assert list(model.feature_names_in_) == ["rna.a", "rna.b", "rna.c"]
    assert list(model.view_shares_) == ["rna"]


def test_regression(fitted, capsys):
    found = told(
        capsys, "fit", *three(fitted, "rna", "clinical"), "--label", "dose", *FAST
    )
    assert found["task"] == "regression" and {"r2", "standard_error"} <= set(found)
    predictions = table("kernelweave-fit/predictions.csv")
    # Numbers below zero stay numbers, and texts that look like formulas do not.
    assert predictions["prediction"].astype(float).lt(0).all()
    assert predictions["dose"].astype(float).lt(0).all()


DROP = ["--drop", "id", "--drop", "x", "--drop", "x"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gaps.csv", "--label", "y"], "no id in row 1 (counted from 0)"),
        (["a.csv", "--label", "z", *DROP], "the label column 'z' is not in a.csv"),
        (["a.csv", "b.csv", "--label", "a.id"], "--label a.id holds the ids"),
        (["a.csv", "--label", "y", "--groups", "y"], "--groups y is the label"),
        (
            ["a.csv", "b.csv", "--label", "y", "--groups", "site"],
            "Table 'b': it has 1 id in several rows: 'r' (2 rows)",
        ),
    ],
)
def test_mistakes_about_ids(tmp_path, capsys, arguments, message):
    """Gaps, ids that are dropped or predicted, and groups that are given twice."""
    (tmp_path / "gaps.csv").write_text("id,x,y\nr,1,u\n,2,v\n")
    (tmp_path / "a.csv").write_text("id,x,y\nr,1,u\ns,2,v\n")
    (tmp_path / "b.csv").write_text("id,site\nr,1\nr,2\n")
    assert message in refused(capsys, "fit", *arguments, "--id", "id")


@pytest.mark.parametrize(("label", "advised"), [("y", True), (None, False)])
def test_only_training_rows_have_groups(label, advised, tmp_path):
    (tmp_path / "t.csv").write_text("id,x,y\nr,1,u\nr,2,v\n")
    with pytest.raises(ValueError, match="in several rows: 'r'") as caught:
        samples._join(samples.read_tables(["t.csv"], "id"), label)
    assert ("use --groups id" in str(caught.value)) == advised


def test_whole_numbers_with_many_values_are_asked_about(tmp_path, capsys):
    rows = "\n".join(f"{i},{i % 5}" for i in range(2 * MANY))
    (tmp_path / "data.csv").write_text(f"count,x\n{rows}\n")
    message = refused(capsys, "fit", "data.csv", "--label", "count")
    assert "--task regression or --task classification" in message
    command = ["fit", "data.csv", "--label", "count", "--task", "regression", *FAST]
    assert told(capsys, *command)["task"] == "regression"
    (tmp_path / "same.csv").write_text("y,x\n1.5,1\n1.5,2\n1.5,3\n")
    message = refused(capsys, "fit", "same.csv", "--label", "y")
    assert "'y' holds 1.5 in every row" in message


@pytest.mark.parametrize("dtype", ["bool", "boolean"])
def test_truth_values_are_classes_under_their_names(dtype):
    target = pandas.Series([True, False], name="ill", dtype=dtype)
    y, task, _ = read_target(SimpleNamespace(target=target), None)
    assert task == "classification" and y.tolist() == ["True", "False"]


@pytest.mark.parametrize(
    ("command", "option", "package"),
    [
        ("fit", "save", "skops"),
        ("fit", "report", "jinja2"),
        ("report", "out", "jinja2"),
    ],
)
def test_missing_packages_are_named_first(
    fitted, capsys, monkeypatch, command, option, package
):
    """Not after an hour of fitting."""
    monkeypatch.setattr(
        "kernelweave.cli.fit.find_spec",
        lambda name: None if name == package else object(),
    )
    for module in ("report", "fit"):  # the first imports from the second
        monkeypatch.setattr(f"kernelweave.cli.{module}.read_problem", None)
    message = refused(capsys, command, *three(fitted), f"--{option}", "file")
    extra = {"skops": "save", "jinja2": "report"}[package]
    assert f"file needs {package}: pip install 'kernelweave[{extra}]'" in message


def test_quiet_progress_and_class_weights(fitted, capsys):
    """The first prints nothing; the second names the steps."""
    command = ["fit", *three(fitted, "rna", "clinical"), *PLAIN]
    command += ["--class-weight", "balanced", "--save", "model.kw"]
    assert main([*command, "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    assert kernelweave.load("model.kw").class_weight == "balanced"
    assert main([*command, "--progress", "--norm", "loo"]) == 0
    steps = capsys.readouterr().err
    for step in ("kernels", "norm 2 of 4", "fold 2 of 2", "writing"):
        assert step in steps


def test_a_model_and_a_page_are_two_files(fitted, capsys):
    """One of them replaced the other, whose draft stayed behind."""
    command = ["fit", *three(fitted), *PLAIN, "--save", "both", "--report", "./both"]
    message = refused(capsys, *command)
    assert "this command also reads or writes './both'; choose another" in message


def test_no_command_replaces_what_it_reads(fitted, tmp_path, capsys):
    """A model and a table were lost to the predictions, or to the new model."""
    for name in ("rna.csv", "clinical.csv", "model.kw"):
        (tmp_path / name).write_bytes((fitted / name).read_bytes())
    tables = ["rna=rna.csv", "clinical=./clinical.csv", "--id", "patient"]
    for out in ("model.kw", str(tmp_path / "rna.csv")):
        message = refused(capsys, "predict", "model.kw", *tables, "--out", out)
        assert f"this command also reads or writes {out!r}; choose another" in message
    for option in ("--save", "--report"):
        message = refused(capsys, "fit", *tables, *PLAIN, option, "clinical.csv")
        assert "this command also reads or writes 'clinical.csv'" in message
    message = refused(capsys, "report", "model.kw", *tables, "--out", "model.kw")
    assert "this command also reads or writes 'model.kw'" in message
    assert main(["fit", *tables, *PLAIN, "--quiet"]) == 0
    Path("kernelweave-fit").rename("results")
    for command in ("fit", "evaluate"):
        given = ["results/predictions.csv", *PLAIN[:-6], "--out", "./results"]
        message = refused(capsys, command, *given)
        assert "also reads or writes 'results/predictions.csv'; choose" in message
    for option, name in (("--save", "weights.csv"), ("--report", "predictions.csv")):
        place = f"kernelweave-fit/{name}"  # a result of the same command
        message = refused(capsys, "fit", *tables, *PLAIN, option, place)
        assert f"this command also reads or writes {place!r}" in message


def test_a_full_disk_for_the_model(fitted, capsys, monkeypatch):
    """The message names the file of the user, once, and nothing is left."""
    monkeypatch.setattr(os, "fsync", no_space)
    command = ["fit", *three(fitted, "rna", "clinical"), *PLAIN]
    message = refused(capsys, *command, "--save", "model.kw")
    reason = "cannot write 'model.kw': No space left on device; nothing was written; "
    assert message == f"kernelweave: error: {reason}choose another file\n"
    assert not os.listdir()


def no_space(descriptor):
    """No room for the model; other files have been written."""
    if any(name.startswith(DRAFT) for name in os.listdir()):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


# views.toml ---------------------------------------------------------------------------

SETTINGS = """
[data]
id = "patient"
label = "subtype"
task = "classification"
groups = "site"
drop = ["dose", "seen"]

[model]
norm = 2
alpha = 0.5
missing = "available"
class_weight = { "=ill" = 2, well = 1 }
kernel = "auto"
tol = 1e-4

[views.rna]
drop = ["rna.c"]
kernel = [{ name = "rbf", gamma = 0.5, standardize = true }, "linear"]

[views.clinical]
drop = ["*"]

[views.person]
columns = ["clinical.age", "clinical.smo*"]
"""


def test_a_file_of_settings_says_what_python_can(frames, tmp_path, capsys):
    """Kernels, columns, drops, norm, alpha, groups and class weights."""
    clinical = frames["clinical"].assign(site=np.arange(N) // 4)
    frames["rna"].to_csv("rna.csv", index=False)
    clinical.to_csv("clinical.csv", index=False)
    (tmp_path / "views.toml").write_text(SETTINGS)
    command = ["fit", "rna=rna.csv", "clinical=clinical.csv", "--views", "views.toml"]
    more = ["--folds", "2", "--save", "model.kw", "--alpha", "2"]
    assert main([*command, *more]) == 0
    assert (
        "Groups: 6 values of 'site', each held out as a whole"
        in capsys.readouterr().out
    )
    model = kernelweave.load("model.kw")
    assert (model.norm, model.alpha, model.missing) == (2, 2, "available")
    assert model.class_weight == {"=ill": 2.0, "well": 1.0} and model.tol == 1e-4
    views = {name: (kernel, columns) for name, kernel, columns in model.views}
    assert views["person"] == ("auto", ["clinical.age", "clinical.smoker"])
    (pipe, linear), columns = views["rna"]
    assert (pipe.kernel.gamma, linear, columns) == (0.5, "linear", ["rna.a", "rna.b"])
    assert main([*command, *more, "--view", "person=clinical.smoker"]) == 0
    views = {name: columns for name, _, columns in kernelweave.load("model.kw").views}
    assert views["person"] == ["clinical.smoker"]  # not as in the file
    found = table("kernelweave-fit/predictions.csv")
    site = clinical.set_index("patient").loc[found["patient"], "site"].to_numpy()
    assert pandas.Series(found["fold"].to_numpy()).groupby(site).nunique().eq(1).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[model", "views.toml is not a TOML file"),
        ("[models]", "'models' is not a key; did you mean 'model'?"),
        ("views = 3", "views.toml: views must be a table, found 3"),
        ("[data]\nlabel = 3", "label must be a text, found 3"),
        ("[data]\ntask = 'rank'", "task must be 'classification' or 'regression'"),
        ("[model]\nnorms = 2", "[model]: 'norms' is not a key; did you mean 'norm'"),
        ("[model]\nepsilon = 2", "[model]: 'epsilon' is not a key"),
        ("[views.rna]\nkernel = {name = 'no'}", "[views.rna]: kernel must be a name"),
        ("[views.rna]\nkernel = {name = 'rbf', x = 1}", "[views.rna]: kernel 'rbf'"),
        ("[views.new]\ndrop = ['a']", "no table called 'new'"),
        ("[views.rna]\ncolumns = ['rna.z']", "[views.rna]: view 'rna': no column"),
        (
            "[model]\nclass_weight = {sick = 2}",
            "'sick' is not a class; the classes are",
        ),
        ('[model]\nclass_weight = {"=ill" = [2], well = 1}', "class '=ill' is [2]"),
        (
            "[views.days]\ncolumns = ['clinical.age', 'clinical.seen']\nkernel = 'rbf'",
            "column 'clinical.seen' holds Timestamp(",
        ),
    ],
)
def test_mistakes_in_a_file_of_settings(fitted, tmp_path, capsys, text, message):
    (tmp_path / "views.toml").write_text(text)
    label = ["--label", "subtype", "--views", "views.toml"]
    assert message in refused(capsys, "fit", *three(fitted), *label)


# predict ------------------------------------------------------------------------------


def test_predictions_of_new_rows(fitted, frames, tmp_path, capsys):
    """Id, prediction, probabilities, missing views; the score where labels are."""
    rng = np.random.default_rng(1)
    new = {name: frame.copy() for name, frame in frames.items()}
    for name, column in (("rna", "a"), ("mirna", "m"), ("clinical", "age")):
        new[name][column] += 0.01 * rng.random(len(new[name]))
        new[name].to_csv(f"{name}.csv", index=False)
    found = told(
        capsys, "predict", fitted / "model.kw", *three(tmp_path), "--out", "new.csv"
    )
    assert found["training_rows"] == 0 and found["rows"] == N
    # measured: 0.96 and 0.042
    assert found["accuracy"] > 0.7 and 0 < found["standard_error"] < 0.2
    rows = table("new.csv")
    assert list(rows) == [
        "patient",
        "subtype",
        "missing_views",
        "prediction",
        "probability_=ill",
        "probability_well",
    ]
    assert set(rows["prediction"]) == {"'=ill", "well"}  # a spreadsheet runs neither
    chances = rows[["probability_=ill", "probability_well"]].astype(float)
    np.testing.assert_allclose(chances.sum(axis=1), 1, atol=1e-5)
    named = [f"rna={tmp_path / 'rna.csv'}", f"rnb={tmp_path / 'mirna.csv'}"]
    warned = "warning: the model does not know the table rnb\n"
    warned += "warning: no row has the views mirna, clinical\n"
    for more in ([], ["--out", "new.csv"], ["--out", "new.csv", "--quiet"], ["--json"]):
        assert main(["predict", str(fitted / "model.kw"), *named, *more]) == 0
        err = capsys.readouterr().err
        assert err.startswith(warned)
        assert "24 of 24 rows lack the view 'clinical' (0 %" in err[len(warned) :]
    # What the library predicts, with any table left out, to standard output.
    assert main(["predict", str(fitted / "model.kw"), *three(tmp_path, "rna")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == N - 1 and "mirna; clinical" in lines[1]


def test_labels_of_another_kind_have_no_score(fitted, frames, capsys):
    """Numbers are no classes: the accuracy was 0 %, whatever was predicted."""
    new = frames["clinical"].assign(age=frames["clinical"]["age"] + 0.5)
    new.to_csv("clinical.csv", index=False)
    command = ["predict", str(fitted / "model.kw"), "clinical=clinical.csv"]
    assert main([*command, "--label", "dose", "--out", "found.csv"]) == 0
    out = capsys.readouterr().out
    assert "No score: the label column 'dose' holds '-" in out and "Accuracy" not in out
    assert "and no class of the model; these are '=ill', 'well'." in out
    found = told(capsys, *command, "--label", "dose")
    assert (
        found["training_rows"] == 2 and "accuracy" not in found
    )  # gaps instead of age


def test_training_rows_have_no_honest_score(fitted, frames, tmp_path, capsys):
    model = str(fitted / "model.kw")
    found = told(capsys, "predict", model, *three(fitted))
    assert found["training_rows"] == N and "accuracy" not in found
    assert [row["patient"] for row in found["predictions"]][:2] == ["023", "022"]
    for row in found["predictions"]:  # numbers, not texts
        assert row["probability_=ill"] + row["probability_well"] == pytest.approx(1)
    quiet = refused(capsys, "predict", model, *three(fitted), "--quiet")
    assert "with --quiet the predictions need a file" in quiet
    assert main(["predict", model, *three(fitted, "clinical"), "--out", "p.csv"]) == 0
    out = capsys.readouterr().out
    assert "All of these rows were used for training" in out
    mixed = frames["clinical"].copy()
    mixed.loc[4:, "age"] += 1
    mixed.to_csv("clinical.csv", index=False)
    assert main(["predict", model, *three(tmp_path, "clinical"), "--out", "p.csv"]) == 0
    out = capsys.readouterr().out
    assert "4 of these rows were used for training, where scores are too opt" in out
    assert f"Accuracy on {N} rows" in out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop(columns="b"), "lacks 1 column that the model"),
        (lambda frame: frame.rename(columns={"patient": "id"}), "no column 'patient'"),
        (
            lambda frame: frame.assign(b="x"),
            "the column 'b' holds 'x', but held numbers",
        ),
    ],
)
def test_tables_that_a_model_cannot_read(
    fitted, frames, tmp_path, capsys, change, message
):
    change(frames["rna"]).to_csv("rna.csv", index=False)
    found = refused(capsys, "predict", fitted / "model.kw", *three(tmp_path, "rna"))
    assert message in found


def test_one_table_of_several_needs_its_name(fitted, capsys):
    """All files of a fit are named after themselves, but a single file is not."""
    found = refused(capsys, "predict", fitted / "model.kw", fitted / "rna.csv")
    assert "pass NAME=FILE as it did" in found


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([0.5, np.inf], "the label column 'dose' holds infinity"),
        (["0.5", "low"], "the label column 'dose' holds 'low', which is not a number"),
    ],
)
def test_labels_without_a_score(given, message, capsys):
    """The predictions, which do not need them, are written all the same."""
    samples = SimpleNamespace(target=pandas.Series(given, name="dose"))
    model, predicted, seen = MultipleKernelRidge(), np.zeros(2), np.zeros(2, bool)
    found = print_score(model, samples, predicted, "dose", seen)
    assert found == {"training_rows": 0}
    assert f"No score: {message}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "views",
    [[("x", "linear", slice(0, 2)), ("y", "linear", "c")], [("x", "linear", [0, 2])]],
)
def test_models_saved_in_python(frames, capsys, views):
    """Their views need no names of columns; rows without a label have no score."""
    rna = frames["rna"].drop(columns="patient").reset_index(drop=True)
    rna["ill"] = np.arange(len(rna)) % 2
    model = MultipleKernelRidge(views, norm=1, alpha=1.0, cv=None)
    model.fit(rna[["a", "b", "c"]], rna["ill"])
    kernelweave.save(model, "model.kw")
    rna.loc[0, "ill"] = np.nan
    (1 + rna).to_csv("new.csv", index=False)
    options = ["--label", "ill", "--out", "found.csv"]
    found = told(capsys, "predict", "model.kw", "new.csv", *options)
    assert (found["rows"], found["scored_rows"]) == (len(rna), len(rna) - 1)
    wanted = model.predict(1 + rna[["a", "b", "c"]])
    np.testing.assert_allclose(table("found.csv")["prediction"].astype(float), wanted)


def test_numbers_that_a_spreadsheet_has_as_texts():
    samples = SimpleNamespace(target=pandas.Series([1, "2.5", None], name="dose"))
    y, task, _ = read_target(samples, "regression")
    assert y.tolist() == [1.0, 2.5] and task == "regression"
    assert read_target(samples, None)[1] == "classification"


def test_other_programs_write_other_digits(frames, capsys):
    """Excel files and those of R have 15 or 16 digits; the rows are the same."""
    rows = frames["rna"].assign(y=list("ab") * (len(frames["rna"]) // 2))
    rows.to_csv("rows.csv", index=False)
    rows.to_csv("again.csv", index=False, float_format="%.15g")
    again = pandas.read_csv("again.csv")
    assert again["a"].ne(rows["a"].to_numpy()).any()
    command = ["fit", "rows.csv", "--id", "patient", "--label", "y", *FAST]
    assert main([*command, "--save", "model.kw", "--quiet"]) == 0
    found = told(capsys, "predict", "model.kw", "again.csv")
    assert found["training_rows"] == len(rows)


def test_dates_matter_where_they_are_used(capsys):
    """An impossible date elsewhere stops nothing; texts of the fit remain texts."""
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame({"x": rng.normal(size=N), "y": list("ab") * (N // 2)})
    frame["visit"] = ["2020-01-01", "2020-06-01", "unknown"] * (N // 3)
    frame["other"] = ["2023-02-28", "2023-02-29"] * (N // 2)
    frame.to_csv("rows.csv", index=False)
    fit = ["fit", "rows.csv", "--label", "y", *FAST, "--save", "model.kw"]
    assert "holds '2023-02-29' among dates" in refused(capsys, *fit)
    assert main([*fit, "--drop", "other", "--quiet"]) == 0
    wanted = kernelweave.load("model.kw").predict(frame[["x", "visit"]])
    for known in (frame["visit"] != "unknown", frame["visit"] != ""):
        frame[known].to_csv("new.csv", index=False)
        found = told(capsys, "predict", "model.kw", "new.csv")["predictions"]
        assert [row["prediction"] for row in found] == wanted[known].tolist()


def test_classes_that_are_dates(capsys):
    """They are the same in a CSV file and a spreadsheet, and as a model knows them."""
    rng = np.random.default_rng(0)
    days = np.array(["2020-01-01", "2020-06-01"])[np.arange(N) % 2]
    frame = pandas.DataFrame({"x": rng.normal(size=N), "day": days})
    frame.to_csv("rows.csv", index=False)
    model = kernelweave.MultipleKernelFDA(norm=1, alpha=0.1, cv=None)
    kernelweave.save(model.fit(frame[["x"]], days), "text.kw")
    fit = ["fit", "rows.csv", "--label", "day", *FAST, "--save", "dates.kw"]
    assert main([*fit, "--quiet"]) == 0
    new = frame.assign(x=rng.normal(size=N))
    new.to_csv("new.csv", index=False)
    new.assign(day=pandas.to_datetime(days)).to_parquet("new.parquet")
    for name, rows in (
        ("text.kw", "new.csv"),
        ("dates.kw", "new.csv"),
        ("dates.kw", "new.parquet"),
    ):
        found = told(capsys, "predict", name, rows, "--label", "day")
        right = [row["day"] == row["prediction"] for row in found["predictions"]]
        assert found["accuracy"] == np.mean(right) > 0


# evaluate, inspect, report ------------------------------------------------------------


def test_evaluation_against_simpler_models(fitted, capsys):
    found = told(capsys, "evaluate", *three(fitted, "rna", "clinical"), *PLAIN)
    methods = [row["method"] for row in found["methods"]]
    assert methods == [
        "this model",
        "best single view",
        "equal weights",
        "stacking of views",
        "no view",
    ]
    written = pandas.read_csv("kernelweave-evaluate/evaluation.csv")
    assert written["score_se"].gt(0).all() and written["lead"].notna().sum() == 4
    assert set(table("kernelweave-evaluate/predictions.csv")["fold"]) == {"1", "2"}


def test_numbers_that_are_not_there_have_no_unit(capsys):
    """A dash in a table stands alone."""
    row = dict.fromkeys(["score", "score_se", "balanced_accuracy", "log_loss"])
    row |= dict.fromkeys(["log_loss_se", "lead", "lead_se", "remark"])
    rows = [row | {"method": "this model"}]
    held_out = SimpleNamespace(fold=np.array([2]))
    result = SimpleNamespace(
        score_name="accuracy", held_out=held_out, table=rows, summary=""
    )
    evaluate.print_methods(result)
    assert "- %" not in capsys.readouterr().out


@pytest.mark.parametrize("command", ["inspect", "predict"])
def test_models_made_with_another_scikit_learn(command, fitted, capsys, monkeypatch):
    monkeypatch.setattr("sklearn.base.__version__", "9.9.9")
    tables = [f"clinical={fitted / 'clinical.csv'}"] * (command == "predict")
    assert main([command, str(fitted / "model.kw"), *tables]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines and all(line.startswith("warning: ") for line in lines)
    assert any("when using version 9.9.9" in line for line in lines)


def test_what_a_model_file_is(fitted, capsys):
    assert main(["inspect", str(fitted / "model.kw")]) == 0
    out = capsys.readouterr().out
    assert "It predicts the class 'subtype', one of 2: =ill, well." in out
    assert f"It learned from {N} rows of rna=" in out and "Made with kernelweave" in out
    assert "2 gaps filled in 1 column" in out
    assert f"\nIt holds {N} training rows as numbers, after their" in out
    found = told(capsys, "inspect", fitted / "model.kw")
    assert found["class"] == "MultipleKernelFDA" and found["gap"] < 1e-6
    assert found["rows_kept"] == {"kernels": N, "landmarks": 0, "partial_fit": 0}
    assert "no model" in refused(capsys, "inspect", "no model.kw")


@pytest.mark.parametrize("command", ["predict", "report"])
def test_a_model_of_arrays_is_refused_in_plain_words(capsys, command):
    rng = np.random.default_rng(0)
    model = MultipleKernelSVC([("x", "linear", [0, 1]), ("y", "linear", [2])], C=1.0)
    X, y = rng.normal(size=(12, 3)), np.arange(12) % 2
    kernelweave.save(model.fit(X, y), "model.kw")
    text = "model.kw holds a model that was fitted to arrays"
    assert text in refused(capsys, command, "model.kw", "new.csv")
    kernelweave.save(MultipleKernelSVC(), "model.kw")
    text = "model.kw holds a MultipleKernelSVC that is not fitted"
    assert text in refused(capsys, command, "model.kw", "new.csv")


NOTES = {"label": 5, "id": 6, "rows": "many", "files": "a.csv", "cohort": "Zürich"}
ALL = NOTES | {"groups": None, "task": []}  # the names of all notes of ours
TEXTS = {"id": "study 7", "label": "blind", "files": "a.csv", "cohort": "Zürich"}


@pytest.mark.parametrize(
    "notes",
    [
        *(ALL | {"training": digests} for digests in (3, "many", "AAAA")),
        NOTES,
        TEXTS,
    ],
)
def test_notes_of_users_may_have_any_name(notes, frames, capsys):
    """They are shown, and no command takes them for those of "kernelweave fit"."""
    rna = frames["rna"].drop(columns="patient")
    model = MultipleKernelRidge([("x", "linear", ["a", "b"])], norm=1, alpha=1.0)
    model.fit(rna, np.arange(len(rna)) % 2)
    kernelweave.save(model, "model.kw", notes=notes)
    assert main(["inspect", "model.kw"]) == 0
    out = capsys.readouterr().out
    assert "It predicts the number.\n" in out
    assert '  files: "a.csv"\n  cohort: "Zürich"\n' in out
    rna.to_csv("rna.csv", index=False)
    assert main(["predict", "model.kw", "rna.csv", "--out", "found.csv"]) == 0
    assert "No score: name the column of the true labels" in capsys.readouterr().out


@pytest.mark.parametrize("model", some())
def test_every_model_file_is_described(capsys, model):
    rng = np.random.default_rng(0)
    model.set_params(views=[("x", "linear", [0, 1]), ("y", "linear", [2])])
    kernelweave.save(model.fit(rng.normal(size=(12, 3)), np.arange(12) % 2), "model.kw")
    found = told(capsys, "inspect", "model.kw")
    chosen = {f"{name}_" for name in found.keys() & {"norm", "alpha", "C"}}
    if hasattr(model, "certificate_"):
        found = {name for name, value in vars(model).items() if value is not None}
        assert chosen == found & {"norm_", "alpha_", "C_"}
    if not hasattr(model, "predict"):
        text = f"model.kw holds a {type(model).__name__}, which is not a classifier"
        for command in ("predict", "report"):
            assert text in refused(capsys, command, "model.kw", "new.csv")


def test_many_views_with_little_weight_each(capsys):
    rng = np.random.default_rng(0)
    views = [(f"v{j}", "linear", [j]) for j in range(120)]
    model = kernelweave.KernelFDA(views, cv=None)
    kernelweave.save(model.fit(rng.normal(size=(12, 120)), np.arange(12) % 2), "k.kw")
    assert main(["inspect", "k.kw"]) == 0
    assert "\nEvery view has less than 1 % of the weight.\n" in capsys.readouterr().out


def test_no_bound_is_printed_where_there_is_none(capsys):
    rng = np.random.default_rng(0)
    views = [("x", "linear", [0, 1]), ("y", "linear", [2])]
    X = rng.normal(size=(20, 3))
    X[::5, 2] = np.nan  # the weights of experts that lack rows have no bound
    model = kernelweave.MixtureKDA(views, missing="available", cv=None)
    kernelweave.save(model.fit(X, np.arange(20) % 2), "model.kw")
    assert main(["inspect", "model.kw"]) == 0
    out = capsys.readouterr().out
    for name, text in model.certificate_.numbers.items():
        assert f"  {name:<12} {text}\n" in out
    assert "stationarity" in out and "bound" not in out


def test_report_of_a_saved_model(fitted, capsys, monkeypatch):
    """The page gets the model and the rows it was fitted to."""
    got = []

    def write(model, X, y, path, **settings):
        got.append((model, X, y, settings["title"]))

    monkeypatch.setattr(kernelweave.report, "write_report", write)
    command = [fitted / "model.kw", *three(fitted), "--out", "page.html"]
    assert main(["report", *map(str, command)]) == 0
    out = capsys.readouterr().out
    assert "clinical (3 columns)" in out  # dose was dropped
    assert "classification of 'subtype', as in the fit of the model" in out
    ((model, X, y, title),) = got
    assert list(X.columns) == list(model.feature_names_in_) and len(X) == len(y) == N
    assert title == "What predicts subtype"
    lacking = refused(capsys, "report", fitted / "model.kw", *three(fitted, "rna"))
    assert "subtype" in lacking
    other = refused(capsys, "report", fitted / "model.kw", *three(fitted), "--norm", 2)
    assert "--norm is for a model that is yet to be" in other
    task = ["--task", "regression"]
    other = refused(capsys, "report", fitted / "model.kw", *three(fitted), *task)
    assert "is for classification; leave out --task regression" in other
    taken = ["--groups", "smoker"]
    other = refused(capsys, "report", fitted / "model.kw", *three(fitted), *taken)
    assert "was fitted to the column 'clinical.smoker', which --id, --label, " in other
    for norm in (1, 2):  # that of the fit, and another
        Path("views.toml").write_text(f"[model]\nnorm = {norm}\n")
        command = [fitted / "model.kw", *three(fitted), "--views", "views.toml"]
        if norm == 1:
            assert main(["report", *map(str, command)]) == 0
    other = refused(capsys, "report", *command)
    assert "views.toml: norm is 2, but the model was fitted with 1.0" in other


VIEW_X, NARROW = "[views.x]\ncolumns = 'x'\n", "{name = 'rbf', gamma = 0.2}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{VIEW_X}kernel = {NARROW}", "the view 'x' is RBF(gamma=0.2), but the mod"),
        ("[model]\nkernel = 'linear'", "the kernel of the view 'x' is 'linear', but"),
        (
            "[views.x]\ncolumns = 'z'",
            "that of the model differ in the columns 'x', 'z'",
        ),
        ("[views.new]\ncolumns = 'x'", "'new' and that of the model differ in the col"),
        ("[model]\npriors = [0.6, 0.4]", "the model was fitted with array([0.5, 0.5])"),
        ("[model]\npriors = [0.5, 0.5]", ""),
        (
            VIEW_X,
            "was fitted to the column 'z', which --id, --label, --groups, --drop or",
        ),
        (f"{VIEW_X}kernel = {NARROW.replace('2', '1')}\n[views.z]\ncolumns = 'z'", ""),
    ],
)
def test_settings_of_a_fitted_model_are_its_own(text, message, tmp_path, capsys):
    """Views and kernels too; parameters may be arrays."""
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(rng.normal(size=(N, 2)), columns=["x", "z"])
    frame["y"] = list("ab") * (N // 2)
    frame.to_csv("rows.csv", index=False)
    views = [("x", kernelweave.kernels.RBF(gamma=0.1), ["x"]), ("z", "rbf", ["z"])]
    model = MultipleKernelFDA(views, norm=1, alpha=1.0, priors=np.array([0.5, 0.5]))
    kernelweave.save(model.fit(frame[["x", "z"]], frame["y"]), "model.kw")
    (tmp_path / "views.toml").write_text(text)
    command = ["report", "model.kw", "rows.csv", "--label", "y", "--folds", "2"]
    command += ["--views", "views.toml"]
    if message:
        assert message in refused(capsys, *command)
    else:
        assert main(command) == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda frame: frame.iloc[1:],
        lambda frame: frame.assign(x=frame["x"] + 1),
        lambda frame: frame.assign(x=frame["x"].where(frame.index > 0, 1.0)),
        lambda frame: frame.assign(x=frame["x"].where(frame.index != 2, 1.0)),
        lambda frame: frame.assign(z=frame["z"].fillna(1.0)),
        lambda frame: frame.assign(
            subtype=frame["subtype"].where(frame.index > 0, "b")
        ),
    ],
    ids=["fewer", "others", "one edited", "one of two", "a gap filled", "a label"],
)
def test_a_report_needs_the_rows_of_the_fit(change, capsys):
    rng = np.random.default_rng(0)
    frame = pandas.DataFrame(rng.normal(size=(N, 2)), columns=["x", "z"])
    frame.loc[3, "z"] = np.nan
    frame.loc[2] = frame.loc[0]  # two equal rows, with the same label
    frame["subtype"] = list("ab") * (N // 2)
    frame.to_csv("rows.csv", index=False)
    fit = ["--label", "subtype", "--view", "x=x", "--view", "z=z", *FAST, "--quiet"]
    assert main(["fit", "rows.csv", *fit, "--save", "model.kw"]) == 0
    change(frame).to_csv("others.csv", index=False)
    message = refused(capsys, "report", "model.kw", "others.csv")
    assert (
        f"not the rows that model.kw was fitted to, which were {N} rows of" in message
    )


# Files --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("t.csv", "pandas"),
        ("t.parquet", "pyarrow"),
        ("index.parquet", "pyarrow"),
        ("t.xlsx", "openpyxl"),
    ],
)
def test_one_table_in_every_format(name, library):
    """Ids are texts in each of them; other texts are in test_cli.py."""
    pytest.importorskip(library)
    frame = pandas.DataFrame(
        {
            "id": ["001", "002", "003"],
            "number": [2**53 + 1, 2, 3],
            "größe": [1.5, -2.25, np.nan],
            "text": ["a;b", "c, d", None],
            "day": ["2020-01-01", "2021-06-05", "2022-01-01"],
        }
    )
    if name.endswith("csv"):
        frame.to_csv(name, index=False, sep=";", decimal=",")
    elif name.endswith("parquet"):
        (frame.set_index("id") if name.startswith("index") else frame).to_parquet(name)
    else:
        frame.to_excel(name, index=False)
    found = samples.with_dates(read.read_frame(name, ["id", "number"]), [name])
    assert list(found) == list(frame) and found["id"].tolist() == ["001", "002", "003"]
    assert found["number"].tolist()[1:] == ["2", "3"]
    if not name.endswith("xlsx"):  # which has only floats
        assert found["number"].tolist()[0] == "9007199254740993"
    np.testing.assert_array_equal(found["größe"], frame["größe"])
    assert found["text"].tolist()[:2] == ["a;b", "c, d"] and found["text"].isna()[2]
    assert found["day"].dt.year.tolist() == [2020, 2021, 2022]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a,b\n1,2\n3\n", "data.csv, line 3 has 1 cell, but the header has 2"),
        (b"a;b\n1,5;2\n2.5;1\n", "line 2 holds '1,5' and line 3 holds '2.5'"),
        (b'a,b\n1,"2\n', "line 2 is not a row of a table"),
        (b"a,b\n1,2\n\x81\xff,1\n", "line 3 holds the byte 0x81"),
        (b"\x1f\x8b\x08broken", "data.csv is damaged"),
        (b"a,b\n", "data.csv has no rows"),
    ],
)
def test_lines_that_are_wrong_are_named(tmp_path, capsys, content, message):
    (tmp_path / "data.csv").write_bytes(content)
    assert message in refused(capsys, "fit", "data.csv", "--label", "a")


@pytest.mark.parametrize(
    "cells",
    ["2020-01-01 2020-01-02T10:30", "2020-01-02T10:30:00.5 2020-01-02T10:30:01"],
    ids=["midnight", "fractions"],
)
def test_dates_with_and_without_a_time(cells, tmp_path):
    (tmp_path / "t.csv").write_text("day\n" + "\n".join([*cells.split(), "NA"]))
    found = samples.with_dates(read.read_frame("t.csv"), ["t.csv"])["day"]
    assert found.tolist()[:2] == [pandas.Timestamp(cell) for cell in cells.split()]
    assert found.isna().tolist() == [False, False, True]


def test_times_of_all_zones_are_in_utc(tmp_path):
    cells = [
        "2020-01-31T10:00:00Z",
        "2020-01-31 11:30:00.5+01:00",
        "2020-01-31T04:00-06",
    ]
    (tmp_path / "t.csv").write_text("\n".join(["day", *cells, "NA"]))
    found = samples.with_dates(read.read_frame("t.csv"), ["t.csv"])["day"]
    wanted = ["2020-01-31 10:00:00", "2020-01-31 10:30:00.5", "2020-01-31 10:00:00"]
    assert found.tolist()[:3] == list(map(pandas.Timestamp, wanted))
    assert found.isna().tolist() == [False, False, False, True]


@pytest.mark.filterwarnings("ignore")  # mudata warns as it makes and writes the file
def test_mudata(frames, capsys):
    """Modalities are views, the annotation too; copies of the label are not."""
    mudata = pytest.importorskip("mudata", reason="pip install mudata to run this")
    anndata = pytest.importorskip("anndata")
    labels = frames["clinical"].set_index("patient")
    parts = {}
    for name in ("rna", "mirna"):
        frame = frames[name].set_index("patient")
        own = labels.loc[frame.index, ["subtype"]].assign(total=frame.sum(axis=1))
        parts[name] = anndata.AnnData(frame, obs=own)
    data = mudata.MuData(parts)
    data.obs["smoker"] = labels.loc[data.obs_names, "smoker"].to_numpy()
    data.write("data.h5mu")
    capsys.readouterr()  # what mudata says
    command = ["fit", "data.h5mu", *FAST, "--save", "model.kw", "--json"]
    assert main([*command, "--label", "subtype"]) == 0
    model = kernelweave.load("model.kw")
    assert set(model.view_shares_) == {"rna", "mirna", "obs"}
    own = [c for c in model.feature_names_in_ if c.startswith("obs.")]
    assert sorted(own) == ["obs.mirna:total", "obs.rna:total", "obs.smoker"]
    assert capsys.readouterr().err == ""
    assert told(capsys, "predict", "model.kw", "data.h5mu")["rows"] == len(data.obs)
    assert "leave out --id" in refused(
        capsys, "fit", "data.h5mu", "--id", "patient", "--label", "subtype"
    )


def test_mudata_that_cannot_be_read(tmp_path, capsys):
    (tmp_path / "data.h5mu").write_bytes(b"nothing")
    message = refused(capsys, "fit", "data.h5mu", "--label", "y")
    assert "kernelweave[mudata]" in message or "is not a MuData file" in message


def test_cells_that_a_spreadsheet_would_run(tmp_path):
    """Texts are escaped, also in headers; numbers below zero stay numbers."""
    cells = ["=1+1", "+1", "-x", "-1.5", "@sum", "\tx", "\rx", "a=b", -2.5, None]
    cells += ["\n=1", "\nx", " \u3000=1", "\ufeff=1", "\uff1d1", "\uff0bx", "\uff0dx"]
    cells += ["\uff20x", " -1.5", "-1e5", "a\n=1", " x"]
    to_csv([{"=key": cell} for cell in cells], tmp_path / "cells.csv")
    found = pandas.read_csv(tmp_path / "cells.csv", keep_default_na=False)
    assert list(found) == ["'=key"]
    wanted = ["'=1+1", "+1", "'-x", "-1.5", "'@sum", "'\tx", "'\rx", "a=b", "-2.5", ""]
    wanted += [f"'{cell}" for cell in cells[10:18]] + cells[18:]
    assert found["'=key"].tolist() == wanted


def test_readers_may_leave_before_the_end(fitted, capsys):
    """As in "kernelweave inspect model.kw | head -1"."""
    end, start = os.pipe()
    os.close(end)
    with os.fdopen(start, "w", buffering=1) as pipe, redirect_stdout(pipe):
        assert main(["inspect", str(fitted / "model.kw")]) == 0
    assert capsys.readouterr().err == ""


def test_predictions_that_are_redirected_keep_every_letter(fitted, tmp_path):
    """As in "kernelweave predict ... > p.csv" on Windows, whose files are not UTF-8."""
    new = pandas.read_csv(fitted / "rna.csv", dtype=str).head(2)
    new.assign(patient=["größe", "基因"]).to_csv("new.csv", index=False)
    with open("p.csv", "w", encoding="cp1252") as file, redirect_stdout(file):
        assert main(["predict", str(fitted / "model.kw"), "rna=new.csv"]) == 0
    assert table("p.csv")["patient"].tolist() == ["größe", "基因"]


@pytest.mark.parametrize(("stream", "status"), [("stdout", 1), ("stderr", 0)])
def test_streams_may_be_closed(stream, status, fitted, monkeypatch):
    """As in "kernelweave fit ... >&-": the files are written, what is printed is lost.

    That is an error, unless nothing was to be printed.
    """
    monkeypatch.setattr(sys, stream, None)
    command = ["fit", *three(fitted, "rna", "clinical"), *PLAIN]
    assert main(command) == status
    assert os.listdir("kernelweave-fit")
    assert main([*command, "--quiet"]) == 0


def test_digests_are_limited(fitted):
    """A model file of a million rows keeps some of them, evenly spaced."""
    from kernelweave.cli import seen

    frame = pandas.DataFrame({"x": np.arange(20.0), "z": np.arange(20)})
    rows = SimpleNamespace(data=frame, views=[("x", "", ["x"]), ("z", "", ["z"])])
    kept = seen.digests_as_text(seen.digests(rows, frame["x"].to_numpy()), most=15)
    notes = {seen.TRAINING: kept}
    training, given = seen.training_digests(notes, rows)
    found = seen.were_seen(given, training)
    assert found.tolist() == [i % 4 == 0 for i in range(20)]
    size = len(read_header(fitted / "model.kw")["notes"][seen.TRAINING])
    assert size == N * 4 * 8 * 4 / 3


def test_classes_of_texts_beside_gaps():
    """A gap makes floats of whole numbers, which are texts to the model."""
    classes = np.array(["1", "2", "a"])
    score, words = score_classes(classes, pandas.Series([1.0, np.nan, 3.0]), classes)
    assert score["accuracy"] == 0.5 and score["scored_rows"] == 2
    assert (
        "Counted as wrong: 1 row of classes unknown to the model, such as '3'" in words
    )
