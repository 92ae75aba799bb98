"""Weights, groups and classes of rows in the models: what they mean, what is refused.

A row of weight 2 is two equal rows that are left out together; where nothing is left
out, groups are not needed. Kernels have fixed parameters here, and explicit features
are those of linear kernels, since both are fixed by each row once.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn import config_context
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GroupKFold, cross_validate

from estimators import ONE_EACH, fits_with, has, in_turn, kinds, some, takes
from kernelweave import (
    KernelFDA,
    MixtureKDA,
    MultipleKernelFDA,
    MultipleKernelRidge,
)
from kernelweave._tolerances import SAME_SCORE
from kernelweave.kernels import RBF, Linear

N = 60
VIEWS = [
    ("a", [RBF(gamma=0.2), Linear()], [0, 1, 2]),
    ("b", RBF(gamma=0.1), [3, 4, 5]),
]
LINEAR = [("a", Linear(), [0, 1, 2]), ("b", Linear(), [3, 4, 5])]
MOMENTS = {"features": "nystroem"}  # exact for linear kernels

NAMES = (
    *ONE_EACH,
    "KernelFDA-fixed",
    "MultipleKernelFDA",
    "MultipleKernelFDA-l2-learn",
    "MultipleKernelRidge-l1",
)
#: Without folds: those of rows and of their copies differ.
MODELS = some(NAMES, fits_with("groups"), views=VIEWS, cv=None)
#: Of the second moments of features; nothing is left out to choose alpha.
SUMMED = {
    f"{case.id}-{alpha}": case.values[0](LINEAR, norm=norm, alpha=alpha, **MOMENTS)
    for case in kinds(has("partial_fit"))
    for norm, alpha in ((2, 0.5), (1, "learn"))
}


def every(models):
    return pytest.mark.parametrize("name", models)


@pytest.fixture
def data(rng):
    """Rows, three classes or two outputs, whole weights, and new rows."""
    X = rng.normal(size=(N, 6))
    classes = np.r_[[0, 1, 2] * 2, rng.integers(0, 3, N - 6)]
    X[:, 0] += classes
    X[:, 3] += 0.5 * (classes == 1)
    outputs = X[:, [0, 4]] + [1.0, 0.5] * rng.normal(size=(N, 2))
    return Data(X, classes, outputs, rng.integers(1, 4, N), rng.normal(size=(40, 6)))


class Data:
    def __init__(self, X, classes, outputs, weights, new):
        self.X, self.classes, self.outputs = X, classes, outputs
        self.weights, self.new = weights.astype(float), new
        self.copies = np.repeat(np.arange(len(X)), weights)

    def y(self, model):
        return self.outputs if isinstance(model, MultipleKernelRidge) else self.classes


def numbers(model, new, held_out=True):
    """What a user reads of a fitted model, with or without errors on rows left out."""
    found = {"kernel weights": model.kernel_weights_, "alpha": model.alpha_}
    if hasattr(model, "certificate_"):
        found["value"] = model.certificate_.value
    if held_out:
        found["error"] = model.loo_error_
    if not hasattr(model, "classes_"):
        return found | {"predict": model.predict(new)}
    found["transform"] = np.abs(model.transform(new))  # axes have no sign
    if held_out:
        found |= {"proba": model.predict_proba(new), "score": model.loo_score_}
    return found


def assert_same(one, other, rtol=1e-6, tied=False):
    """The same numbers, with atol relative to the largest of each kind.

    Alphas sought from different starts may be ``tied``: their errors differ by no more
    than that, and they themselves by its square root, up to 7e-3 in 60 draws.
    """
    assert one.keys() == other.keys()
    if tied:
        assert one["error"] == pytest.approx(other["error"], rel=2 * SAME_SCORE)
        scores = [found.pop("score", 0.0) for found in (one, other)]
        assert scores[0] == pytest.approx(scores[1], abs=2 / N)
        rtol = 0.02
    for key, value in one.items():
        # alpha is sought to 1e-4, and no other number depends on it that strongly
        allowed = max(rtol, 1e-3) if key == "alpha" else rtol
        scale = np.max(np.abs(other[key]))
        assert_allclose(value, other[key], rtol=0, atol=allowed * scale, err_msg=key)


@pytest.mark.parametrize("model", MODELS)
def test_whole_weights_are_repeated_rows_left_out_together(model, data):
    copies, y = data.copies, data.y(model)
    one = numbers(model.fit(data.X, y, sample_weight=data.weights), data.new)
    model.fit(data.X[copies], y[copies], groups=copies)
    chosen = model.alpha == "loo"
    assert_same(one, numbers(model, data.new), rtol=1e-9, tied=chosen)


@every(SUMMED)
def test_whole_weights_are_repeated_rows_in_moments(name, data):
    model, copies = SUMMED[name], data.copies
    y = data.y(model)
    one = model.fit(data.X, y, sample_weight=data.weights)
    assert one.features_.representation == "moments"
    # Class Gaussians and errors leave out each copy by itself.
    found = numbers(one, data.new, held_out=False)
    model.fit(data.X[copies], y[copies])
    assert_same(found, numbers(model, data.new, held_out=False))


@in_turn(
    name=[*SUMMED, *list(SUMMED)[::-1]],
    how=["kernels", "sparse", "portions", "single precision"],
)
def test_moments_weight_rows_as_kernels_do(name, how, data, rng):
    model, weights = SUMMED[name], rng.uniform(0.2, 3.0, N)
    y, X, rtol = data.y(model), data.X, 1e-6
    exact = type(model)(LINEAR, norm=model.norm, alpha=model.alpha)
    expected = numbers(exact.fit(X, y, sample_weight=weights), data.new, held_out=False)
    new = data.new
    if how == "portions":
        model = type(model)(**model.get_params(deep=False))
        for part in (slice(0, 25), slice(25, 31), slice(31, N)):
            model.partial_fit(X[part], y[part], sample_weight=weights[part])
    else:
        if how == "sparse":
            X, new = sparse.csr_array(X), sparse.csr_array(new)
        if how == "single precision":
            # measured: up to 7e-6
            X, new, rtol = X.astype(np.float32), new.astype(np.float32), 1e-4
        model.fit(X, y, sample_weight=weights)
    assert model.features_.representation == "moments"
    assert_same(numbers(model, new, held_out=False), expected, rtol)


@pytest.mark.parametrize("kind", kinds(has("partial_fit")))
def test_features_of_all_rows_have_weights_and_groups(kind, data, rng):
    weights, groups = rng.uniform(0.2, 3.0, N), np.arange(N) // 3
    design = {"sample_weight": weights, "groups": groups}
    y = data.y(kind())
    rows = kind(VIEWS, n_features=N, **MOMENTS).fit(data.X, y, **design)
    assert rows.features_.representation == "rows"  # every row is a landmark
    kernels = kind(VIEWS).fit(data.X, y, **design)
    assert_same(numbers(rows, data.new), numbers(kernels, data.new), rtol=1e-5)


@pytest.mark.parametrize("kind", kinds(has("partial_fit")))
@pytest.mark.parametrize("alpha", ["loo", "cv"])
def test_errors_from_moments_are_close_to_those_of_rows_left_out(kind, alpha, rng):
    X = rng.normal(size=(400, 6))
    classes = rng.integers(0, 3, 400)
    X[:, 0] += 1.5 * classes
    weights = rng.uniform(0.3, 2.0, 400)
    y = X[:, 0] + rng.normal(size=400) if is_regressor(kind()) else classes
    exact = kind(LINEAR, norm=2).fit(X, y, sample_weight=weights)
    summed = kind(LINEAR, norm=2, alpha=alpha, **MOMENTS)
    for scale in (1.0, 1e-3):  # weights of sum 400 or so, and below one
        summed.fit(X, y, sample_weight=scale * weights)
        # measured: 2 % at most
        assert summed.loo_error_ == pytest.approx(exact.loo_error_, rel=0.08)


@pytest.mark.filterwarnings("ignore:float64 cannot tell a noise level")
@pytest.mark.filterwarnings("ignore:.*the optimum is zero up to rounding")
@pytest.mark.parametrize("model", some(ONE_EACH, has("predict_proba"), views=VIEWS))
def test_rows_of_tiny_or_huge_weight_divide_nothing_by_zero(model, data):
    """A row of weight 1e-20 is as good as left out; two of 1e20 are all there is.

    Noise is given at first: which level of a grid is chosen depends on all rows.
    """
    X, y = data.X, data.y(model)
    light = clone(model).set_params(**({"noise": 1.0} if takes("noise")(model) else {}))
    expected = clone(light).fit(X[1:], y[1:]).predict_proba(data.new)
    light.fit(X, y, sample_weight=np.where(np.arange(N) == 0, 1e-20, 1.0))
    # measured: 5e-5 to 1.4e-4 apart
    assert_allclose(light.predict_proba(data.new), expected, atol=1e-3)
    first = np.unique(y, return_index=True)[1]
    model.fit(X, y, sample_weight=np.where(np.isin(np.arange(N), first), 1e20, 1.0))
    assert np.all(np.isfinite(model.predict_proba(data.new)))


def leaves_rows_out(model):
    return fits_with("groups")(model) or takes("noise")(model)


@pytest.mark.parametrize("model", some(ONE_EACH, leaves_rows_out))
def test_a_row_that_outweighs_all_others_is_refused(model, data):
    """Before, class shares and means without it were divided by zero."""
    heavy = np.where(np.arange(N) == 7, 1e16, 1.0)
    message = "row 7 has the weight 1e\\+16, and all other rows together 59: .*Reduce"
    with pytest.raises(ValueError, match=message):
        model.fit(data.X, data.y(model), sample_weight=heavy)
    if fits_with("groups")(model):
        heavy[8] = 1e16
        with pytest.raises(ValueError, match="the group of row 7 has the weight 2e"):
            model.fit(data.X, data.y(model), heavy, (np.arange(N) + 1) // 2)


@pytest.mark.filterwarnings("ignore:.*rounding in float32")
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("grouped", [False, True])
def test_a_common_factor_is_a_factor_of_alpha(grouped, dtype, rng):
    """Before, weights of 1e12 gave a leave-one-out score of 1, and 1e-9 an error."""
    y = np.arange(24) % 2
    X = (rng.normal(size=(24, 6)) + 0.5 * y[:, None]).astype(dtype)
    groups = np.arange(24) // 2 if grouped else None
    expected = KernelFDA(VIEWS, alpha=0.1, cv=None).fit(X, y, groups=groups)
    for factor in (1e-9, 1e6, 1e12):
        weights = np.full(24, factor)
        model = KernelFDA(VIEWS, alpha=0.1 * factor, cv=None)
        model.fit(X, y, sample_weight=weights, groups=groups)
        assert_allclose(model.loo_error_, expected.loo_error_, rtol=1e-4)
        assert_allclose(model.transform(X), expected.transform(X), atol=1e-4)
    if dtype == np.float64:  # a tiny alpha is left
        model.set_params(alpha=1.0).fit(X, y, weights, groups)
        expected.set_params(alpha=1e-12).fit(X, y, groups=groups)
        assert_allclose(model.loo_error_, expected.loo_error_, rtol=1e-6)


@pytest.mark.parametrize("model", [*MODELS, *SUMMED.values()])
def test_rows_of_weight_zero_are_left_out(model, data):
    y, weights = data.y(model), data.weights.copy()
    weights[::5] = 0.0
    kept = weights > 0
    one = numbers(model.fit(data.X, y, sample_weight=weights), data.new)
    model.fit(data.X[kept], y[kept], sample_weight=weights[kept])
    assert_same(one, numbers(model, data.new), rtol=1e-12)


@pytest.mark.parametrize("kind", kinds(has("partial_fit")))
def test_rows_of_weight_zero_in_portions(kind, data):
    y, weights = data.y(kind()), data.weights.copy()
    weights[::5] = weights[40:] = 0.0  # the last portion has no weight at all
    kept = weights > 0
    model, other = (kind(LINEAR, norm=2) for _ in range(2))
    for part in (slice(0, 40), slice(40, N)):
        model.partial_fit(data.X[part], y[part], sample_weight=weights[part])
    other.partial_fit(data.X[kept], y[kept], sample_weight=weights[kept])
    assert_same(numbers(model, data.new), numbers(other, data.new), rtol=1e-12)


@pytest.mark.parametrize("kind", kinds(fits_with("groups"), is_classifier))
def test_balanced_classes_are_the_weights_they_stand_for(kind, data):
    y = data.classes
    sums = np.bincount(y, data.weights)  # of copies, if weights are whole numbers
    weights = data.weights * (np.sum(sums) / (len(sums) * sums))[y]
    expected = kind(VIEWS).fit(data.X, y, sample_weight=weights)
    expected = numbers(expected, data.new)
    model = kind(VIEWS, class_weight="balanced")
    model.fit(data.X, y, sample_weight=data.weights)
    assert_same(numbers(model, data.new), expected, rtol=1e-12)


@pytest.mark.parametrize("keys", [list, np.ndarray.tolist])
@pytest.mark.parametrize(
    "dtype",
    ["int64", "float64", "str", "object", "datetime64[D]", "M8[ns]", "m8[s]"],
)
def test_a_dict_of_classes_has_their_labels_as_keys(dtype, keys, data):
    """Also those that are text of numbers, such as "1", or dates."""
    labels = data.classes.astype("U1" if dtype == "object" else dtype).astype(dtype)
    given = dict(zip(keys(np.unique(labels)), [2.0, 1.0, 0.5], strict=True))
    weights = np.array([2.0, 1.0, 0.5])[data.classes]
    expected = KernelFDA(VIEWS, cv=None).fit(data.X, labels, sample_weight=weights)
    model = KernelFDA(VIEWS, cv=None, class_weight=given).fit(data.X, labels)
    assert_same(numbers(model, data.new), numbers(expected, data.new), rtol=1e-12)
    model = MultipleKernelFDA(LINEAR, norm=2, alpha=0.5, **MOMENTS)
    expected = clone(model).partial_fit(data.X, labels, sample_weight=weights)
    model.set_params(class_weight=given).partial_fit(data.X, labels)
    assert_same(numbers(model, data.new), numbers(expected, data.new), rtol=1e-12)


@pytest.mark.parametrize("unit", ["D", "s", "ns"])
@pytest.mark.parametrize("form", ["same", "coarse", "object", "text"])
def test_dates_of_classes_may_have_any_form(unit, form, data):
    dates = np.array(["2020-01-01", "2020-02-01", "2020-03-01"], dtype="M8[D]")
    y = dates.astype(f"M8[{unit}]")[data.classes]
    keys = {
        "same": list(np.unique(y)),
        "coarse": list(dates),
        "object": dates.tolist(),
        "text": dates.astype(str).tolist(),
    }
    given = dict(zip(keys[form], [2.0, 1.0, 0.5], strict=True))
    plain = MixtureKDA(VIEWS, class_weight={0: 2.0, 1: 1.0, 2: 0.5}, cv=2)
    model = clone(plain).set_params(class_weight=given).fit(data.X, y)
    expected = plain.fit(data.X, data.classes)
    assert np.array_equal(model.predict_proba(data.new), plain.predict_proba(data.new))
    assert model.cv_score_ == expected.cv_score_


@pytest.mark.parametrize("how", ["iterator", "partial_fit", "array"])
def test_a_dict_of_classes_serves_rows_in_portions(how, data):
    y, given = data.classes, {0: 2.0, 2: 0.5}  # class 1 has weight 1
    model = MultipleKernelFDA(LINEAR, norm=2, class_weight=given, **MOMENTS, cv=None)
    parts = [y == 0, y != 0]  # the first portion has one class only
    order = np.concatenate([np.flatnonzero(part) for part in parts])
    if how == "iterator":
        model.fit((data.X[part], y[part]) for part in parts)
    elif how == "array":
        model.fit(data.X[order], y[order])
    else:
        for part in parts:
            model.partial_fit(data.X[part], y[part])
    expected = MultipleKernelFDA(LINEAR, norm=2, **MOMENTS, cv=None)
    weights = np.array([2.0, 1.0, 0.5])[y]
    expected.fit(data.X[order], y[order], sample_weight=weights[order])
    assert_same(numbers(model, data.new), numbers(expected, data.new))


@pytest.mark.parametrize(
    "model",
    [
        *some(["KernelFDA", "MultipleKernelFDA-l2-learn"], views=VIEWS),
        *some(["MultipleKernelFDA-nystroem"], views=LINEAR),
    ],
)
def test_priors_change_probabilities_by_the_rule_of_bayes(model, data):
    priors = np.array([0.7, 0.1, 0.2])
    fitted = model.fit(data.X, data.classes)
    shares = np.bincount(data.classes) / N
    assert_allclose(np.exp(fitted.gaussians_.log_prior), shares)
    expected = fitted.predict_proba(data.new) * priors / shares
    expected /= np.sum(expected, axis=1, keepdims=True)
    changed = type(model)(**{**model.get_params(deep=False), "priors": priors})
    changed.fit(data.X, data.classes)
    assert_allclose(changed.predict_proba(data.new), expected, atol=1e-10)
    weighted = fitted.fit(data.X, data.classes, sample_weight=data.weights)
    shares = np.bincount(data.classes, data.weights) / np.sum(data.weights)
    assert_allclose(np.exp(weighted.gaussians_.log_prior), shares)


# Over 20 draws with 5 % of positives the balanced accuracy rose from 0.52 to 0.72.
@pytest.mark.one_seed
def test_balanced_classes_find_a_rare_one():
    views = [("a", RBF(gamma=0.1), [0, 1, 2, 3]), ("b", RBF(gamma=0.1), [4, 5, 6, 7])]
    found = {None: [], "balanced": []}
    for seed in range(2):
        rng = np.random.default_rng(seed)
        y = (rng.random(2400) < 0.05).astype(int)
        X = rng.normal(size=(2400, 8))
        X[:, :2] += y[:, None]
        for class_weight, scores in found.items():
            model = KernelFDA(views, class_weight=class_weight, cv=None).fit(
                X[:400], y[:400]
            )
            predicted = model.predict(X[400:])
            scores.append(balanced_accuracy_score(y[400:], predicted))
    assert np.mean(found["balanced"]) > np.mean(found[None]) + 0.1  # measured: by 0.2
    assert np.mean(found["balanced"]) > 0.65  # measured: 0.7


def subjects(seed):
    """40 subjects with random labels and four nearly equal rows each."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(40), 4)
    X = rng.normal(size=(40, 10))[groups] + 0.1 * rng.normal(size=(160, 10))
    return X, rng.integers(0, 2, 40)[groups], groups


# Means of 2 draws. With groups the error of a label that nothing predicts is its
# variance, and the share of the larger class is guessed right (the standard error of a
# mean over 80 subjects is 0.06); without groups 0.99 or more.
@pytest.mark.one_seed
@pytest.mark.parametrize("kind", kinds(fits_with("groups"), norm=1))
def test_groups_are_not_predicted_from_their_own_rows(kind):
    errors, scores, leaking = [], [], []
    for seed in range(2):
        X, y, groups = subjects(seed)
        views = [("a", "rbf", slice(0, 5)), ("b", "rbf", slice(5, 10))]
        model = kind(views).fit(X, y, groups=groups)
        errors.append(model.loo_error_)
        larger = max(np.mean(y), 1 - np.mean(y))
        scores.append(getattr(model, "loo_score_", larger) - larger)
        leaking.append(kind(views).fit(X, y).loo_error_)
    assert np.mean(leaking) < 0.2  # measured: 0.037
    assert np.mean(errors) > 0.95  # measured: 1.05
    assert np.mean(scores) < 0.07  # measured: 0


@pytest.mark.parametrize("kind", kinds(has("partial_fit")))
def test_groups_of_one_row_are_no_groups(kind, data):
    y = data.y(kind())
    for settings in ({}, MOMENTS):
        model = kind(LINEAR, **settings)
        expected = numbers(clone(model).fit(data.X, y), data.new)
        each = model.fit(data.X, y, groups=np.arange(N)[::-1])
        assert_same(numbers(each, data.new), expected, rtol=1e-12)


def test_what_portions_cannot_have_is_refused(data):
    X, y, weights = data.X, data.classes, data.weights
    model = MultipleKernelFDA(LINEAR, **MOMENTS, cv=None)
    left_out = {"sample_weight": np.where(np.arange(N) < 3, 0.0, 1.0)}
    for given in ({}, left_out):
        with pytest.raises(ValueError, match=r"^features='nystroem' was asked"):
            model.fit(X, y, groups=np.arange(N) // 2, **given)
    with pytest.raises(ValueError, match="come in portions, so only sums over all"):
        model.fit(iter([(X, y)]), groups=np.arange(N) // 2)
    with pytest.raises(ValueError, match=r"Call partial_fit\(X, y, sample_weight"):
        model.fit(iter([(X, y)]), sample_weight=weights)
    with pytest.raises(ValueError, match="first portion is zero"):
        model.partial_fit(X, y, sample_weight=0 * weights)
    model.partial_fit(X, y, sample_weight=weights)
    with pytest.raises(ValueError, match=r"starts at row 60 .*row 2 is -1"):
        model.partial_fit(X, y, sample_weight=np.r_[1.0, 1.0, -1.0, weights[3:]])
    balanced = MultipleKernelFDA(LINEAR, class_weight="balanced", cv=None)
    with pytest.raises(ValueError, match="give a dict from class to weight"):
        balanced.partial_fit(X, y)
    for weight in (0.0, "2", None):
        odd = MultipleKernelFDA(LINEAR, class_weight={0: weight}, cv=None)
        for fit in (odd.partial_fit, odd.fit):
            with pytest.raises(ValueError, match=f"class 0 is {weight!r}; it must be"):
                fit(X, y)
    with pytest.raises(ValueError, match="weights of the rows add up to inf"):
        MultipleKernelFDA(LINEAR, cv=None).fit(X, y, sample_weight=1e308)
    with pytest.raises(ValueError, match="weights of the rows add up to 6e-319"):
        clone(model).partial_fit(X, y, sample_weight=np.full(N, 1e-320))


@pytest.mark.parametrize("kind", kinds(fits_with("groups"), norm=1))
def test_weights_and_groups_are_routed(kind, data):
    groups, own = np.arange(N) // 3, {"alpha": 0.1, "cv": 2}
    with config_context(enable_metadata_routing=True):
        model = kind(VIEWS, **own).set_fit_request(groups=True, sample_weight=True)
        model.set_score_request(sample_weight=False)
        result = cross_validate(
            model,
            data.X,
            data.y(model),
            cv=GroupKFold(2),
            params={"groups": groups, "sample_weight": data.weights},
            return_estimator=True,
            return_indices=True,
        )
    train = result["indices"]["train"][0]
    alone = kind(VIEWS, **own).fit(
        data.X[train],
        data.y(model)[train],
        sample_weight=data.weights[train],
        groups=groups[train],
    )
    found = numbers(result["estimator"][0], data.new)
    assert_same(found, numbers(alone, data.new), rtol=1e-12)


@pytest.mark.parametrize(
    "model",
    [
        MultipleKernelFDA(VIEWS),
        MultipleKernelFDA(VIEWS, missing="zero"),
        MixtureKDA(VIEWS, missing="available"),
        MultipleKernelFDA(VIEWS, features="nystroem"),
    ],
    ids=["all", "completed", "mixture", "features"],
)
@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_rows_keep_their_numbers_next_to_rows_of_weight_0(model, weight, data):
    X, y = data.X.copy(), data.classes
    X[40, 1], weights = 1e200, np.ones(N)
    if model.features != "nystroem":  # explicit features need every view
        X[1, :3] = np.nan
    weights[:20:2] = weight
    own = 30 if weight == 0.0 and model.features == "nystroem" else 40
    left_out = "After leaving out 10 rows of sample_weight 0 .*" if own < 40 else "^"
    with pytest.raises(ValueError, match=rf"{left_out}View 'a': row {own}, column 1"):
        model.fit(X, y, sample_weight=weights)


def test_portions_say_that_rows_of_weight_0_do_not_count(data):
    X, y = data.X.copy(), data.classes
    weights = np.arange(N) % 2.0
    model = MultipleKernelFDA(LINEAR, alpha=0.1, norm=1, cv=None)
    model.partial_fit(X, y, sample_weight=weights)
    X[40, 1] = 1e200
    with pytest.raises(ValueError, match=r"leaving out 30 rows .*: row 70, column 1"):
        model.partial_fit(X, y)
    with pytest.raises(ValueError, match=r"leaving out 30 rows .*: row 20, column 1"):
        clone(model).partial_fit(X, y, sample_weight=1.0 - weights)


def test_entries_of_the_rows_that_fix_features_are_named(rng):
    X, y = rng.normal(size=(4000, 6)), np.arange(4000) % 2
    X[3900:, 1] = 1e200  # in some of the rows drawn
    own = {"n_features": 5, "alpha": 0.1, "norm": 1, "cv": None, **MOMENTS}
    with pytest.raises(ValueError, match=r"row 39[0-9][0-9], column 1 holds 1e"):
        MultipleKernelFDA(LINEAR, **own).fit(X, y)
