"""SubspaceKernelSVC: machines, subspace, weights and certificates together."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from estimators import SETTINGS, in_turn, of, some
from kernelweave import LpBall, Simplex, SubspaceKernel, SubspaceKernelSVC, solve
from kernelweave._array import to_numpy
from kernelweave.criteria import SubspaceMargin
from kernelweave.fits.targets import signs_of_codes
from kernelweave.inner.svm import hinge, solve_low_rank_svm
from kernelweave.kernels import RBF, DenseBank, Linear, center_and_scale

MODELS = some(SETTINGS, of(SubspaceKernelSVC))
every_model = pytest.mark.parametrize("model", MODELS)


@pytest.fixture
def problem(make_problem):
    return make_problem(3, n=30, separation=2.5)


@every_model
def test_columns_and_kernels_are_the_same(model, problem):
    columns = clone(model).set_params(views=problem.views, tol=1e-8)
    columns.fit(problem.X, problem.y)
    kernels = clone(columns).set_params(views="precomputed").fit(problem.K, problem.y)
    expected = columns.decision_function(problem.new)
    assert expected.shape == (25, 3)
    assert_allclose(kernels.decision_function(problem.new_K), expected, atol=1e-4)
    assert np.array_equal(
        columns.predict(problem.new), columns.classes_[expected.argmax(axis=1)]
    )
    Z = columns.transform(problem.new)
    assert Z.shape == (25, columns.n_components_)
    assert columns.n_components_ == len(columns.get_feature_names_out())
    if model.uncorrelated:
        assert columns.certificate_.converged


@pytest.mark.parametrize("uncorrelated", [False, True])
@pytest.mark.parametrize("k", [2, 3])
def test_one_kernel_is_the_machine_on_the_regularised_kernel(
    make_problem, uncorrelated, k
):
    """Also out of sample: scikit-learn's SVC on the same kernel agrees."""
    problem = make_problem(k, n=40, separation=1.0)
    K, new = (
        problem.grams(rows, problem.X)[:, :, 0] for rows in (problem.X, problem.new)
    )
    model = SubspaceKernelSVC(
        "precomputed", alpha=0.3, C=2.0, uncorrelated=uncorrelated, tol=1e-9
    ).fit(K, problem.y)
    G = center_and_scale(K[None])[0]
    scale = 40 / np.trace(K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean())
    rows = scale * (new - K.mean(axis=0) - new.mean(axis=1, keepdims=True) + K.mean())
    inverse = np.linalg.inv(G + 0.3 * np.eye(40))
    train, test = (A @ inverse @ (np.eye(40) if uncorrelated else G) for A in (G, rows))
    unit = 40 / np.trace(train)  # C is meant for kernels of trace n
    train, test = unit * train, unit * test
    found = model.decision_function(new).reshape(25, -1)
    signs = signs_of_codes(problem.y, k)
    for c, y in enumerate(signs.T):
        machine = SVC(C=2.0, kernel="precomputed", tol=1e-8)
        machine.fit((train + train.T) / 2, y)
        assert_allclose(found[:, c], machine.decision_function(test), atol=1e-4)


def test_features_carry_the_machines(problem):
    """Machines trained on the features alone make the same decisions."""
    model = SubspaceKernelSVC(problem.views, alpha=0.5, C=0.5, tol=1e-8)
    model.fit(problem.X, problem.y)
    Z, signs = model.transform(problem.X), signs_of_codes(problem.y, 3)
    coef = Z.T @ solve_low_rank_svm(Z, signs, 0.5, 1e-9)
    _, intercepts = hinge(Z @ coef, signs)
    assert_allclose(
        model.transform(problem.new) @ coef + intercepts,
        model.decision_function(problem.new),
        atol=1e-4,
    )


@pytest.mark.one_seed
@pytest.mark.parametrize(("norm", "weight_set"), [(1, Simplex()), (2, LpBall(2))])
def test_weights_are_those_of_the_criterion(problem, norm, weight_set):
    model = SubspaceKernelSVC("precomputed", norm=norm, alpha=1.0, C=0.5, tol=1e-7).fit(
        problem.K, problem.y
    )
    bank = DenseBank(center_and_scale(np.moveaxis(problem.K, -1, 0)))
    signs = signs_of_codes(problem.y, 3)
    mean = np.mean(bank.stack, axis=0)
    trace = np.trace(mean @ np.linalg.inv(mean + np.eye(30)))
    criterion = SubspaceMargin(bank, signs, 1.0, 0.5 * 30 / trace)
    solution = solve(criterion, weight_set, method="cutting_plane", tol=1e-6)
    assert model.certificate_.value == pytest.approx(solution.value, rel=2e-6)
    assert model.certificate_.lower_bound <= solution.value
    assert weight_set.violation(model.kernel_weights_) < 1e-9
    cuts = clone(model).set_params(solver="cutting_plane", tol=1e-3)
    cuts.fit(problem.K, problem.y)
    # measured: up to 6e-4 apart
    assert cuts.certificate_.value == pytest.approx(solution.value, rel=2e-3)


@pytest.mark.one_seed
@pytest.mark.parametrize("uncorrelated", [False, True])
def test_fewer_components_than_machines(problem, uncorrelated):
    whole = SubspaceKernelSVC(problem.views, alpha=0.5, uncorrelated=uncorrelated)
    whole.fit(problem.X, problem.y)
    few = clone(whole).set_params(n_components=1, max_iter=20, norm=1)
    few.fit(problem.X, problem.y)
    assert few.n_components_ == 1 and few.transform(problem.new).shape == (25, 1)
    certificate = few.certificate_
    assert certificate.value > whole.certificate_.value
    assert certificate.lower_bound >= whole.certificate_.lower_bound * (1 - 1e-6)
    assert not certificate.converged and "no optimum is certified" in certificate.status
    if uncorrelated:
        stopped = clone(few).set_params(max_iter=1)
        with pytest.warns(ConvergenceWarning, match="weights stopped at max_iter=1:"):
            stopped.fit(problem.X, problem.y)


@pytest.mark.one_seed
@pytest.mark.parametrize("uncorrelated", [False, True])
def test_the_only_weights_have_the_bound_of_the_subspace(problem, uncorrelated):
    """It is closer than that of all dimensions, which holds for any weights."""
    whole = SubspaceKernelSVC(
        problem.views, alpha=0.5, uncorrelated=uncorrelated, norm=np.inf
    )
    whole.fit(problem.X, problem.y)
    assert whole.certificate_.converged
    few = clone(whole).set_params(n_components=1, max_iter=8)
    few.fit(problem.X, problem.y)
    certificate = few.certificate_
    assert certificate.lower_bound > whole.certificate_.lower_bound * 1.01
    assert certificate.lower_bound <= certificate.value
    assert "fewer dimensions" in certificate.status and not certificate.converged


@pytest.mark.parametrize("uncorrelated", [False, True])
def test_alpha_by_itself(problem, uncorrelated):
    model = SubspaceKernelSVC(problem.views, uncorrelated=uncorrelated)
    found = model.fit(problem.X, problem.y).alpha_
    loo = clone(model).set_params(alpha="loo").fit(problem.X, problem.y).alpha_
    assert found == (10.0 if uncorrelated else loo)


def test_more_components_than_machines_change_nothing(problem):
    whole = SubspaceKernelSVC(problem.views, alpha=0.5).fit(problem.X, problem.y)
    more = clone(whole).set_params(n_components=9).fit(problem.X, problem.y)
    assert_allclose(
        more.decision_function(problem.new), whole.decision_function(problem.new)
    )
    assert more.n_components_ == whole.n_components_ <= 3


@pytest.mark.parametrize("norm", [1, 2])
def test_plain_weights_lie_between_bounds(problem, norm):
    """With uncorrelated=False nothing is convex: bounds, but no claim beyond them."""
    model = SubspaceKernelSVC(
        problem.views, uncorrelated=False, alpha=0.5, C=0.5, norm=norm
    )
    certificate = model.fit(problem.X, problem.y).certificate_
    assert certificate.lower_bound <= certificate.value
    # measured over 21 seeds: 0.007 to 0.069
    assert certificate.gap < 0.2
    if not certificate.converged:
        assert "not convex in the weights" in certificate.status
        assert "no optimum is certified" in certificate.status
    # equal weights are no better
    uniform = clone(model).set_params(norm=np.inf).fit(problem.X, problem.y)
    assert uniform.certificate_.converged
    if norm == 1:
        assert certificate.value <= uniform.certificate_.value * (1 + 1e-6)


def test_small_C_makes_the_best_single_kernel_certain(make_problem):
    """Where the convex bound is attained at one kernel, the optimum is certified."""
    problem = make_problem(2, n=48, separation=2.5)
    model = SubspaceKernelSVC("precomputed", uncorrelated=False, alpha=0.5, C=1e-3).fit(
        problem.K, problem.y
    )
    assert model.certificate_.converged
    assert np.max(model.kernel_weights_) == 1.0


def test_labels_of_any_kind(problem):
    names = np.array(["c", "a", "b"])[problem.y]
    model = SubspaceKernelSVC(problem.views, alpha=0.5).fit(problem.X, names)
    assert set(model.predict(problem.new)) <= {"a", "b", "c"}
    binary = model.fit(problem.X, problem.y > 0)
    values = binary.decision_function(problem.new)
    assert values.shape == (25,) and binary.n_components_ == 1
    assert np.array_equal(binary.predict(problem.new), values > 0)


@in_turn(
    model=MODELS,
    other_backend=["array_api_strict", "torch"],
    indirect=["other_backend"],
)
def test_array_api(model, problem, other_backend):
    views = [("left", RBF(gamma=0.1), [0, 1, 2]), ("right", Linear(), [3, 4, 5])]
    model = clone(model).set_params(views=views)
    expected = model.fit(problem.X, problem.y).decision_function(problem.new)
    there = clone(model).fit(other_backend.asarray(problem.X), problem.y)
    found = there.decision_function(other_backend.asarray(problem.new))
    assert_allclose(to_numpy(found), expected, atol=1e-6)
    single = clone(model).fit(other_backend.asarray(problem.X, "float32"), problem.y)
    assert single.dual_coef_.dtype == other_backend.xp.float32


def test_progress(problem, capsys):
    SubspaceKernelSVC(problem.views, verbose=1).fit(problem.X, problem.y)
    assert "iteration 1: value" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"C": 0}, "'C' parameter"),
        ({"C": "learn"}, "'C' parameter"),
        ({"alpha": "learn"}, "'alpha' parameter"),
        ({"alpha": -1.0}, "'alpha' parameter"),
        ({"norm": "loo"}, "'norm' parameter"),
        ({"solver": "sdp"}, "'solver' parameter"),
        ({"solver": "newton", "uncorrelated": False}, "for uncorrelated=True"),
        ({"n_components": -1}, "'n_components' parameter"),
        ({"uncorrelated": None}, "must be a bool"),
        ({"max_iter": 0}, "'max_iter' parameter"),
        ({"tol": -1}, "'tol' parameter"),
    ],
)
def test_bad_parameters(problem, params, message):
    with pytest.raises(ValueError, match=message):
        SubspaceKernelSVC(problem.views).set_params(**params).fit(problem.X, problem.y)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("uncorrelated", [True, False])
def test_a_tolerance_below_rounding_ends_with_the_gap(make_problem, uncorrelated):
    """The machines were asked for more digits than there are: a LinAlgError."""
    problem = make_problem(3, n=48, separation=2.5)
    model = SubspaceKernelSVC(problem.views, tol=1e-300, uncorrelated=uncorrelated)
    found = model.fit(problem.X, problem.y).certificate_
    assert not found.converged and 0.0 < found.gap < np.inf
    assert f"{found.gap:.1e}" in found.status
    assert not uncorrelated or "rounding in float64 keeps" in found.status


@pytest.mark.parametrize("n_components", [None, 1])
@pytest.mark.parametrize("k", [2, 3])
@every_model
def test_machines_that_are_constant(model, k, n_components, rng):
    """Rows between rows of the larger class: no linear function lowers the slacks.

    The value is that of the slacks alone, 2 C for each row of a smaller class and
    machine; the subspace is spanned by that of the labels.
    """
    X = rng.normal(size=(40, 3))
    y = np.append(np.arange(1, k), np.zeros(41 - k, dtype=int))
    X[: k - 1] = (X[10 : 9 + k] + X[20 : 19 + k]) / 2
    model = clone(model).set_params(views=[("all", "linear", slice(0, 3))])
    model.set_params(n_components=n_components, scale=None, alpha=30.0, tol=1e-9)
    model.fit(X, y)
    assert_allclose(model.certificate_.value, 2 if k == 2 else 8, rtol=1e-9)
    assert model.certificate_.converged
    assert_allclose(np.ptp(model.decision_function(X), axis=0), 0.0, atol=1e-6)
    assert np.array_equal(model.predict(X), np.zeros(40))
    labels = SubspaceKernel(
        model.views, alpha=30.0, uncorrelated=model.uncorrelated, scale=None
    ).fit(X, y)
    Z = model.transform(X)
    assert Z.shape == (40, n_components or k - 1)
    assert_allclose(residuals(Z, labels.transform(X)), 0.0, atol=1e-6)


def residuals(Z, others):
    """What the columns of others do not explain of Z (n, r), relative to its size."""
    left = Z - others @ np.linalg.lstsq(others, Z)[0]
    return np.linalg.norm(left, axis=0) / np.linalg.norm(Z, axis=0)


def test_a_kernel_that_knows_nothing_of_the_labels_is_refused():
    X, y = np.array([[1, 1], [-1, -1], [1, -1], [-1, 1]]), [0, 0, 1, 1]
    with pytest.raises(ValueError, match="use another kernel in views, such as 'rbf'"):
        SubspaceKernelSVC([("all", "linear", [0, 1])]).fit(X, y)
