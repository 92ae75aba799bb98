"""Scores on held-out rows, against independent computations."""

from __future__ import annotations

import shutil
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.dummy import DummyRegressor
from sklearn.metrics import balanced_accuracy_score, log_loss, r2_score
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelweave import (
    KernelAlignment,
    KernelFDA,
    MultipleKernelFDA,
    MultipleKernelRidge,
    TransductiveKernelSVC,
)
from kernelweave.evaluation import evaluate
from kernelweave.evaluation.baselines import StackedViews
from kernelweave.evaluation.evaluate import leads, summarise
from kernelweave.evaluation.held_out import assign_folds
from kernelweave.exceptions import KernelWarning
from kernelweave.inspection import feature_importance, view_ablation
from kernelweave.kernels import Pipe
from kernelweave.learn.estimates import accuracy, ratio_of_means

pytestmark = pytest.mark.usefixtures("quick_stack")

VIEWS = [("a", "linear", [0, 1]), ("b", "linear", [2, 3])]


def classifier(**settings):
    return MultipleKernelFDA(VIEWS, norm=1, alpha=0.1, cv=None, **settings)


def regressor():
    return MultipleKernelRidge(VIEWS, norm=1, alpha=0.1, cv=None)


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 4)), np.repeat(["no", "yes"], 30)
    X[:, 0] += 1.5 * (y == "yes")
    return X, y


def test_scores_are_those_of_scikit_learn(rows):
    X, y = rows
    result = evaluate(classifier(), X, y, cv=2)
    held, own = result.held_out, result.table[0]
    split = PredefinedSplit(held.fold)
    proba = cross_val_predict(classifier(), X, y, cv=split, method="predict_proba")
    assert np.allclose(held.probability, proba)
    right = np.array(["no", "yes"])[proba.argmax(axis=1)] == y
    assert own["score"] == pytest.approx(right.mean())
    assert own["score_se"] == pytest.approx(right.std(ddof=1) / np.sqrt(60))
    assert own["log_loss"] == pytest.approx(log_loss(y, proba))
    balanced = balanced_accuracy_score(y, held.predicted)
    assert own["balanced_accuracy"] == pytest.approx(balanced)
    dummy = next(row for row in result.table if row["method"] == "no view")
    gain = right.astype(float) - (y == "no")  # equal classes: the first is predicted
    assert dummy["lead"] == pytest.approx(gain.mean())
    assert dummy["lead_se"] == pytest.approx(gain.std(ddof=1) / np.sqrt(60))


def test_r2_and_its_standard_error(rows):
    X = rows[0]
    y = np.round(3 * X[:, 0]).astype(int)  # whole numbers, predicted by others
    result = evaluate(regressor(), X, y, cv=3)
    held, own = result.held_out, result.table[0]
    assert np.any(held.predicted != np.round(held.predicted))
    split = PredefinedSplit(held.fold)
    assert np.allclose(held.predicted, cross_val_predict(regressor(), X, y, cv=split))
    means = cross_val_predict(DummyRegressor(), X, y, cv=split)
    u, v = (y - held.predicted) ** 2, (y - means) ** 2
    assert own["score"] == pytest.approx(1 - u.sum() / v.sum())
    # measured: 2e-4 and 4 % apart
    assert own["score"] == pytest.approx(r2_score(y, held.predicted), abs=0.02)
    without = [  # the jackknife knows nothing of influences
        1 - np.delete(u, i).sum() / np.delete(v, i).sum() for i in range(60)
    ]
    jackknife = np.sqrt(59 / 60 * np.sum((without - np.mean(without)) ** 2))
    assert own["score_se"] == pytest.approx(jackknife, rel=0.12)  # measured: 0.04
    assert result.table[-1]["score"] == result.table[-1]["score_se"] == 0  # not 1e-17
    assert result.table[-1]["lead"] == pytest.approx(own["score"])


def test_the_table_in_words():
    """Ahead or behind by more than two standard errors, or no clear difference."""
    found = {"best single view": 0.3, "equal weights": -0.3, "stacking of views": 0.1}
    table = [{"score": 0.8, "score_se": 0.05}]
    table += [{"method": k, "lead": v, "lead_se": 0.1} for k, v in found.items()]
    table += [{"method": "no view", "lead": None, "lead_se": None}]
    seen = "On rows that it had not seen, the model"
    assert summarise(table, True, "balanced accuracy") == (
        f"{seen} was right in 80.0 % of cases (standard error 5.0). It is ahead of the "
        "best single view (by 30.0 ± 10.0). It is behind equal weights (by 30.0 ± "
        "10.0). There is no clear difference from a stack of the views (+10.0 ± 10.0). "
        "Differences are in percentage points of balanced accuracy, with their "
        "standard errors."
    )
    assert summarise(table[:2], False, "R2") == (
        f"{seen} reached an R² of 0.80 (standard error 0.05). It is ahead of the best "
        "single view (by 0.30 ± 0.10)."
    )


def test_a_single_view_has_two_baselines(rows):
    model = classifier().set_params(views=[("all", "linear", slice(None))])
    found = [row["method"] for row in evaluate(model, *rows, cv=2).table]
    assert found == ["this model", "equal weights", "no view"]


def test_noise_has_no_lead():
    """Over four samples, one clear lead at most: one in twenty is chance."""
    clear, views = 0, [("all", ["linear", "rbf"], [0, 1, 2, 3])]
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(40, 4)), np.arange(40) % 2
        none = evaluate(classifier().set_params(views=views), X, y, cv=2).table[-1]
        clear += leads(none) and none["lead"] > 0
    assert clear <= 1


def lead_over_no_view(seed, rare, two_weights=False, **settings):
    """The row of the table for noise in 24 rows, and the result."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(24, 4)), (rng.permutation(24) < rare).astype(int)
    weight = rng.choice([0.1, 10.0], 24) if two_weights else None
    model = KernelFDA([("all", "linear", slice(4))], alpha=0.1, cv=None, **settings)
    result = evaluate(model, X, y, cv=5 if two_weights else 3, sample_weight=weight)
    return result.table[-1], result, weight


@pytest.mark.parametrize(
    ("settings", "measure", "weight", "usual"),
    [
        ({"class_weight": "balanced"}, "balanced accuracy", 19 / 5, 0),
        ({"priors": [0.5, 0.5]}, "prior-weighted accuracy", 19 / 5, 0),
        ({"class_weight": {1: 20.0}}, "class-weighted accuracy", 20.0, 1),
    ],
    ids=["balanced", "priors", "dict"],
)
def test_leads_count_classes_as_the_model_does(settings, measure, weight, usual):
    """Of 20 draws of noise, 15, 10 and 20 were called worse than no view; now 0 are.

    Nor is any called better: no view predicts the ``usual`` class by the same weights.
    """
    for seed in (9, 12):
        row, result, _ = lead_over_no_view(seed, rare=5, **settings)
        assert not leads(row)
        assert result.lead_name == measure
        assert f"percentage points of {measure}, with" in result.summary
        y = result.held_out.targets
        ahead = (result.held_out.predicted == y).astype(float) - (y == usual)
        expected = np.average(ahead, weights=np.where(y == 1, weight, 1.0))
        assert row["lead"] == pytest.approx(expected)


def test_unequal_weights_of_noise_give_no_lead():
    """No view named the heavier class, of which the fold then held less.

    Of 150 draws, the model was ahead of it in 8, among them these, and never behind;
    now it is ahead in 4 and behind in 4.
    """
    for seed in (5, 52):
        row, result, weight = lead_over_no_view(seed, rare=12, two_weights=True)
        assert not leads(row)
        of_class = np.bincount(result.held_out.targets, weight)
        assert row["score"] == pytest.approx(np.max(of_class) / np.sum(weight))


def test_the_standard_error_of_a_weighted_mean(rng):
    """That of NumPy for weights that do not count rows, which is unbiased."""
    values, weights, ones = rng.normal(size=9), rng.uniform(0.1, 10, 9), np.ones((9, 1))
    share = weights / np.sum(weights)
    expected = share @ values, np.sqrt(np.cov(values, aweights=weights) * share @ share)
    own = weights, np.arange(9)
    assert ratio_of_means(values[:, None], ones, *own) == pytest.approx(expected)
    halves = np.repeat(values, 2)[:, None], np.ones((18, 1)), np.repeat(weights, 2) / 2
    found = ratio_of_means(*halves, np.repeat(np.arange(9), 2))
    assert found == pytest.approx(expected)


def test_standard_errors_are_those_of_unequal_groups():
    """One group of 30 rows and seven small ones: errors were half of what they are."""
    rng, found = np.random.default_rng(0), []
    for _ in range(400):
        units = np.repeat(np.arange(8), np.r_[30, rng.integers(1, 5, 7)])
        values = rng.normal(size=8)[units]
        ones = np.ones((len(units), 1))
        found.append(ratio_of_means(values[:, None], ones, ones[:, 0], units))
    means, errors = np.transpose(found)
    ratio = np.sqrt(np.mean(errors**2)) / np.std(means)
    assert 0.85 < ratio < 1.25  # measured: 1.05
    assert np.mean(np.abs(means) > 2 * errors) < 0.1  # measured: 0.04


def test_groups_stay_together(rows):
    X, y = rows
    groups = np.arange(60) // 3
    result = evaluate(classifier(), X, y, cv=2, groups=groups)
    assert all(row["remark"] == "" for row in result.table)
    fold = result.held_out.fold
    assert all(len(set(fold[groups == g])) == 1 for g in range(20))
    right = (result.held_out.predicted == y).reshape(20, 3).mean(axis=1)
    expected = right.std(ddof=1) / np.sqrt(20)  # one value per group
    assert result.table[0]["score_se"] == pytest.approx(expected)


def test_rows_of_weight_two_count_twice(rows):
    X, y = rows
    weight = np.where(np.arange(60) % 3, 1.0, 2.0)
    result = evaluate(classifier(), X, y, cv=2, sample_weight=weight)
    right = result.held_out.predicted == y
    assert result.table[0]["score"] == pytest.approx(np.average(right, weights=weight))
    assert all(row["remark"] == "" for row in result.table)


def test_a_perfect_score_has_a_standard_error():
    X = np.repeat([[0.0, 0, 0, 0], [9.0, 9, 9, 9]], 10, axis=0)
    X += np.random.default_rng(0).normal(scale=0.1, size=X.shape)
    own, *others = evaluate(classifier(), X, np.repeat([0, 1], 10), cv=2).table
    assert own["score"] == own["balanced_accuracy"] == 1
    whole, half = np.sqrt(21 / 22 / 22 / 20), np.sqrt(11 / 12 / 12 / 10)
    assert own["score_se"] == pytest.approx(whole)
    assert own["balanced_accuracy_se"] == pytest.approx(half / np.sqrt(2))
    level = others[0]
    assert level["score"] == 1 and level["lead"] == 0  # no row tells them apart
    assert level["lead_se"] == pytest.approx(whole) and not leads(level)


def test_balanced_accuracy_is_that_of_independent_classes():
    """Each class adds the variance of its own share; one without errors, a likely one.

    A class of weight 0 is none, and two rows of a group that agree count as one.
    """
    right = np.array([1, 1, 0, 1, 0, 1, 1, 1, 0])
    classes = np.array([0, 0, 0, 0, 1, 1, 2, 2, 3])
    weights = np.array([1.0, 1, 1, 1, 1, 1, 1, 1, 0])
    shares = [right[classes == c] for c in (0, 1)]
    variances = [np.var(own, ddof=1) / len(own) for own in shares]
    variances.append(3 / 4 / 4 / 2)
    expected = np.mean([3 / 4, 1 / 2, 1]), np.sqrt(np.sum(variances)) / 3
    units = np.arange(9)
    assert accuracy(right, weights, units, classes) == pytest.approx(expected)
    once = accuracy(right[:8], None, units[:8], classes[:8])
    assert once == pytest.approx(expected)
    twice = np.repeat(right[:8], 2), None, np.repeat(units[:8], 2)
    assert accuracy(*twice, np.repeat(classes[:8], 2)) == pytest.approx(expected)


def test_baselines_with_gaps_and_with_precomputed_kernels(rows):
    X, y = rows[0].copy(), rows[1]
    X[::7, :2] = np.nan
    weights = np.where(np.arange(len(y)) % 10, 1.0, 0.0)  # 0: no part of the fit
    model = classifier(missing="zero")
    result = evaluate(model, X, y, cv=2, sample_weight=weights)
    assert all(row["score"] is not None for row in result.table)
    X = rows[0]
    kernels = np.stack([X[:, :2] @ X[:, :2].T, X[:, 2:] @ X[:, 2:].T], axis=2)
    model = MultipleKernelFDA("precomputed", norm=1, alpha=0.1, cv=None)
    same = evaluate(classifier(), X, y, cv=2).table
    for one, other in zip(evaluate(model, kernels, y, cv=2).table, same, strict=True):
        for key in ("score", "log_loss"):
            assert one[key] == pytest.approx(other[key]), key


@pytest.mark.parametrize(
    ("counted", "rare"),
    [
        ({}, 0.2),
        ({"class_weight": "balanced"}, 0.5),
        ({"class_weight": {1: 2.0}}, 1 / 3),
        ({"class_weight": "balanced", "priors": [0.9, 0.1]}, 0.1),
    ],
)
@pytest.mark.parametrize("weight", [None, np.full(20, 3.0)], ids=["", "weighted"])
def test_the_stack_counts_classes_as_the_model_does(counted, rare, weight):
    """Where no view varies, the intercept of the regression is all it learns."""
    X, y = np.zeros((20, 4)), (np.arange(20) < 4).astype(int)
    stack = StackedViews(VIEWS, KernelFDA(VIEWS, cv=None, **counted))
    with pytest.warns(KernelWarning, match="constant"):
        stack.fit(X, y, sample_weight=weight)
    proba = stack.predict_proba(X)
    np.testing.assert_allclose(proba[:, 1], rare, atol=1e-3)  # measured: below 1e-5


@pytest.mark.parametrize("model", [classifier(), regressor()])
def test_a_constant_view_is_no_obstacle(rows, model):
    """It predicts nothing, and the baselines of single views use the other."""
    X, y = rows[0].copy(), (rows[1] == "yes").astype(int)
    X[:, 2:] = 0.0
    with pytest.warns(KernelWarning, match="constant"):
        _, best, _, stack, _ = evaluate(model, X, y, cv=2).table
    one = evaluate(clone(model).set_params(views=VIEWS[:1]), X, y, cv=2).table
    assert best["score"] == pytest.approx(one[1]["score"])
    # measured: 0.46 and 0.77
    assert stack["score"] > 0.3


@pytest.mark.parametrize(
    "judge",
    [
        lambda model, X, y: evaluate(model, X, y, cv=2),
        lambda model, X, y: view_ablation(model.fit(X, y), X, y, cv=2),
        lambda model, X, y: feature_importance(
            model.fit(X, y), "last", X=X, y=y, n_resamples=2
        ),
    ],
    ids=["evaluate", "view_ablation", "feature_importance"],
)
def test_the_own_rows_are_no_new_ones(rows, judge):
    """What the fit to all rows says of them is not repeated for parts of them."""
    X, y = pd.DataFrame(rows[0], columns=list("abcd")), rows[1]
    X["site"] = np.where(np.arange(len(X)) < 5, X.index.astype(str), "A")
    X["unit"] = "mg"
    views = [("first", "auto", ["a", "site", "unit"]), ("last", "linear", ["d"])]
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        judge(KernelFDA(views, cv=None), X, y)
    assert ["'unit'" in str(warning.message) for warning in found] == [True]


def test_named_kernels_of_another_library(rows):
    torch = pytest.importorskip("torch")
    X, y = rows
    kernels = {"first": X[:, :2] @ X[:, :2].T, "rest": X[:, 2:] @ X[:, 2:].T}
    other = {name: torch.asarray(kernel) for name, kernel in kernels.items()}
    found, same = (
        evaluate(KernelFDA("precomputed", cv=None), K, y, cv=2, baselines=False)
        for K in (other, kernels)
    )
    np.testing.assert_allclose(found.held_out.coordinates, same.held_out.coordinates)


def test_rows_in_no_fold_do_not_help_their_group(rows):
    """A class of a single group always trained, also where that group was held out."""
    X, y = rows[0], rows[1].copy()
    groups = np.arange(60) // 3
    y[0] = "odd"
    found = evaluate(classifier(), X, y, groups=groups, baselines=False).held_out
    assert found.fold[0] == 0
    own = found.fold == found.fold[1]
    train = ~own & (groups != 0)
    model = classifier().fit(X[train], y[train], groups=groups[train])
    np.testing.assert_allclose(
        found.probability[own][:, found.classes != "odd"],
        model.predict_proba(X[own]),
    )
    two = np.where(y == "odd", "odd", "no")  # without it, only one class would be left
    found = evaluate(classifier(), X, two, groups=groups, baselines=False)
    assert np.all(found.held_out.shown[1:])
    assert found.table[0]["log_loss"] is None  # there is nothing to tell apart


def test_small_classes_are_told():
    y = np.array(["a"] * 6 + ["b"] * 3 + ["c"])
    fold, remarks = assign_folds(y, 5)
    assert fold[-1] == 0 and fold.max() == 3
    assert "'b' has only 3" in remarks[0] and "'c'" in remarks[1]


def test_a_row_without_a_prediction_is_not_right(rows):
    """Its class stood among the predictions, though no model had told it."""
    X, y = rows[0], rows[1].copy()
    y[7] = "one"
    groups = np.arange(60)
    groups[y == "yes"] = 99  # the most frequent class, of a single group
    for one, of in (("one", None), ("yes", groups)):
        held = evaluate(classifier(), X, y, groups=of, baselines=False).held_out
        assert (held.fold == 0)[y == one].all()
        assert (held.predicted != y)[held.fold == 0].all()


def test_no_credit_for_knowing_that_a_class_is_not_judged(rng):
    """The log loss was below that of no view in 10 of 10 draws of noise."""
    groups = np.concatenate([np.arange(40) // 2, np.full(30, 20)])
    X = 0.7 * rng.normal(size=(21, 4))[groups] + 0.7 * rng.normal(size=(70, 4))
    y = np.repeat(["ill", "well", "odd"], [20, 20, 30])
    table = evaluate(classifier(), X, y, groups=groups).table
    own, none = table[0], table[-1]
    assert none["method"] == "no view"
    assert none["log_loss"] == pytest.approx(np.log(2))
    assert own["log_loss"] > none["log_loss"] - 0.01  # measured: 0 to 5e-6 above


@pytest.mark.parametrize(
    ("model", "y", "message"),
    [
        (KernelAlignment(VIEWS), [0, 1], "only transforms"),
        (DummyRegressor(), [0, 1], "this package, got DummyRegressor; for example"),
        (make_pipeline(classifier()), [0, 1], "got Pipeline; .* pass its last step"),
        (TransductiveKernelSVC(VIEWS), [1, -1], "without a label with -1"),
        (TransductiveKernelSVC(VIEWS), ["a", "-1"], "without a label with -1"),
        (classifier(), ["a", None], r"NaN or None in row 1"),
    ],
)
def test_refusals(model, y, message):
    with pytest.raises((TypeError, ValueError), match=message):
        evaluate(model, np.zeros((2, 4)), y)
    with pytest.raises(ValueError, match="cv must be an int >= 2; got 1"):
        evaluate(classifier(), np.zeros((2, 4)), [0, 1], cv=1)


def test_a_constant_output_is_no_part_of_the_score(rows):
    """Its mean differs from it by rounding, which is nothing to be explained.

    Before, ``cv_score_`` of 0.1 was 1, and the model was called ahead of no view.
    """
    X, _ = rows
    y, constants = X[:, 0] + X[:, 2] ** 2, np.tile([0.1, -1e6 / 3], (60, 1))
    model = regressor().set_params(cv=2)
    for constant in constants.T:
        with pytest.raises(ValueError, match=r"y is constant .* pass outputs that"):
            evaluate(model, X, constant)
        assert model.fit(X, constant).cv_score_ == 0.0
    alone = evaluate(model, X, y, cv=2)
    result = evaluate(model, X, np.column_stack([constants, y]), cv=2)
    assert result.remarks == ["Constant outputs are excluded from the score: 0, 1."]
    for row, expected in zip(result.table, alone.table, strict=True):
        assert row["score"] == pytest.approx(expected["score"], abs=1e-6)
        assert row["score_se"] == pytest.approx(expected["score_se"], abs=1e-6)
    assert result.model.cv_score_ == pytest.approx(alone.model.cv_score_, abs=1e-6)


def test_outputs_of_any_size_are_judged_alike(rows):
    X, _ = rows
    y = X[:, 0] + X[:, 2] ** 2
    expected = evaluate(regressor(), X, y, cv=2)
    for unit in (1e200, 1e-3, 1e-200):  # at 1e-3 the stack was the mean, or nearly so
        result = evaluate(regressor(), X, unit * y, cv=2)
        assert result.summary == expected.summary


def test_a_fold_that_cannot_be_learned_is_named(rng):
    """Of two groups, one is left, and leaving it out would leave nothing."""
    X, y = rng.normal(size=(40, 6)), rng.integers(0, 2, 40)
    model = MultipleKernelFDA([("a", "linear", slice(0, 6))], cv=None)
    message = "^Without the rows of fold 1 of 2: MultipleKernelFDA leaves out one group"
    with pytest.raises(ValueError, match=message):
        evaluate(model, X, y, groups=np.repeat(["f", "m"], 20))


def test_refits_on_some_of_the_rows_use_no_cache(tmp_path, rng):
    X, y = rng.normal(size=(24, 4)), np.arange(24) % 2
    steps = [("s", StandardScaler()), ("p", PCA(2))]
    kernel = Pipe(Pipeline(steps, memory=str(tmp_path / "cache")), "linear")
    views = [("a", kernel, [0, 1]), ("b", "linear", [2, 3])]
    model = MultipleKernelFDA(views, norm=1, alpha=0.1, cv=None).fit(X, y)
    shutil.rmtree(tmp_path / "cache")
    evaluate(model, X, y, cv=2)
    view_ablation(model, X, y, cv=2)
    feature_importance(model, "b", X=X, y=y, n_resamples=2)
    assert not (tmp_path / "cache").exists()
    clone(model).fit(X, y)  # the user's own fits do
    assert (tmp_path / "cache").exists()
