"""Every solver of every convex problem: the same optimum, or a refusal by name."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone, is_classifier

from estimators import in_turn, kinds, takes
from kernelweave import (
    Fisher,
    LpBall,
    Margin,
    MultipleKernelFDA,
    MultipleKernelRidge,
    MultipleKernelSVC,
    SignedSum,
    Simplex,
    TransductiveKernelSVC,
)
from kernelweave.criteria import BlockFisher, WithinFisher, class_target
from kernelweave.kernels import DenseBank
from kernelweave.solvers.solve import fitting_methods, solve

TOL = 1e-2
FISHER = tuple(fitting_methods(Fisher, Simplex))
MARGIN = tuple(fitting_methods(Margin, Simplex))
SIGNED = tuple(fitting_methods(Margin, SignedSum))
#: Of models; the programs of the papers are for :func:`solve`.
LEARNED = ("newton", "closed_form", "cutting_plane", "working_set")
#: Cone solvers take seconds for many kernels and are for comparison only.
CONES = ("sdp", "qcqp")
#: Fewer and more kernels than rows.
PAIRS = [(4, 1), (4, 2), (10, 1)]


def kernels(p, k=3, n=9):
    """Gaussian kernels of single features (n, n, p), the first informative."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, p))
    y = np.arange(n) % k
    X[:, 0] += 2 * y
    return np.exp(-((X[:, None] - X[None]) ** 2)), y


def check(model, K, y, best):
    """The fit ends at a certified optimum with the same value."""
    assert_close(model.fit(K, y).certificate_, best)


def assert_close(found, best):
    """A certified optimum, whose value differs from another by at most the gaps."""
    assert found.converged and abs(found.gap) <= TOL
    largest = max(abs(found.gap), abs(best.gap)) + 1e-9
    assert found.value == pytest.approx(best.value, rel=largest / (1 - largest))


@pytest.mark.parametrize(("p", "norm"), PAIRS)
def test_discriminants(p, norm):
    K, y = kernels(p)
    model = MultipleKernelFDA("precomputed", norm=norm, alpha=0.1, tol=TOL, cv=None)
    best = model.fit(K, y).certificate_
    for solver in LEARNED:
        check(model.set_params(solver=solver), K, y, best)
    for solver in CONES:
        message = f"'solver' parameter .* 'working_set'; got {solver!r}"
        with pytest.raises(ValueError, match=message):
            model.set_params(solver=solver).fit(None, None)


@in_turn(
    kind=["exact", "within", "block"] * 2,
    weight_set=[Simplex(), LpBall(2)],
    p=[4, 4, 4, 10, 4, 4],
)
def test_criteria_of_the_papers(kind, weight_set, p):
    """Eqs. 34, 9 and 37 of Ye et al. (2007), by every method that takes them."""
    K, y = kernels(p)
    bank, target = DenseBank.from_kernels(np.moveaxis(K, -1, 0)), class_target(y, 3)
    problem = Fisher(bank, target, 0.1)
    if kind == "within":
        problem = WithinFisher(bank, target, 0.1, y)
    elif kind == "block":
        problem = BlockFisher(bank, target, 0.1)
    best = solve(problem, weight_set, tol=TOL)
    methods = fitting_methods(problem, weight_set)
    assert {"newton", "cutting_plane", "sdp"} <= set(methods)
    for method in methods:
        if not (method in CONES and p > 4):
            found = solve(problem, weight_set, method, tol=TOL)
            assert_close(found, best)


@in_turn(
    p=[4, 10],
    norm=[2, 1],
    estimator=kinds(takes("solver", "alpha"), lambda model: not is_classifier(model)),
)
def test_other_users_of_the_fisher_criterion(p, norm, estimator):
    K, y = kernels(p, k=2)
    model = estimator("precomputed", norm=norm, alpha=0.1, tol=TOL)
    best = model.fit(K, y.astype(float)).certificate_
    for solver in LEARNED if estimator.func is MultipleKernelRidge else FISHER:
        if not (solver in CONES and p > 4):
            check(model.set_params(solver=solver), K, y.astype(float), best)


@in_turn(margin=["l1", "l2", "hard", "l1"], p=[4, 4, 4, 10], norm=[1, 2, 1, 1])
def test_margins(margin, p, norm):
    K, y = kernels(p, k=2)
    model = MultipleKernelSVC("precomputed", norm=norm, margin=margin, tol=TOL)
    best = model.fit(K, y).certificate_
    for solver in MARGIN:
        if not (solver in CONES and p > 4):
            check(model.set_params(solver=solver), K, y, best)


@pytest.mark.parametrize("estimator", kinds(takes("signed", "margin")))
@pytest.mark.parametrize("signed", [True, False])
def test_signed_weights_have_solvers_of_their_own(estimator, signed):
    K, y = kernels(3, k=2, n=8)
    model = estimator("precomputed", signed=signed, tol=TOL)
    mine, others = (SIGNED, MARGIN) if signed else (MARGIN, SIGNED)
    # for the rest see test_margins
    if signed or estimator.func is TransductiveKernelSVC:
        best = model.fit(K, y).certificate_
        for solver in mine:
            check(model.set_params(solver=solver), K, y, best)
    for solver in sorted(set(others) - set(mine)):
        message = f"solver={solver!r} is for signed={not signed}; with signed={signed}"
        with pytest.raises(ValueError, match=message):
            model.set_params(solver=solver).fit(None, None)


@pytest.mark.parametrize(
    "model",
    [
        MultipleKernelFDA(alpha="learn", norm=1, cv=None),
        MultipleKernelSVC(C="learn", margin="l2", norm=1),
    ],
    ids=lambda model: type(model).__name__,
)
def test_weights_of_kernels_that_say_nothing_are_equal(model):
    """With its first cut, this solver finds that all weight is on the identity."""
    X, y = np.random.default_rng(1).normal(size=(30, 4)), np.arange(30) % 2
    views = [("a", "rbf", [0, 1]), ("b", "linear", [2, 3])]
    model = clone(model).set_params(views=views, solver="cutting_plane").fit(X, y)
    assert model.certificate_.converged
    assert model.kernel_weights_.tolist() == [0.5, 0.5]
    assert np.ptp(model.decision_function(X)) < 1e-9
