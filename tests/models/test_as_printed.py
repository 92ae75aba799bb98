"""Kernels as given: the printed problems, solved by the estimators and by an oracle."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.optimize import minimize
from sklearn.svm import SVC

from estimators import ONE_EACH, output, some, takes
from kernelweave import (
    KernelAlignment,
    KernelFDA,
    MultipleKernelFDA,
    MultipleKernelRidge,
    MultipleKernelSVC,
    Simplex,
    SubspaceKernelSVC,
    TransductiveKernelSVC,
    solve,
)
from kernelweave.criteria import WithinFisher, binary_target
from kernelweave.inspection import weight_ranges
from kernelweave.kernels import RBF, DenseBank, Linear, Polynomial
from reproduce import lanckriet2002

cp = pytest.importorskip("cvxpy")

KERNELS = [Linear(), RBF(gamma=0.3), Polynomial(2, gamma=1.0 / 3)]
VIEWS = [("all", KERNELS, slice(None))]
#: Every combination that is not the default, and how the kernels then are.
SETTINGS = [
    pytest.param(False, "trace", id="uncentred"),
    pytest.param(True, None, id="unscaled"),
    pytest.param(False, None, id="as given"),
]


@pytest.fixture
def rows(rng):
    """Rows far from the origin, so that centring matters, and their kernels."""
    X = rng.standard_normal((24, 3)) + 2.0
    y = (X[:, 0] + 0.5 * rng.standard_normal(24) > 2.0).astype(int)
    return X, y, stack_of(X, X)


def stack_of(X, Z):
    """The kernels of ``VIEWS`` as defined, (p, m, n)."""
    return np.stack([kernel(X, Z) for kernel in KERNELS])


def best_on_simplex(value, p):
    """The minimum of a smooth function over the simplex, by sequential programming."""
    found = minimize(
        value,
        np.full(p, 1.0 / p),
        bounds=[(0.0, 1.0)] * p,
        constraints={"type": "eq", "fun": lambda w: np.sum(w) - 1.0},
        options={"ftol": 1e-15, "maxiter": 500},
    )
    return found.fun, found.x


def sonar(n, labelled):
    """Rows of Sonar: three normalised kernels (3, n, n), and the signs (n,)."""
    kernels, signs = lanckriet2002.kernels_of("sonar", 0.1)
    own = np.random.default_rng(0).permutation(len(signs))[:n]
    return kernels[:, own][:, :, own], signs[own], np.arange(n) < labelled


def printed_margin(kernels, signs, labelled, trace):
    """(12) of Lanckriet et al. (2002), letter by letter: value, mu."""
    mu, t = cp.Variable(len(kernels)), cp.Variable()
    lam, nu = cp.Variable(), cp.Variable(int(labelled.sum()), nonneg=True)
    K = sum(mu[i] * kernel for i, kernel in enumerate(kernels))
    y = signs[labelled]
    own = [k[np.ix_(labelled, labelled)] * np.outer(y, y) for k in kernels]
    G = sum(mu[i] * kernel for i, kernel in enumerate(own))
    edge = cp.reshape(1.0 + nu + lam * y, (len(y), 1), order="C")
    block = cp.bmat([[G, edge], [edge.T, cp.reshape(t, (1, 1), order="C")]])
    limits = [K >> 0, (block + block.T) / 2 >> 0, cp.trace(K) == trace]
    problem = cp.Problem(cp.Minimize(t), limits)
    problem.solve(solver=cp.CLARABEL)
    return problem.value, mu.value


def printed_alignment(kernels, signs, labelled):
    """(11), whose first block says that the norm of ``K_tr`` is at most one."""
    mu = cp.Variable(len(kernels))
    own = kernels[:, labelled][:, :, labelled]
    K = sum(mu[i] * kernel for i, kernel in enumerate(kernels))
    part = sum(mu[i] * kernel for i, kernel in enumerate(own))
    y = signs[labelled]
    goal = cp.Maximize(cp.sum(cp.multiply(part, np.outer(y, y))))
    problem = cp.Problem(goal, [cp.sum_squares(part) <= 1.0, K >> 0])
    problem.solve(solver=cp.CLARABEL)
    return problem.value / len(y), mu.value / np.sum(mu.value)


def classes_of(signs, labelled):
    return np.where(labelled, np.where(signs > 0, 1, 0), -1)


@pytest.mark.parametrize("scale", [None, "trace"])
def test_equation_12_on_sonar(scale):
    kernels, signs, labelled = sonar(20, 12)
    if scale == "trace":  # unequal traces: the printed constraint is on their sum
        kernels = kernels * np.array([0.5, 1.0, 3.0])[:, None, None]
    value, mu = printed_margin(kernels, signs, labelled, trace=20.0)
    model = TransductiveKernelSVC(
        "precomputed", margin="hard", centre=False, scale=scale, tol=1e-7
    )
    stack = np.moveaxis(kernels, 0, -1)
    model.fit(stack, classes_of(signs, labelled))
    units = np.trace(kernels, axis1=1, axis2=2) / 20.0 if scale == "trace" else 1.0
    assert_allclose(model.certificate_.value, value, rtol=1e-4)
    # measured: 2.2e-4 and 6.4e-4 apart
    assert_allclose(model.kernel_weights_ / units, mu, atol=2e-3)
    assert_allclose(np.trace(model.kernel_), 20.0, rtol=1e-6)
    model.set_params(centre=True, tol=1e-2)
    centred = model.fit(stack, classes_of(signs, labelled))
    # measured: 11 and 99
    assert np.max(np.abs(centred.kernel_weights_ / units - mu)) > 0.05


@pytest.mark.parametrize("hides", [False, True])
def test_equation_11_on_sonar(hides):
    kernels, signs, labelled = sonar(20, 12)
    if hides:  # the weights that recover the second kernel have a negative sum
        kernels = np.stack([kernels[0], 9.0 * kernels[0] + kernels[1]])
    value, mu = printed_alignment(kernels, signs, labelled)
    stack, y = np.moveaxis(kernels, 0, -1), classes_of(signs, labelled)
    model = KernelAlignment(
        "precomputed", signed=True, centre=False, unlabelled=-1, tol=1e-8
    ).fit(stack, y)
    assert_allclose(model.alignment_, value, rtol=1e-5)
    weights = model.kernel_weights_ / np.trace(kernels, axis1=1, axis2=2)
    assert (weights.sum() < 0) == hides
    # measured: up to 5e-5 apart
    assert_allclose(weights / weights.sum(), mu, atol=2e-4)
    assert model.transform(stack).shape == (20, 20)
    # without the unlabelled rows the sum may be less than positive semidefinite there
    own = kernels[:, labelled][:, :, labelled]
    alone = KernelAlignment("precomputed", signed=True, centre=False)
    alone.fit(np.moveaxis(own, 0, -1), y[labelled])
    assert alone.alignment_ >= model.alignment_ - 1e-8
    assert_allclose(alone.kernel_alignments_, model.kernel_alignments_)


@pytest.mark.parametrize(("solver", "tol"), [("auto", 1e-6), ("sdp", 1e-4)])
def test_equations_9_and_10_of_ye(rows, solver, tol):
    X, y, kernels = rows
    n, lam = len(y), 0.05
    a = np.where(y == 1, 1.0 / np.sum(y == 1), -1.0 / np.sum(y == 0))
    J = np.zeros((n, n))
    for c in (0, 1):
        own = (y == c).astype(float)
        J += (np.diag(own) - np.outer(own, own) / own.sum()) / np.sqrt(own.sum())

    def value(theta):
        G = np.tensordot(theta, kernels, axes=1)
        inner = np.linalg.solve(lam * np.eye(n) + J @ G @ J, J @ G @ a)
        return -(a @ G @ (a - J @ inner)) / lam

    best, theta = best_on_simplex(value, 3)
    problem = WithinFisher(DenseBank(kernels), binary_target(y), lam, y)
    solution = solve(problem, Simplex(), method=solver, tol=tol)
    assert_allclose(solution.value, best, rtol=10 * tol)
    # Weights of gap g are determined to about sqrt(g); measured: up to 2e-5.
    assert_allclose(solution.weights, theta, atol=0.1 * tol**0.5)
    own = {"alpha": lam * n / 2, "kernel_weights": solution.weights}
    model = KernelFDA(VIEWS, centre=False, scale=None, cv=None, **own).fit(X, y)
    alone = KernelFDA("precomputed", alpha=lam * n / 2, scale=None, cv=None)
    G = np.tensordot(solution.weights, kernels, axes=1)
    assert_allclose(model.transform(X), alone.fit(G, y).transform(G), atol=1e-9)


@pytest.mark.parametrize(("centre", "scale"), SETTINGS)
def test_least_squares_is_that_of_uncentred_kernels_with_an_intercept(
    rows, rng, centre, scale
):
    X, _, kernels = rows
    y = X[:, 0] ** 2 + rng.standard_normal(len(X))
    n, alpha, P = len(X), 0.5, np.eye(len(X)) - 1.0 / len(X)
    model = MultipleKernelRidge(
        VIEWS, norm=1, alpha=alpha, centre=centre, scale=scale, cv=None
    ).fit(X, y)
    units = np.ones(3)
    if scale == "trace":
        units = n / np.trace(kernels, axis1=1, axis2=2)
    h = (y - y.mean()) / y.std()

    def value(w):
        G = P @ np.tensordot(w * units, kernels, axes=1) @ P
        return alpha * h @ np.linalg.solve(G + alpha * np.eye(n), h)

    best, weights = best_on_simplex(value, 3)
    assert_allclose(model.certificate_.value, best, rtol=1e-5)
    # measured: up to 1.1e-5 apart
    assert_allclose(model.kernel_weights_, weights, atol=1e-4)

    def fit(K, y):  # coefficients, and an intercept without penalty
        m = len(y)
        system = np.block([[K + alpha * np.eye(m), np.ones((m, 1))], [np.ones(m), 0.0]])
        return np.linalg.solve(system, np.append(y, 0.0))

    combined = np.tensordot(model.kernel_weights_ * units, kernels, axes=1)
    new = rng.standard_normal((5, 3)) + 2.0
    cross = np.tensordot(model.kernel_weights_ * units, stack_of(new, X), axes=1)
    solution = fit(combined, y)
    assert_allclose(model.predict(new), cross @ solution[:-1] + solution[-1], rtol=1e-6)
    errors = []
    for i in range(n):
        others = np.arange(n) != i
        solution = fit(combined[np.ix_(others, others)], y[others])
        told = combined[i, others] @ solution[:-1] + solution[-1]
        errors.append((y[i] - told) ** 2)
    assert_allclose(model.loo_error_, np.mean(errors) / y.var(), rtol=1e-6)


@pytest.mark.parametrize(("centre", "scale"), SETTINGS)
def test_margins_are_those_of_a_machine_on_the_combined_kernel(rows, centre, scale):
    X, y, kernels = rows
    model = MultipleKernelSVC(VIEWS, C=2.0, centre=centre, scale=scale, tol=1e-8)
    model.fit(X, y)
    P = np.eye(len(X)) - 1.0 / len(X)
    own = np.stack([P @ K @ P for K in kernels]) if centre else kernels
    if scale == "trace":
        own = own * (len(X) / np.trace(own, axis1=1, axis2=2))[:, None, None]
    combined = np.tensordot(model.kernel_weights_, own, axes=1)
    machine = SVC(kernel="precomputed", C=2.0, tol=1e-8).fit(combined, y)
    wanted = machine.decision_function(combined)
    size = np.max(np.abs(wanted))
    # a gap of 1e-8 determines them to about its square root
    assert_allclose(model.decision_function(X), wanted, atol=5e-4 * size)
    stack = np.moveaxis(kernels, 0, -1)
    given = MultipleKernelSVC("precomputed", C=2.0, centre=centre, scale=scale)
    given.set_params(tol=1e-8).fit(stack, y)
    assert_allclose(given.kernel_weights_, model.kernel_weights_, atol=1e-6)
    parts = np.abs(model.kernel_weights_) * np.trace(own, axis1=1, axis2=2)
    shares = dict(zip(("kernel 0", "kernel 1", "kernel 2"), parts, strict=True))
    found = np.array(list(given.view_shares_.values()))
    assert_allclose(found, np.array(list(shares.values())) / parts.sum(), atol=1e-5)


def test_kernels_far_from_the_origin_are_used_as_they_are(rng):
    X = rng.standard_normal((12, 2)) + 100.0
    y = np.arange(12) % 2
    model = TransductiveKernelSVC(
        [("x", "linear", slice(None))], centre=False, scale=None
    )
    assert_allclose(model.fit(X, y).kernel_, X @ X.T)
    with pytest.warns(UserWarning, match="constant"):  # as they always are if centred
        TransductiveKernelSVC(
            [("one", lambda X, Z: np.ones((len(X), len(Z))), [0]), ("x", "rbf", [1])],
            signed=False,
        ).fit(X, y)


@pytest.mark.parametrize(
    "model", some(ONE_EACH, takes("features"), norm=1, alpha=0.3, cv=2)
)
@pytest.mark.parametrize(("centre", "scale"), SETTINGS)
def test_kernels_made_on_the_fly_are_the_same(model, centre, scale, rows):
    X, y, _ = rows
    model.set_params(views=VIEWS, centre=centre, scale=scale)
    kept = model.set_params(features="auto").fit(X, y).kernel_weights_
    score = getattr(model, "cv_score_", None)
    made = model.set_params(features="on_the_fly").fit(X, y)
    assert_allclose(made.kernel_weights_, kept, atol=1e-6)
    assert getattr(made, "cv_score_", None) == pytest.approx(score)


@pytest.mark.parametrize(
    "model",
    [
        *some((*ONE_EACH, "SubspaceKernelSVC-plain"), takes("scale"), alpha=0.5),
        pytest.param(MultipleKernelSVC(C="cv", tol=1e-2), id="MultipleKernelSVC-cv"),
    ],
)
def test_unscaled_kernels_of_trace_n_are_the_default(model, rows):
    """Kernels of trace n need no scaling, and a small or large unit loses no digits."""
    X, y, kernels = rows
    P = np.eye(len(X)) - 1.0 / len(X)
    own = np.stack([P @ K @ P for K in kernels])
    own *= (len(X) / np.trace(own, axis1=1, axis2=2))[:, None, None]
    stack = np.moveaxis(own, 0, -1)
    plain = model.set_params(views="precomputed").fit(stack, y)
    weights, shown = plain.kernel_weights_, output(plain, stack)
    again = model.set_params(scale=None).fit(stack, y)
    if not isinstance(model, SubspaceKernelSVC):  # whose C is then that of the paper
        assert_allclose(again.kernel_weights_, weights, atol=1e-6)
        assert_allclose(output(again, stack), shown, atol=1e-6)
    assert sum(again.view_shares_.values()) == pytest.approx(1.0)


def test_the_unit_of_unscaled_kernels_is_that_of_alpha(rows):
    _, y, kernels = rows
    stack = np.moveaxis(kernels, 0, -1)
    for unit in (1e-9, 1e6):
        found = [
            MultipleKernelFDA(
                "precomputed", norm=1, alpha=0.1 * s, scale=None, cv=None
            ).fit(s * stack, y)
            for s in (1.0, unit)
        ]
        one, other = (model.certificate_.value for model in found)
        assert_allclose(other, one, rtol=1e-6)
        assert_allclose(found[1].loo_error_, found[0].loo_error_, rtol=1e-6)
        chosen = [
            MultipleKernelFDA("precomputed", norm=1, scale=None, cv=None)
            .fit(s * stack, y)
            .loo_error_
            for s in (1.0, unit)
        ]
        assert_allclose(*chosen, rtol=1e-4)


REFUSED = [
    ({"features": "nystroem", "scale": None}, "scale='trace' only; got None"),
    ({"alpha": "learn", "scale": None}, "alpha='learn'.*got scale=None"),
    ({"centre": "no"}, "'centre' parameter of MultipleKernelFDA must be a bool"),
    ({"scale": "unit"}, "'scale' parameter of MultipleKernelFDA must be 'trace' or"),
]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"missing": "zero", "centre": False}, "missing='zero'.*centre=False"),
        ({"missing": "available", "scale": None}, "missing='available'.*scale=None"),
    ],
)
def test_rows_that_lack_a_view_need_centred_kernels(params, message, rows):
    X, y, _ = rows
    views = [("first", "rbf", [0]), ("second", "rbf", [1])]
    model = MultipleKernelFDA(views, **params).fit(X, y)  # nothing to complete
    X = X.copy()
    X[0, 0] = np.nan
    with pytest.raises(ValueError, match=f"{message}.*row 0 lacks a view"):
        model.fit(X, y)


@pytest.mark.parametrize(("params", "message"), REFUSED)
def test_what_has_no_meaning_is_refused(params, message, rows):
    X, y, _ = rows
    with pytest.raises(ValueError, match=message):
        MultipleKernelFDA(VIEWS, **params).fit(X, y)


def test_other_refusals(rows):
    X, y, _ = rows
    assert not hasattr(MultipleKernelFDA(centre=False), "partial_fit")
    squared = np.sum((X[:, None] - X[None]) ** 2, axis=-1)
    # a kernel only once it is centred
    for model, why in (
        (KernelFDA(cv=None), "has the trace 0, but centre=False"),
        (MultipleKernelSVC(), "not positive semidefinite"),
    ):
        model.set_params(views="precomputed").fit(-squared, y)
        with pytest.raises(ValueError, match=why):
            model.set_params(centre=False).fit(-squared, y)
    with pytest.raises(ValueError, match="signed=True reaches every sum of kernels on"):
        KernelAlignment(VIEWS, signed=True, scale=None).fit(X, y)
    fitted = MultipleKernelSVC(VIEWS, centre=False).fit(X, y)
    with pytest.raises(ValueError, match="centre=False and scale='trace'"):
        weight_ranges(fitted, X, y)


@pytest.mark.parametrize("marker", [-1, "none"])
def test_alignment_of_labelled_rows_only(rows, marker):
    X, _, kernels = rows
    names = np.array(["a", "b", "c"])[np.arange(len(X)) % 3].astype(object)
    names[15:] = marker
    model = KernelAlignment(VIEWS, unlabelled=marker).fit(X, names)
    H = (names[:15, None] == np.array(["a", "b", "c"])).astype(float)
    P = np.eye(15) - 1.0 / 15
    T, own = P @ H @ H.T @ P, [P @ K[:15, :15] @ P for K in kernels]
    cosines = [np.sum(K * T) / np.linalg.norm(K) / np.linalg.norm(T) for K in own]
    assert_allclose(model.kernel_alignments_, cosines, rtol=1e-6)
    with pytest.raises(ValueError, match="at least 2 classes"):
        model.fit(X, np.where(np.arange(len(X)) < 12, "a", str(marker)))
