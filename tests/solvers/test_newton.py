"""Newton: reference values, and few factorisations whatever the data."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scipy.spatial.distance import pdist, squareform
from sklearn.datasets import load_breast_cancer, make_classification

from kernelweave.criteria.fisher import Fisher
from kernelweave.fits.targets import binary_target, class_target
from kernelweave.kernels import DenseBank, Linear, Polynomial, center_and_scale
from kernelweave.solvers import newton, solve
from kernelweave.solvers.newton import carried_over
from kernelweave.weights import CappedSimplex, LpBall, Simplex

#: The gap that every case below must reach, and the factorisations allowed for it.
GAP = 1e-8
MOST = 12

LAMBDAS = [1e-8, 1e-4, 1e-2, 1.0, "learn"]
NORMS = [1, 1.2, 1.5, 2, 4]
SETS = ["wine", "breast_cancer", "iris", "digits"]
#: Data sets of the two papers in the folder of larger data sets.
PAPER_SETS = [
    "sonar",
    "heart",
    "breast_cancer_wisconsin",
    "ionosphere",
    "wine",
    "usps",
    "satimage",
    "segment",
    "waveform",
    "brain_tumor1",
    "brain_tumor2",
]


def expect_few_steps(make, criterion_for, norms=NORMS, lambdas=LAMBDAS, turn=None):
    """Solve for every norm and lambda; name the cases that took too long.

    If ``turn`` is given, it says which half of them: the other half is another's turn.
    """
    slow = []
    for i, penalty in enumerate(lambdas):
        for norm in norms if turn is None else norms[(i + turn) % 2 :: 2]:
            solution = solve(criterion_for(penalty), make.weight_set(norm), tol=GAP)
            if not solution.converged or solution.n_factorizations > MOST:
                steps = solution.n_factorizations
                slow.append((penalty, norm, steps, f"{solution.gap:.1e}"))
    assert not slow, f"(lambda, norm, factorisations, gap): {slow}"


# fmt: off
WINE = [  # norm, lambda, first kernel, value, {kernel: weight}, "I" for the identity
    (1, 1e-2, 0, 50.8700110109, {5: .96518051, 9: .03481949}),
    (1, 1e-4, 0, 1.2582565685,
     {3: .24604489, 4: .42267265, 5: .21028211, 6: .05514646, 7: .06585389}),
    (1, "learn", 0, 12804.59676310,
     {3: .26124253, 4: .4119135, 5: .21094537, 6: .04540978, 7: .07048882, "I": 0}),
    (1, "learn", 5, 13683.57813375, {"I": .51831136, 5: .48168864}),
    (1.5, 1e-2, 0, 38.0465686175, {}),
    (2, 1e-2, 0, 30.2592877963, {0: .26244922, 4: .46787661, 5: .45773734}),
    (4, 1e-2, 0, 20.3089754990, {}),
]
# fmt: on


@pytest.mark.parametrize(("norm", "penalty", "first", "value", "expected"), WINE)
def test_reference_values_on_wine(
    make, wine_stack, norm, penalty, first, value, expected
):
    stack, y = wine_stack
    alpha = make.alpha_of(penalty, len(y))
    criterion = Fisher(DenseBank(stack[first:]), class_target(y, 3), alpha)
    solution = solve(criterion, make.weight_set(norm), tol=1e-10)
    assert solution.converged
    assert solution.value == pytest.approx(value, rel=1e-9)
    assert solution.lower_bound == pytest.approx(value, rel=1e-9)
    kernel_weights = solution.weights[-criterion.n_kernels :]
    for index, weight in expected.items():
        found = solution.weights[0] if index == "I" else kernel_weights[index - first]
        assert found == pytest.approx(weight, abs=1e-5)
    if norm == 1:  # all weights are listed
        kernels = [index - first for index in expected if index != "I"]
        assert np.flatnonzero(kernel_weights > 1e-6).tolist() == kernels


@pytest.mark.parametrize(("penalty", "first"), [(1e-4, 0), (1e-2, 0), ("learn", 5)])
def test_weights_that_tend_to_zero_are_zero(make, wine_stack, penalty, first):
    stack, y = wine_stack
    criterion = make.class_problem(None, y, penalty, stack=stack[first:])
    solution = solve(criterion, make.weight_set(1))
    assert solution.converged
    kernel_weights = solution.weights[-criterion.n_kernels :]
    # measured: 0.035 or more
    assert np.all((kernel_weights == 0) | (kernel_weights > 0.01))
    assert np.sum(kernel_weights == 0) >= 4


def test_reference_value_on_thirty_rows(make, small_problem):
    solution = solve(small_problem(1e-2), make.weight_set(1), tol=1e-10)
    assert solution.value == pytest.approx(4.834601868, rel=1e-9)
    assert np.flatnonzero(solution.weights).tolist() == [4, 5]
    np.testing.assert_allclose(solution.weights[4:6], [0.0857812, 0.9142188], atol=2e-6)


@pytest.mark.parametrize(("turn", "name"), [*enumerate(SETS)])
def test_few_factorizations_on_plain_data(make, turn, name):
    X, y = make.load(name)
    stack = make.gaussian_stack(X)
    problem = partial(make.class_problem, X, y, stack=stack)
    expect_few_steps(make, problem, turn=turn)


@pytest.mark.parametrize(("turn", "name"), [*enumerate(SETS)])
def test_few_factorizations_on_degenerate_data(make, turn, name):
    """Duplicate rows, a duplicate kernel, a kernel of zeros, and the identity."""
    X, y = make.with_duplicates(*make.load(name))
    stack = make.degenerate_stack(X)
    problem = partial(make.class_problem, X, y, stack=stack)
    expect_few_steps(make, problem, turn=turn)


@pytest.mark.parametrize(("turn", "name"), [*enumerate(["wine", "iris"])])
def test_few_factorizations_without_a_narrow_kernel(make, turn, name):
    """With duplicate rows every combination of these kernels is singular."""
    X, y = make.with_duplicates(*make.load(name))
    stack = make.gaussian_stack(X, np.logspace(0, 2, 6))
    problem = partial(make.class_problem, X, y, stack=stack)
    expect_few_steps(make, problem, turn=turn)


def test_few_factorizations_with_one_column(make):
    """The binary problem, Eqs. 16 and 40."""
    X, y = make.load("breast_cancer")
    stack = make.gaussian_stack(X)
    target = class_target(y, 2)[:, :1]
    expect_few_steps(
        make,
        lambda c: Fisher(DenseBank(stack), target, make.alpha_of(c, len(y))),
    )


def test_few_factorizations_with_500_kernels(make):
    X, y = make.load("digits", 40)
    X = X[:, X.std(axis=0) > 0]
    stack = make.many_kernels(X, 500, np.random.default_rng(0))
    expect_few_steps(
        make,
        lambda c: make.class_problem(X, y, c, stack=stack),
        norms=[1, 2],
        lambdas=["learn"],
    )


def test_only_two_kernels(make, small_problem):
    expect_few_steps(make, lambda c: small_problem(c, p=2))


@pytest.mark.parametrize("name", PAPER_SETS)
def test_few_factorizations_on_the_sets_of_the_papers(make, data_dir, name):
    pandas = pytest.importorskip("pandas")
    path = data_dir / f"{name}.csv.gz"
    if not path.exists():
        pytest.skip(f"{path.name} is not in the data folder")
    frame = pandas.read_csv(path).dropna()
    rows = np.random.default_rng(0).permutation(len(frame))[:150]
    X = make.standardize(frame.iloc[rows, :-1].to_numpy(dtype=float))
    y = frame.iloc[rows, -1].astype(str).to_numpy()
    plain = make.gaussian_stack(X)
    expect_few_steps(make, lambda c: make.class_problem(X, y, c, stack=plain), [1, 2])
    X, y = make.with_duplicates(X, y)
    stack = make.degenerate_stack(X)
    expect_few_steps(make, lambda c: make.class_problem(X, y, c, stack=stack), [1, 2])


def test_steps_that_go_in_a_circle_are_left():
    # Nearly collinear kernels of low rank and a learned alpha: predictor and corrector
    # cycled between four points, with the gap never below 6e-3.
    rng = np.random.default_rng(1)
    y = rng.integers(2, size=240)
    X = rng.normal(size=(240, 6)) + 4.0
    X[:, 0] += 2 * (y == 1)
    left, right = X[:, :3], X[:, 3:]
    right = (right - right.mean(axis=0)) / right.std(axis=0)
    kernels = [Linear()(left, left), Polynomial(2)(left, left), right @ right.T]
    bank = DenseBank(center_and_scale(np.stack(kernels)))
    solution = solve(Fisher(bank, binary_target(y), "learn"), Simplex(), tol=1e-9)
    assert solution.converged, solution.status
    assert solution.value == pytest.approx(2.494513736, rel=1e-8)


@pytest.mark.parametrize("weight_set", [Simplex(), CappedSimplex(0.4), LpBall(2)])
def test_a_barrier_takes_over_where_steps_go_in_a_circle(
    weight_set, small_problem, monkeypatch
):
    taken, own = [], newton._barrier
    monkeypatch.setattr(newton, "_cycles", lambda gaps, values: True)
    monkeypatch.setattr(newton, "_barrier", lambda *at: taken.append(at) or own(*at))
    solution = solve(small_problem(1e-2), weight_set, method="newton", tol=1e-6)
    assert taken and solution.converged, solution.status


def test_no_weight_grows_where_no_score_is_positive():
    for scores in (np.zeros(3), np.array([-4.0, -1.0, 0.0])):
        assert not np.any(newton._grown(np.full(3, 1 / 3), scores))


def test_a_start_from_another_norm_saves_steps(make):
    """The same optimum, certified from outside, in fewer factorisations."""
    X, y = load_breast_cancer(return_X_y=True)
    X, y = make.standardize(X[:100]), y[:100]
    criterion = Fisher(DenseBank(make.gaussian_stack(X)), binary_target(y), "learn")
    last, counts = solve(criterion, LpBall(np.inf), tol=GAP), []
    for weight_set in (LpBall(2), LpBall(4 / 3), Simplex()):
        start = carried_over(last.weights, last.gradient, weight_set)
        cold = solve(criterion, weight_set, tol=GAP)
        last = solve(criterion, weight_set, tol=GAP, start=start)
        assert last.converged
        assert last.value == pytest.approx(cold.value, rel=2 * GAP)
        counts.append((last.n_factorizations, cold.n_factorizations))
    warm_steps, cold_steps = np.sum(counts, axis=0)
    assert warm_steps < cold_steps, counts


@pytest.mark.parametrize("alpha", [0.1, "learn"])
def test_any_start_leads_to_the_same_optimum(rng, alpha):
    """Weights found earlier may be zero, at a cap, or on a ball of another norm."""
    X, y = rng.normal(size=(20, 5)), np.arange(20) % 2
    stack = np.stack([np.outer(x, x) for x in X.T]) + 0.1 * np.eye(20)
    criterion = Fisher(DenseBank(center_and_scale(stack)), binary_target(y), alpha)
    vertex = np.eye(criterion.n_weights)[-1]
    for weight_set in (Simplex(), LpBall(2), CappedSimplex(0.3)):
        known = solve(criterion, weight_set)
        for start in (known.weights, vertex, list(1e300 * vertex + 1e290)):
            found = solve(criterion, weight_set, start=start)
            assert found.converged, found.status
            assert found.value == pytest.approx(known.value, rel=2e-8)


def test_weights_of_zero_on_the_simplex_are_a_start_in_larger_balls(make):
    """A ball of norm 4 gives weight to every kernel, the simplex to few."""
    X, y = load_breast_cancer(return_X_y=True)
    X, y = make.standardize(X[:60]), y[:60]
    criterion = Fisher(DenseBank(make.gaussian_stack(X)), binary_target(y), 1e-4)
    sparse = solve(criterion, Simplex(), tol=GAP)
    assert np.any(sparse.weights == 0.0)
    for weight_set in (LpBall(2), LpBall(4)):
        start = carried_over(sparse.weights, sparse.gradient, weight_set)
        assert solve(criterion, weight_set, tol=GAP, start=start, max_iter=30).converged


def test_a_start_from_similar_rows_saves_steps(make):
    """As in a fold: the first steps keep weights that are needed away from zero."""
    options = {"n_informative": 15, "n_redundant": 0, "n_classes": 10, "class_sep": 1.5}
    X, y = make_classification(300, 20, random_state=2, **options)
    squares = squareform(pdist(make.standardize(X), "sqeuclidean"))
    widths = np.median(squares) * np.logspace(np.log10(0.09), np.log10(9), 10)
    stack, counts = np.exp(-squares / widths[:, None, None]), []

    def solved(rows, alpha, **how):
        bank = DenseBank(center_and_scale(stack[:, rows][:, :, rows]))
        return solve(Fisher(bank, class_target(y[rows], 10), alpha), Simplex(), **how)

    for alpha in (0.01, 0.03, 0.1):
        start = 0.9 * solved(np.arange(300), alpha, tol=1e-6).weights + 0.01
        train = np.flatnonzero(np.arange(300) % 5)
        fold = solved(train, alpha, tol=1e-4, start=start)
        assert fold.converged
        counts.append(fold.n_factorizations)
    assert max(counts) <= 3, counts


def test_last_steps_keep_few_of_many_similar_kernels(rng):
    """Of forty widths a handful has weight, and the gap is below the tolerance."""
    X = rng.normal(size=(60, 3))
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    squares = np.sum((X[:, None] - X[None]) ** 2, axis=2)
    widths = np.logspace(-1, 1, 40)
    bank = DenseBank(center_and_scale(np.exp(-squares / widths[:, None, None])))
    criterion = Fisher(bank, binary_target(y), "learn")
    solution = solve(criterion, Simplex(), tol=1e-6)
    assert solution.converged
    assert np.count_nonzero(solution.weights[1:]) <= 6
