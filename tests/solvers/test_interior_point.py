"""Margins and weights jointly: reference values, invariances, degenerate inputs."""

from __future__ import annotations

import numpy as np
import pytest

from estimators import in_turn
from kernelweave._array import to_numpy
from kernelweave.criteria.margin import Margin
from kernelweave.kernels import DenseBank, center_and_scale
from kernelweave.solvers import certify, solve
from kernelweave.weights import LpBall, Simplex, Uniform

# fmt: off
VALUES = [  # n, seed, p, then the values of hard, l1, l2 and learned C
    (60, 0, 3, 11.25081133, 4.85697904, 8.29288729, 10.79151670),
    (100, 1, 3, 18.343718, 7.323877, 13.019882, 16.565967),
    (100, 1, 10, 5.270932, 5.011335, 4.790282, 5.259053),
    (400, 1, 3, 65.81598, 25.979577, 44.512826, 55.514123),
]
# fmt: on
WEIGHTS = {  # of n = 60
    "hard": [0, 0.89775, 0.10225],
    "l1": [0, 0, 1],
    "l2": [0, 0.84645, 0.15355],
    "learn": [0.86402, 0, 0, 0.13598],
}
KINDS = ["hard", "l1", "l2", "learn"]
every_kind = pytest.mark.parametrize("kind", KINDS)
every_set = pytest.mark.parametrize(
    "weight_set", [Simplex(), LpBall(1.1), LpBall(2), Uniform()], ids=repr
)


@every_kind
@pytest.mark.parametrize(
    ("n", "seed", "p", "values"), [(*v[:3], v[3:]) for v in VALUES]
)
def test_reference_values(margins, n, seed, p, values, kind):
    criterion, unit = margins.reference(n, seed, p, kind)
    solution = solve(criterion, Simplex(), "interior_point", tol=1e-8)
    expected = unit * dict(zip(KINDS, values, strict=True))[kind]
    assert solution.converged
    assert solution.value == pytest.approx(expected, rel=3e-7)
    assert solution.n_factorizations <= 13
    if n == 60:
        np.testing.assert_allclose(solution.weights, WEIGHTS[kind], atol=1e-4)
        assert np.count_nonzero(solution.weights) == np.count_nonzero(WEIGHTS[kind])


def test_identity_and_ideal_kernels_have_closed_forms():
    y = np.repeat([1.0, -1.0], [7, 13])[:, None]
    for stack, expected in [
        (np.eye(20)[None], 4 * 7 * 13 / 20),
        ((y @ y.T)[None], 1.0),
        (np.stack([np.eye(20), 3 * y @ y.T, np.ones((20, 20))]), 1 / 3),
    ]:
        solution = solve(Margin(DenseBank(stack), y, "hard"), Simplex(), tol=1e-10)
        assert solution.value == pytest.approx(expected, rel=1e-9)
    two = DenseBank(np.array([[[1.0, -1.0], [-1.0, 1.0]]]))
    solution = solve(Margin(two, np.array([[1.0], [-1.0]]), "hard"), Simplex())
    assert solution.value == pytest.approx(1, rel=1e-7)


def small(margins, rng, kind, n=40, p=3, k=1, **changes):
    X, y = margins.data(n, int(rng.integers(1000)))
    levels = np.quantile(X[:, 2], np.arange(1, k) / k) if k > 1 else None
    signs = y[:, None]
    if levels is not None:
        signs = np.where(
            np.digitize(X[:, 2], levels)[:, None] == np.arange(k), 1.0, -1.0
        )
    return Margin(
        DenseBank(margins.kernels(X, p)), signs, **{**margins.kinds[kind], **changes}
    )


@pytest.mark.one_seed
@in_turn(  # every kind with two sets, every set with two kinds
    kind=["hard", "hard", "l1", "l1", "l2", "l2", "learn", "learn"],
    weight_set=[Simplex(), LpBall(1.1), LpBall(2), Uniform()],
)
def test_all_methods_agree(margins, rng, kind, weight_set):
    criterion = small(margins, rng, kind)
    best = solve(criterion, weight_set, tol=1e-9)
    assert best.converged
    methods = ["cutting_plane", "newton"] + ["closed_form"] * (weight_set.norm > 1.5)
    for method in methods:
        other = solve(criterion, weight_set, method, tol=1e-6)
        assert other.converged, (method, other.status)
        assert other.value == pytest.approx(best.value, rel=2e-6)
        assert other.lower_bound <= best.value * (1 + 1e-9)


@every_kind
@every_set
def test_weights_satisfy_their_conditions(margins, rng, kind, weight_set):
    """Where a weight is positive, its score is the one that the norm requires."""
    criterion = small(margins, rng, kind, k=3)
    solution = solve(criterion, weight_set, tol=1e-10)
    # The coefficients need not be unique: use those found with the weights.
    scores = criterion.problem.scores(solution.coef)
    assert scores @ solution.weights == pytest.approx(
        weight_set.support(scores), rel=1e-4
    )


@every_kind
def test_value_does_not_depend_on_order_or_on_copies(margins, rng, kind):
    criterion = small(margins, rng, kind)
    value = solve(criterion, Simplex(), tol=1e-9).value
    stack, signs = criterion.bank.stack, criterion.signs
    rows = rng.permutation(len(signs))
    for changed, labels in [
        (stack[::-1], signs),
        (np.concatenate([stack, stack[:1]]), signs),
        (stack[:, rows][:, :, rows], signs[rows]),
        (stack, -signs),
        (np.concatenate([stack, np.zeros_like(stack[:1])]), signs),
    ]:
        other = solve(
            Margin(DenseBank(changed), labels, **margins.kinds[kind]), Simplex()
        )
        assert other.converged
        assert other.value == pytest.approx(value, rel=2e-8)


def test_scaling_kernels_divides_the_hard_value(margins, rng):
    criterion = small(margins, rng, "hard")
    value = solve(criterion, Simplex()).value
    for factor in (1e-12, 1e-3, 7.0, 1e12):
        bank = DenseBank(factor * criterion.bank.stack)
        scaled = solve(Margin(bank, criterion.signs, "hard"), Simplex())
        assert scaled.converged
        assert scaled.value == pytest.approx(value / factor, rel=1e-7)


def test_the_soft_margin_with_squares_is_a_hard_one_with_a_ridge(margins, rng):
    soft = small(margins, rng, "l2", C=4.0)
    ridge = soft.bank.stack + 0.25 * np.eye(40)
    hard = Margin(DenseBank(ridge), soft.signs, "hard")
    for weight_set in (Simplex(), Uniform()):
        expected = solve(hard, weight_set, tol=1e-9).value
        found = solve(soft, weight_set, tol=1e-9).value
        assert found == pytest.approx(expected, rel=1e-8)


def test_learning_c_is_no_worse_than_any_c_at_its_trace(margins, rng):
    criterion = small(margins, rng, "learn")
    learned = solve(criterion, Simplex(), tol=1e-9)
    tau = learned.weights[0]
    hard = solve(Margin(criterion.bank, criterion.signs, "hard"), Simplex())
    assert learned.value <= hard.value * (1 + 1e-8)
    if tau > 1e-6:
        bank = DenseBank((1 - tau) * criterion.bank.stack)
        same = solve(Margin(bank, criterion.signs, "l2", 1 / tau), Simplex(), tol=1e-9)
        assert same.value == pytest.approx(learned.value, rel=1e-8)


@every_kind
def test_columns_share_weights_and_add_up(margins, rng, kind):
    criterion = small(margins, rng, kind, k=3)
    solution = solve(criterion, Simplex(), tol=1e-9)
    assert solution.converged and solution.coef.shape == (40, 3)
    parts = [
        Margin(criterion.bank, criterion.signs[:, c : c + 1], **margins.kinds[kind])
        for c in range(3)
    ]
    at_shared = sum(part.evaluate(solution.weights, False).value for part in parts)
    assert at_shared == pytest.approx(solution.value, rel=1e-8)
    alone = sum(solve(part, Simplex(), tol=1e-9).value for part in parts)
    assert alone <= solution.value * (1 + 1e-8)


@every_kind
def test_unlabelled_rows_take_no_part(margins, rng, kind):
    criterion = small(margins, rng, kind, k=2)
    signs = criterion.signs.copy()
    signs[25:] = 0.0
    partly = Margin(criterion.bank, signs, **margins.kinds[kind])
    cut = Margin(
        DenseBank(criterion.bank.stack[:, :25, :25]), signs[:25], **margins.kinds[kind]
    )
    found, expected = solve(partly, Simplex()), solve(cut, Simplex())
    assert found.value == pytest.approx(expected.value, rel=1e-8)
    assert np.all(to_numpy(found.coef)[25:] == 0)
    signs[3:6, 0] = 0.0  # rows that have a label in one column only
    mixed = solve(
        Margin(criterion.bank, signs, **margins.kinds[kind]), Simplex(), tol=1e-9
    )
    assert mixed.converged
    assert np.all(to_numpy(mixed.coef)[3:6, 0] == 0)


@in_turn(
    kind=list(KINDS) * 2,
    xp_backend=["torch", "array_api_strict", "numpy"],
    dtype=["float64", "float32", "float32", "float64", "float32"],
    indirect=["xp_backend"],
)
def test_every_array_library_gives_the_same(margins, xp_backend, kind, dtype):
    criterion, _ = margins.reference(60, 0, 3, kind)
    expected = solve(criterion, Simplex(), tol=1e-7)
    bank = DenseBank(xp_backend.asarray(criterion.bank.stack, dtype))
    moved = Margin(bank, xp_backend.asarray(criterion.signs), **margins.kinds[kind])
    found = solve(moved, Simplex(), tol=1e-7)
    tolerance = 1e-9 if dtype == "float64" else 1e-5
    assert found.converged
    assert found.value == pytest.approx(expected.value, rel=tolerance)
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-5)
    assert isinstance(found.coef, type(bank.stack))
    state = moved.evaluate(found.weights)
    assert state.value == pytest.approx(found.value, rel=1e-6)


def degenerate(margins, rng):
    n = 24
    X, y = margins.data(n, int(rng.integers(1000)))
    stack = margins.kernels(X, 3)
    pair = np.stack([X[:, :2] @ X[:, :2].T, X[:, 2:4] @ X[:, 2:4].T])
    sizes = np.array([1e6, 1.0, 1e-6])[:, None, None]
    return y[:, None], {
        "duplicates": np.concatenate([stack, stack]),
        "rank one": np.stack([np.outer(x, x) for x in X.T]),
        "constant": np.concatenate([stack, np.ones((1, n, n))]),
        "scales": sizes * stack,
        "single": stack[:1],
        "zeros": np.zeros((2, n, n)),
        "low rank": pair,
        "huge": 1e12 * stack,
        "tiny": 1e-12 * stack,
        "mixed": sizes**2 * stack,
    }


SOFT = [
    ("l1", 1e-10),
    ("l1", 1.0),
    ("l1", 1e10),
    ("l2", 1e-8),
    ("l2", 1.0),
    ("l2", 1e8),
]


@pytest.mark.measured
@pytest.mark.one_seed
def test_degenerate_inputs_end_with_an_honest_status(margins, rng):
    signs, banks = degenerate(margins, rng)
    for i, (name, stack) in enumerate(banks.items()):
        for j, (margin, C) in enumerate([*SOFT, ("hard", 1.0), ("l2", "learn")]):
            weight_set = (Simplex(), LpBall(1.2))[(i + j) % 2]  # in turn
            criterion = Margin(DenseBank(stack), signs, margin, C)
            solution = solve(criterion, weight_set, tol=1e-6)
            case = (name, margin, C, solution.status)
            judged = certify(criterion, weight_set, solution.weights, solution.coef)
            assert judged[2] == pytest.approx(solution.gap, rel=1e-6, abs=1e-12), case
            if margin == "hard" and name in ("zeros", "rank one", "low rank"):
                assert solution.status.startswith("infeasible"), case
                assert np.isinf(solution.value) and not solution.converged
                continue
            # Cancellation between coefficients of size C costs the function digits.
            hopeless = name in ("rank one", "low rank") and C in (1e8, 1e10)
            # measured: at most 2e-5 where it is hopeless
            assert solution.gap < (1e-3 if hopeless else 1e-6), case
            assert solution.converged == (solution.gap <= 1e-6), case


def test_opposite_labels_on_one_point(margins, rng):
    criterion = small(margins, rng, "hard")
    stack, signs = criterion.bank.stack.copy(), criterion.signs.copy()
    stack[:, 1, :], signs[:2, 0] = stack[:, 0, :], [1.0, -1.0]
    stack[:, :, 1] = stack[:, :, 0]
    for method in ("interior_point", "newton", "cutting_plane", "closed_form"):
        solution = solve(Margin(DenseBank(stack), signs, "hard"), Simplex(), method)
        assert solution.status.startswith("infeasible: no sum of the kernels")
        assert np.isinf(solution.value) and np.isinf(solution.gap)
        assert not solution.converged
    for kind in ("l1", "l2", "learn"):
        assert solve(
            Margin(DenseBank(stack), signs, **margins.kinds[kind]), Simplex()
        ).converged


@pytest.mark.parametrize(
    ("name", "value"), [("sonar", 34.162921), ("heart", 52.609053)]
)
def test_known_values_of_the_papers_data(data_dir, name, value):
    """Raw features, 60% of the rows labelled: all weight on the Gaussian."""
    table = np.genfromtxt(
        data_dir / f"{name}.csv.gz", delimiter=",", dtype=str, skip_header=1
    )
    X, y = table[:, :-1].astype(float), table[:, -1]
    gram = X @ X.T
    squares = np.diagonal(gram)
    squared = np.maximum(squares[:, None] + squares - 2 * gram, 0.0)
    stack = np.stack([(1 + gram) ** 2, np.exp(-5 * squared), gram])
    size = np.sqrt(np.diagonal(stack, axis1=1, axis2=2))
    stack = 3 * stack / size[:, :, None] / size[:, None, :]
    rows = np.random.default_rng(1000).permutation(len(y))[: round(0.6 * len(y))]
    signs = np.zeros((len(y), 1))
    signs[rows, 0] = np.where(y == y[0], 1.0, -1.0)[rows]
    solution = solve(Margin(DenseBank(stack), signs, "hard"), Simplex())
    assert solution.converged
    assert solution.value == pytest.approx(value, rel=1e-6)
    np.testing.assert_allclose(solution.weights, [0, 1, 0], atol=1e-6)


@in_turn(  # each kind with each number, and with each half of the norms
    kind=["hard", "l1", "l2"] * 2,
    p=[5, 50],
    norms=[[1, 2, 20], [4 / 3, 8, np.inf]],
)
def test_every_norm_and_number_of_kernels(make, rng, kind, p, norms):
    """A large norm gives weight to many kernels, so the start must be small enough."""
    X = rng.normal(size=(40, p))
    y = np.arange(40) % 2
    X[:, 0] += 2 * y
    stack = np.exp(-((X[:, None] - X[None]) ** 2)).transpose(2, 0, 1)
    bank = DenseBank(center_and_scale(stack))
    criterion = Margin(bank, np.where(y, 1.0, -1.0)[:, None], kind, 1.0)
    for norm in norms:
        weight_set = make.weight_set(norm)
        found = solve(criterion, weight_set, "interior_point", tol=1e-8)
        assert found.converged, (norm, found.status)
        assert found.n_iter <= 25  # measured: at most 17 in 2,880 problems
        other = solve(criterion, weight_set, "newton", tol=1e-5)
        assert other.converged, (norm, other.status)
        # Both values lie above the optimum, by no more than their gaps.
        gaps = 2 * (abs(found.gap) + abs(other.gap)) + 1e-9  # of another value each
        assert found.value == pytest.approx(other.value, rel=gaps)


@pytest.mark.parametrize(("n", "seed"), [(150, 6), (300, 7)])
def test_a_path_that_loses_its_way_is_left(n, seed):
    """Labels are noise, one kernel is the best: bounds had been 1e-3, and 1 again."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    stack = center_and_scale(np.stack([X[:, :j] @ X[:, :j].T for j in (1, 2, 4)]))
    signs = np.where(rng.normal(size=(n, 1)) > 0, 1.0, -1.0)
    margin = Margin(DenseBank(stack), signs, "l2", 10.0)
    found = solve(margin, Simplex(), method="interior_point")
    assert found.converged and found.gap <= 1e-8  # measured: 1e-13; before, 2e-4


def test_too_few_iterations_are_not_optimal(margins, rng):
    criterion = small(margins, rng, "l1")
    solution = solve(criterion, Simplex(), max_iter=4)
    assert not solution.converged and "max_iter=4" in solution.status
    best = solve(criterion, Simplex()).value
    assert solution.lower_bound <= best <= solution.value
