"""Bars lead from the average row to the row drawn; points lie at the parts."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelweave import KernelFDA, MultipleKernelRidge, ProbabilisticKDA
from kernelweave.inspection import ContributionsDisplay, contributions


def ends(display):
    """Where each bar starts and stops."""
    starts = np.array([bar.get_x() for bar in display.bars_])
    return starts, starts + [bar.get_width() for bar in display.bars_]


def tick_labels(display):
    return [label.get_text() for label in display.ax_.get_yticklabels()]


def test_waterfall(cancer, cancer_model):
    X, _, _ = cancer
    display = ContributionsDisplay.from_estimator(cancer_model, X, row=5)
    found = contributions(cancer_model, X[5:6])
    starts, stops = ends(display)
    assert stops[0] == pytest.approx(found.intercept[0])
    assert_allclose(starts[1:-1], stops[:-2])  # each bar starts where the last stops
    assert stops[-1] == pytest.approx(stops[-2])
    assert stops[-1] == pytest.approx(cancer_model.decision_function(X[5:6])[0])
    order = np.argsort(-np.abs(found.parts[0]))
    names = [found.views[v] for v in order]
    assert tick_labels(display) == ["average row", *names, "this row"]
    predicted = cancer_model.predict(X[5:6])[0]
    assert display.ax_.get_title(loc="left") == f"Row 5: predicted {predicted}"
    label = display.ax_.get_xlabel()
    assert "log odds of malignant" in label
    assert label.startswith("\u2190 benign ") and label.endswith(" malignant \u2192")
    low, high = display.ax_.get_xlim()
    assert low < min(stops.min(), 0) and high > max(stops.max(), 0)


def test_rows_with_variances_of_their_own_start_from_a_constant(wine):
    X, y = wine[0][::4], wine[1][::4]
    views = [("a", "rbf", [0, 1]), ("b", "rbf", [2, 3])]
    model = ProbabilisticKDA(views, cv=None).fit(X, y)
    display = ContributionsDisplay.from_estimator(model, X, row=0)
    assert tick_labels(display)[0] == "constant"


def test_waterfall_of_several_classes(wine, wine_model):
    X, _ = wine
    display = ContributionsDisplay.from_estimator(wine_model, X, row=-1)
    scores = np.sort(wine_model.decision_function(X[-1:])[0])
    assert ends(display)[1][-1] == pytest.approx(scores[-1] - scores[-2])
    one = ContributionsDisplay.from_estimator(wine_model, X, row=0, output="class_2")
    wanted = wine_model.decision_function(X[:1])[0, 2]
    assert ends(one)[1][-1] == pytest.approx(wanted)


def test_swarms(cancer, cancer_model):
    X, _, _ = cancer
    display = ContributionsDisplay.from_estimator(cancer_model, X)
    found = contributions(cancer_model, X)
    predicted = cancer_model.predict(X)
    order = np.argsort(-np.mean(found.parts**2, axis=0))
    assert tick_labels(display) == [found.views[v] for v in order]
    for label in cancer_model.classes_:
        drawn = np.asarray(display.points_[label].get_offsets())
        wanted = found.parts[predicted == label][:, order].ravel()
        assert_allclose(drawn[:, 0], wanted)
        lines = np.tile(np.arange(3), np.count_nonzero(predicted == label))
        assert np.abs(drawn[:, 1] - lines).max() <= 0.4  # half the width of a swarm


def test_swarms_of_several_classes(wine, wine_model):
    X, _ = wine
    display = ContributionsDisplay.from_estimator(wine_model, X)
    total = display.parts.sum(axis=1) + display.intercept
    scores = np.sort(wine_model.decision_function(X), axis=1)
    assert_allclose(total, scores[:, -1] - scores[:, -2])
    assert list(display.points_) == list(wine_model.classes_)


def test_a_search_without_classes_of_its_own(wine, wine_model):
    search = SimpleNamespace(best_estimator_=wine_model)
    display = ContributionsDisplay.from_estimator(search, wine[0])
    assert list(display.points_) == list(wine_model.classes_)


def test_many_views_are_summed(wine):
    X, y = wine
    views = [(f"view {j}", "linear", [j]) for j in range(13)]
    model = make_pipeline(StandardScaler(), KernelFDA(views, alpha=0.1, cv=None)).fit(
        X, y
    )
    for row in (0, None):
        display = ContributionsDisplay.from_estimator(
            model, X[:30], row=row, max_views=4
        )
        assert "9 more views" in tick_labels(display)
    with pytest.raises(ValueError, match="max_views must be an int >= 1"):
        display.plot(max_views=0)


def test_regression(wine):
    X, _ = wine
    model = MultipleKernelRidge(alpha=0.1, norm=2, cv=None).fit(X[:, 2:], X[:, :2])
    display = ContributionsDisplay.from_estimator(model, X[:, 2:], row=3, output=1)
    assert ends(display)[1][-1] == pytest.approx(model.predict(X[3:4, 2:])[0, 1])
    every = ContributionsDisplay.from_estimator(model, X[:, 2:], output=0)
    assert list(every.points_) == ["rows"]
    with pytest.raises(ValueError, match=r"output must be one of.*got None"):
        ContributionsDisplay.from_estimator(model, X[:, 2:])


def test_refusals(cancer, cancer_model):
    X, _, _ = cancer
    with pytest.raises(ValueError, match=r"X has 190 rows, .*no row 190"):
        ContributionsDisplay.from_estimator(cancer_model, X, row=len(X))
    with pytest.raises(ValueError, match="only one output; got output='benign'"):
        ContributionsDisplay.from_estimator(cancer_model, X, output="benign")
