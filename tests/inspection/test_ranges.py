"""Ranges contain all nearly optimal weights and are reached: compared with a grid."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from estimators import ONE_EACH, poses_problem, some
from kernelweave import (
    Alignment,
    CappedSimplex,
    Fisher,
    LpBall,
    Margin,
    MultipleKernelFDA,
    SignedSum,
    Simplex,
    solve,
)
from kernelweave.exceptions import KernelWarning
from kernelweave.inspection import weight_ranges
from kernelweave.inspection._level_set import LevelSet
from kernelweave.inspection.ranges import criterion_ranges
from kernelweave.kernels import DenseBank, center_and_scale
from kernelweave.weights import Uniform

#: The grid has this spacing; the ranges are reached within 0.002.
STEP = 0.025
SLACK = 0.002


def make_bank(rng, n):
    """Three kernels of different use, and signs (n, 1)."""
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    X = rng.normal(size=(n, 6))
    X[:, 0] += y
    X[:, 2] += 0.7 * y
    kernels = [X[:, 2 * i : 2 * i + 2] @ X[:, 2 * i : 2 * i + 2].T for i in range(3)]
    return DenseBank(center_and_scale(np.stack(kernels))), y[:, None]


@pytest.fixture
def bank_and_signs(rng):
    return make_bank(rng, 20)


def directions():
    """Shares (r, 3) on a grid."""
    ticks = np.arange(0, 1 + STEP / 2, STEP)
    pairs = np.array([(a, b) for a in ticks for b in ticks if a + b <= 1 + 1e-12])
    return np.column_stack([pairs, np.maximum(1 - pairs.sum(axis=1), 0)])


def grid_range(criterion, weight_set, level):
    """Smallest and largest share (3,) of allowed weights on the grid within a level."""
    shares = directions()
    if isinstance(weight_set, LpBall):  # J decreases along a ray: the sphere is best
        points = shares / np.linalg.norm(shares, weight_set.norm, axis=1)[:, None]
    else:
        points = shares
        keep = [weight_set.violation(point) <= 1e-9 for point in points]
        shares, points = shares[keep], points[keep]
    values = np.array([criterion.evaluate(p, hessian=False).value for p in points])
    inside = shares[values <= level]
    return inside.min(axis=0), inside.max(axis=0)


@pytest.mark.one_seed
@pytest.mark.parametrize(
    "weight_set",
    [Simplex(), CappedSimplex(0.6), LpBall(4 / 3), LpBall(2)],
    ids=repr,
)
@pytest.mark.parametrize("kind", ["fisher", "alignment"])
def test_grid(bank_and_signs, weight_set, kind):
    bank, signs = bank_and_signs
    if kind == "fisher":
        criterion = Fisher(bank, signs, 0.3)
    else:
        criterion = Alignment(bank, signs)
    best, within = solve(criterion, weight_set, tol=1e-9).value, 0.02
    found = criterion_ranges(criterion, weight_set, within=within)
    low, high = grid_range(criterion, weight_set, best + within * abs(best))
    for i, one in enumerate(found.values()):
        assert one.attained
        assert one.low <= low[i] + 1e-6
        assert high[i] - 1e-6 <= one.high
        # The outermost points of the grid are about one step inside, or a little more
        # where the level set ends in a narrow tip; measured: 0 to 1.07 steps.
        assert one.low >= low[i] - 1.5 * STEP - SLACK
        assert one.high <= high[i] + 1.5 * STEP + SLACK


@pytest.mark.measured
@pytest.mark.one_seed
def test_margin_against_the_grid(rng):
    bank, signs = make_bank(rng, 14)
    criterion = Margin(bank, signs, "l2", 0.5)
    best = solve(criterion, Simplex()).value
    found = criterion_ranges(criterion, Simplex(), groups={"a": [0], "bc": [1, 2]})
    points = directions()[::80]
    values = np.array([criterion.evaluate(p, hessian=False).value for p in points])
    inside = points[values <= 1.01 * best, 0]
    assert found["a"].low <= inside.min() and inside.max() <= found["a"].high
    assert found["a"].attained and found["bc"].attained
    assert found["bc"].low == pytest.approx(1 - found["a"].high, abs=2 * SLACK)


@pytest.mark.one_seed
def test_learned_alpha_is_free(bank_and_signs):
    """For every share, the best weight of the identity decides."""
    bank, signs = bank_and_signs
    criterion = Fisher(bank.subset(np.array([0, 2])), signs, "learn")
    best = solve(criterion, Simplex(), tol=1e-9).value
    found = criterion_ranges(criterion, Simplex(), within=0.02)["kernel 0"]

    def value(share):
        def of_identity(w):
            point = np.array([w, (1 - w) * share, (1 - w) * (1 - share)])
            return criterion.evaluate(point, hessian=False).value

        return minimize_scalar(of_identity, bounds=(1e-6, 0.99), method="bounded").fun

    assert found.attained
    for share in (found.reached_low, found.reached_high):
        assert value(share) <= best * 1.02 * (1 + 1e-6)
    for share in (found.low - SLACK, found.high + SLACK):
        assert not 0 <= share <= 1 or value(share) > best * 1.02


@pytest.mark.one_seed
def test_a_convex_program_gives_the_same_ends(rng):
    cvxpy = pytest.importorskip("cvxpy")
    bank, signs = make_bank(rng, 12)
    criterion = Fisher(bank, signs, 0.3)
    level = 1.02 * solve(criterion, Simplex(), tol=1e-9).value
    found = criterion_ranges(criterion, Simplex(), within=0.02)
    w = cvxpy.Variable(3, nonneg=True)
    total = sum(w[i] * bank.kernel(i) for i in range(3)) + 0.3 * np.eye(12)
    value = 0.3 * cvxpy.matrix_frac(signs[:, 0], cvxpy.psd_wrap(total))
    toward = cvxpy.Parameter(3)  # so that the program is compiled once
    allowed = [cvxpy.sum(w) == 1, value <= level]
    problem = cvxpy.Problem(cvxpy.Minimize(toward @ w), allowed)
    for unit, one in zip(np.eye(3), found.values(), strict=True):
        for sign, end in ((1, one.low), (-1, one.high)):
            toward.value = sign * unit
            problem.solve(solver=cvxpy.CLARABEL)
            assert sign * problem.value == pytest.approx(end, abs=2 * SLACK + 1e-4)


@pytest.mark.measured
@pytest.mark.filterwarnings("ignore::kernelweave.exceptions.KernelWarning")
@pytest.mark.parametrize(
    "model",
    some(ONE_EACH, poses_problem, norm=1) + some(["MultipleKernelFDA-closed"]),
)
def test_copies_can_be_exchanged(rng, model):
    y = np.arange(40) % 2
    X = rng.normal(size=(40, 4))
    X[:, :2] += y[:, None]
    views = [
        ("a", "linear", [0, 1]),
        ("junk", "linear", [2, 3]),
        ("copy", "linear", [0, 1]),
    ]
    rows = weight_ranges(model.set_params(views=views).fit(X, y), X, y)
    a, _, copy = rows
    assert all(row["attained"] for row in rows)
    # the other copy can take the whole weight: measured: 0
    assert a["low"] <= 0.01 and copy["low"] <= 0.01
    assert a["high"] == pytest.approx(copy["high"], abs=2 * SLACK)
    # measured over 21 seeds: 0.98 or more
    assert a["high"] > 0.9
    for row in rows:
        assert row["low"] <= row["reached_low"] <= row["share"] + 1e-4
        assert row["share"] - 1e-4 <= row["reached_high"] <= row["high"]


@pytest.mark.one_seed
def test_refusals(bank_and_signs, rng):
    bank, signs = bank_and_signs
    criterion = Fisher(bank, signs, 0.3)
    with pytest.raises(ValueError, match="within must be a number > 0, got 0"):
        criterion_ranges(criterion, Simplex(), within=0)
    with pytest.raises(ValueError, match="is neither"):
        criterion_ranges(criterion, SignedSum(bank))
    fixed = criterion_ranges(criterion, Uniform())["kernel 0"]
    assert fixed.low == pytest.approx(1 / 3) == fixed.high


@pytest.mark.one_seed
def test_unrelated_target(rng):
    """If the identity alone is within the level, shares are arbitrary."""
    X, y = rng.normal(size=(40, 4)), np.arange(40) % 2
    views = [("a", "linear", [0, 1]), ("b", "linear", [2, 3])]
    model = MultipleKernelFDA(views, norm=1, cv=None).fit(X, y)
    rows = weight_ranges(model, X, y, within=1.0)
    assert [(row["low"], row["high"]) for row in rows] == [(0, 1), (0, 1)]


@pytest.mark.one_seed
def test_all_kernels_have_the_whole_share(rng):
    """Even where no weight at all would do as well, as on noise."""
    X, y = rng.normal(size=(30, 4)), np.arange(30) % 2
    X[:, 2:] = 1.0
    views = [("only", "linear", [0, 1]), ("constant", "linear", [2, 3])]
    model = MultipleKernelFDA(views, norm=1, alpha="learn", cv=None)
    with pytest.warns(KernelWarning, match="constant"):
        model.fit(X, y)
    found = {row["view"]: row for row in weight_ranges(model, X, y)}
    assert (found["only"]["low"], found["only"]["high"]) == (1.0, 1.0)
    assert (found["constant"]["low"], found["constant"]["high"]) == (0.0, 0.0)
    assert found["only"]["attained"] and found["constant"]["attained"]


@pytest.mark.measured
def test_few_linear_programs_are_needed(rng, monkeypatch):
    """Segments from the optimum itself took 219 for six views, and missed ends."""
    X, y, programs = rng.normal(size=(40, 15)), np.arange(40) % 2, []
    X[:, 0] += y
    views = [(f"{i}", "rbf", slice(3 * i, 3 * i + 3)) for i in range(5)]
    model = MultipleKernelFDA(views, norm=2, alpha=0.5, cv=None).fit(X, y)
    solved = LevelSet._program
    monkeypatch.setattr(
        LevelSet, "_program", lambda *args: programs.append(1) or solved(*args)
    )
    assert all(row["attained"] for row in weight_ranges(model, X, y))
    assert len(programs) < 117  # measured: 99


#: LpBall by another name.
Foreign = type("Foreign", LpBall.__bases__, dict(vars(LpBall)))


def test_a_ball_of_any_class_is_a_ball(bank_and_signs):
    """Its constraints on powers of the weights were once read as those on weights."""
    criterion = Fisher(*bank_and_signs, 1.0)
    ends = [
        LevelSet(criterion, weight_set, 0.01).extreme(np.eye(3)[0], 1.0)
        for weight_set in (Foreign(2), LpBall(2))
    ]
    assert ends[0] == ends[1]
