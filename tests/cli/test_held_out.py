"""``kernelweave fit`` shows predictions only for rows that the model has not seen."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import pdist
from scipy.stats import ortho_group
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import load_diabetes, load_wine
from sklearn.model_selection import PredefinedSplit, cross_val_predict

from kernelweave import MultipleKernelFDA
from kernelweave.cli import output, score
from kernelweave.cli.main import main
from kernelweave.evaluation import held_out

SIMPLE = ["--norm", "1", "--alpha", "1", "--kernel", "rbf"]
LABELS = {
    "two classes": np.array(["ill", "well"])[np.arange(100) % 2],
    "three classes": np.arange(99) % 3,
    "unequal classes": np.repeat(["a", "b", "c"], [20, 30, 50]),
}


@pytest.fixture(autouse=True)
def in_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def drawn(monkeypatch):
    """Skip the plots, which take time; the rows to draw are in this list."""
    rows = []
    monkeypatch.setattr(
        output, "_write_pictures", lambda draft, model, shown: rows.append(shown) or 1
    )
    return rows


def write_table(path, X, y, label="y"):
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([*(f"x{j}" for j in range(X.shape[1])), label])
        writer.writerows([*row, c] for row, c in zip(X, y, strict=True))


def read_predictions(folder="kernelweave-fit"):
    with open(f"{folder}/predictions.csv", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def column(rows, name, kind=str):
    return np.array([kind(row[name]) for row in rows])


@pytest.mark.measured
@pytest.mark.parametrize("name", LABELS)
def test_noise_is_not_predicted(rng, drawn, capsys, name):
    y = LABELS[name]
    X = rng.standard_normal((len(y), 12))
    write_table("noise.csv", X, y)
    assert main(["fit", "noise.csv", "--label", "y", *SIMPLE]) == 0
    rows = read_predictions()
    right = np.mean(column(rows, "y") == column(rows, "prediction"))
    # Folds share rows, so the spread over 60 seeds is 1.4 binomial standard errors, and
    # the largest deviation 3.8; training rows are at least ten above chance.
    chance = np.unique(y, return_counts=True)[1].max() / len(y)
    assert abs(right - chance) < 6 * np.sqrt(chance * (1 - chance) / len(y))
    out = capsys.readouterr().out
    share, error = score.accuracy(column(rows, "y") == column(rows, "prediction"))
    text = f"Accuracy out of fold (5 folds): {100 * share:.1f} % ± {100 * error:.1f}\n"
    assert text in out
    assert len(re.findall("[Aa]ccuracy", out)) == 1


@pytest.mark.parametrize("name", LABELS)
def test_predictions_are_those_of_cross_validation(rng, drawn, name):
    y = LABELS[name]
    X = rng.standard_normal((len(y), 4))
    X[:, 0] += 2 * np.unique(y, return_inverse=True)[1]
    write_table("data.csv", X, y)
    assert main(["fit", "data.csv", "--label", "y", *SIMPLE, "--folds", "3"]) == 0
    rows = read_predictions()
    fold = column(rows, "fold", int)
    assert set(fold) == {1, 2, 3}
    for label in np.unique(y):  # stratified: sizes differ by at most one
        sizes = np.bincount(fold[y == label])[1:]
        assert sizes.max() - sizes.min() <= 1
    model = MultipleKernelFDA([("all", "rbf", slice(0, 4))], norm=1, alpha=1.0)
    split = PredefinedSplit(fold)
    chances = cross_val_predict(model, X, y, cv=split, method="predict_proba")
    expected = np.unique(y)[chances.argmax(axis=1)]
    np.testing.assert_array_equal(column(rows, "prediction"), expected.astype(str))
    for c, label in enumerate(np.unique(y)):
        written = column(rows, f"probability_{label}", float)
        np.testing.assert_allclose(written, chances[:, c], atol=1e-6)


def test_classes_of_noise_are_drawn_upon_each_other(rng, drawn):
    y = LABELS["three classes"]
    X = rng.standard_normal((len(y), 12))
    write_table("noise.csv", X, y)
    assert main(["fit", "noise.csv", "--label", "y", *SIMPLE]) == 0
    (rows,) = drawn
    assert "a model that had not seen it (5 folds)" in rows.how
    clouds = [rows.coordinates[rows.labels == label] for label in rows.classes]
    means = [cloud.mean(axis=0) for cloud in clouds]
    for c, cloud in enumerate(clouds):
        # Over 60 seeds, means are at most 4.2 standard errors apart, and those of
        # training rows at least 11.
        error = np.sqrt(2 / len(cloud)) * cloud.std(axis=0)
        assert np.all(np.abs(means[c] - means[c - 1]) < 7 * error)


def test_projections_of_folds_are_turned_and_nothing_else(drawn):
    X, y = load_wine(return_X_y=True)
    write_table("wine.csv", X, y)
    assert main(["fit", "wine.csv", "--label", "y", *SIMPLE]) == 0
    (rows,) = drawn
    model = MultipleKernelFDA([("all", "rbf", slice(0, 13))], norm=1, alpha=1.0)
    model.set_params(cv=None)  # the temperature changes no label and no projection
    whole = model.fit(X, y).transform(X)
    for number in range(1, 6):
        test = rows.fold == number
        part = clone(model).fit(X[~test], y[~test])
        np.testing.assert_allclose(
            pdist(rows.coordinates[test]), pdist(part.transform(X[test])), atol=1e-10
        )
        # In the axes of the whole model, each class is near its own mean there.
        for label in np.unique(y):
            mine = rows.coordinates[test & (y == label)].mean(axis=0)
            others = [whole[y == other].mean(axis=0) for other in np.unique(y)]
            distances = np.linalg.norm(mine - others, axis=1)
            assert distances.argmin() == label


class Turned(ClassifierMixin, BaseEstimator):
    """Its coordinates are the rows themselves, in axes that every fit turns anew."""

    rng = np.random.default_rng(0)

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        self.turn_ = ortho_group.rvs(X.shape[1], random_state=self.rng)
        return self

    def transform(self, X):
        return X @ self.turn_

    def predict(self, X):
        return np.repeat(self.classes_[:1], len(X))

    def predict_proba(self, X):
        return np.full((len(X), len(self.classes_)), 1 / len(self.classes_))


def test_axes_of_another_fit_are_found(rng):
    X, y = rng.standard_normal((20, 3)), np.arange(20) % 4
    model = Turned().fit(X, y)
    rows = held_out.out_of_fold(
        model, X, y, held_out.assign_folds(y, 5)[0], axes=model.transform(X)
    )
    np.testing.assert_allclose(rows.coordinates, model.transform(X), atol=1e-12)


def test_picture_says_how_it_was_made(rng):
    pytest.importorskip("matplotlib")
    from matplotlib import pyplot

    y = LABELS["three classes"].copy()
    y[4] = 7  # the only row of its class has no projection and is not drawn
    X = rng.standard_normal((len(y), 3))
    model = MultipleKernelFDA(norm=1, alpha=1.0).fit(X, y)
    rows = held_out.out_of_fold(
        model, X, y, held_out.assign_folds(y, 5)[0], axes=model.transform(X)
    )
    display = output._projection(rows)
    title = "each row was predicted by a model that had not seen it (5 folds)"
    assert display.figure_.get_suptitle() == title
    assert set(display.points_) == {0, 1, 2}
    pyplot.close(display.figure_)


def test_small_classes(rng, drawn, capsys):
    y = np.repeat(["a", "b", "few", "one"], [20, 20, 3, 1])
    write_table("small.csv", rng.standard_normal((44, 3)), y)
    assert main(["fit", "small.csv", "--label", "y", *SIMPLE]) == 0
    out = capsys.readouterr().out
    assert "Accuracy out of fold (3 folds)" in out
    assert "3 folds instead of 5: the class 'few' has only 3 rows." in out
    assert "Classes with a single row cannot be predicted out of fold" in out
    rows = read_predictions()
    assert set(column(rows[:-1], "fold")) == {"1", "2", "3"}
    written = [
        value
        for name, value in rows[-1].items()
        if name not in ("row", "y", "missing_views")
    ]
    assert written == [""] * 6
    assert main(["fit", "small.csv", "--label", "y", *SIMPLE, "--folds", "2"]) == 0
    assert "Accuracy out of fold (2 folds)" in capsys.readouterr().out


def test_no_class_with_two_rows(capsys):
    write_table("tiny.csv", np.eye(2), ["a", "b"])
    assert main(["fit", "tiny.csv", "--label", "y"]) == 2
    assert "no class has two rows" in capsys.readouterr().err


@pytest.mark.parametrize("m", [1, 7, 100])
def test_accuracy_is_never_certain(m):
    for right, share in ((np.ones(m), 1), (np.zeros(m), 0)):
        found, error = score.accuracy(right)
        assert found == share
        assert error > 0
    many = np.arange(10_000) % 4 == 0
    np.testing.assert_allclose(
        score.accuracy(many), [0.25, np.sqrt(0.25 * 0.75 / 9_999)]
    )


@pytest.mark.parametrize(
    ("given", "messages"),
    [
        (lambda c: c, ["Accuracy on 59 rows with a class: "]),
        (lambda c: f"{c}.0", ["Accuracy on 59 rows with a class: "]),
        (lambda c: c if c < 2 else "", ["Accuracy on 43 rows with a class: "]),
        (
            lambda c: c if c < 2 else "new",
            [
                "Accuracy on 59 rows",
                "Counted as wrong: 16 rows of classes",
                "such as 'new'",
            ],
        ),
        (lambda c: "", ["No score: there is no label column 'y'"]),
    ],
)
def test_score_of_new_rows(drawn, capsys, given, messages):
    X, y = load_wine(return_X_y=True)
    new = np.arange(len(y)) % 3 == 1
    write_table("old.csv", X[~new], y[~new])
    written = [given(c) for c in y[new]]
    write_table("new.csv", X[new], written)
    arguments = ["fit", "old.csv", "--label", "y", *SIMPLE, "--predict", "new.csv"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "59 rows of new.csv, which the model has not seen" in out
    for message in messages:
        assert message in out
    rows = read_predictions()
    texts = [str(text).removesuffix(".0") for text in written]
    assert column(rows, "y").tolist() == texts
    model = MultipleKernelFDA([("all", "rbf", slice(0, 13))], norm=1, alpha=1.0)
    model.set_params(cv=None)  # the temperature changes no label and no projection
    model.fit(X[~new], y[~new])
    expected = model.predict(X[new])
    np.testing.assert_array_equal(column(rows, "prediction", int), expected)
    if any(text != "" for text in written):
        right = [
            str(p) == str(g).removesuffix(".0")
            for p, g in zip(expected, written, strict=True)
            if g != ""
        ]
        assert f" a class: {100 * np.mean(right):.1f} % ± " in out


def test_rows_that_were_learned_from_have_no_score(drawn, capsys):
    X, y = load_wine(return_X_y=True)
    write_table("wine.csv", X, y)
    arguments = ["fit", "wine.csv", "--label", "y", *SIMPLE, "--predict", "wine.csv"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "178 of them equal to training rows" in out
    assert "Accuracy" not in out


@pytest.mark.parametrize("name", ["prediction", "fold", "probability_ill"])
def test_columns_with_the_name_of_another(rng, drawn, name):
    y = LABELS["two classes"]
    write_table("data.csv", rng.standard_normal((100, 2)), y, label=name)
    few = [*SIMPLE, "--folds", "2"]
    assert main(["fit", "data.csv", "--label", name, *few]) == 0
    rows = read_predictions()
    assert column(rows, f"given_{name}").tolist() == y.tolist()
    assert {"row", "fold", "prediction"} <= set(rows[0])
    ids = np.array([[f"p{i}"] for i in range(100)])
    cells = np.hstack([rng.standard_normal((100, 2)).astype(str), ids])
    write_table("ids.csv", cells, y, label="y")
    text = Path("ids.csv").read_bytes().replace(b"x2", name.encode(), 1)
    Path("ids.csv").write_bytes(text)
    assert main(["fit", "ids.csv", "--label", "y", "--id", name, *few]) == 0
    assert column(read_predictions(), f"given_{name}").tolist() == ids[:, 0].tolist()


PROGRESSION = load_diabetes().target
NO_CLASSES = {
    "whole numbers": (PROGRESSION.astype(int), "214 distinct whole numbers in 442"),
    "21 codes": (np.arange(210) % 21, "21 distinct whole numbers in 210 rows"),
    "few rows": (np.array([3, 1, 4, 15, 9, 3]), "5 distinct whole numbers in 6 rows"),
    "names": ([f"p{i}" for i in range(12)], "12 distinct texts in 12 rows"),
    "many names": ([f"p{i % 40}" for i in range(60)], "40 distinct texts in 60 rows"),
}


@pytest.mark.parametrize("name", NO_CLASSES)
def test_labels_that_are_no_classes(tmp_path, capsys, name):
    y, message = NO_CLASSES[name]
    write_table("data.csv", np.ones((len(y), 1)), y, label="what")
    before = set(tmp_path.iterdir())
    assert main(["fit", "data.csv", "--label", "what"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"the label column 'what' holds {message}" in line
    assert "--task classification" in line
    assert ("--task regression" in line) == isinstance(y, np.ndarray)
    assert set(tmp_path.iterdir()) == before


def test_many_classes_on_demand(rng, drawn):
    y = np.arange(84) % 21
    X = rng.standard_normal((84, 3)) + 5 * np.column_stack([y % 3, y // 3 % 3, y // 9])
    write_table("data.csv", X, y)
    demand = ["--task", "classification"]
    assert main(["fit", "data.csv", "--label", "y", *SIMPLE, *demand]) == 0
    rows = read_predictions()
    # measured: 0.9 to 0.98
    assert np.mean(column(rows, "y") == column(rows, "prediction")) > 0.8


@pytest.mark.parametrize("text", ["1", "0", "many"])
def test_number_of_folds(capsys, text):
    with pytest.raises(SystemExit) as stop:
        main(["fit", "data.csv", "--label", "y", "--folds", text])
    assert stop.value.code == 2
    assert f"{text!r} is not an integer of at least 2" in capsys.readouterr().err
