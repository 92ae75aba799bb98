"""The loop around the solvers: agreement, stopping, honesty, invariance."""

from __future__ import annotations

import importlib
from dataclasses import replace

import numpy as np
import pytest

from kernelweave._array import to_numpy
from kernelweave.criteria.fisher import Fisher
from kernelweave.criteria.margin import Margin
from kernelweave.kernels import DenseBank, center_and_scale
from kernelweave.protocols import InfeasibleError, Iterate, Method
from kernelweave.solvers import Solution, certify, solve
from kernelweave.weights import CappedSimplex, LpBall, Simplex, Uniform

solve_module = importlib.import_module("kernelweave.solvers.solve")

SETS = [Simplex(), LpBall(1.2), LpBall(1.5), LpBall(2), LpBall(4), Uniform()]
every_set = pytest.mark.parametrize("weight_set", SETS, ids=repr)
PENALTIES = [1e-3, 1e-2, "learn"]
every_penalty = pytest.mark.parametrize("penalty", PENALTIES)
METHODS = ["newton", "closed_form", "cutting_plane", "sdp"]
every_method = pytest.mark.parametrize("method", METHODS)
TOLERANCES = {"newton": 1e-8, "closed_form": 1e-5, "cutting_plane": 1e-6, "sdp": 1e-5}


def require(method, weight_set):
    """Skip the test if the method needs a package that is not installed."""
    if method == "sdp":
        pytest.importorskip("cvxpy")
    if method == "cutting_plane" and weight_set.norm not in (1, np.inf):
        pytest.importorskip("clarabel")


@pytest.mark.parametrize(
    ("weight_set", "penalty", "method"),
    [  # every pair of a set and a method, a set and a penalty, a method and a penalty
        pytest.param(weight_set, PENALTIES[(i + j) % 3], method)
        for i, weight_set in enumerate(SETS)
        for j, method in enumerate(METHODS)
    ],
    ids=str,
)
def test_methods_agree_within_their_gaps(small_problem, weight_set, penalty, method):
    require(method, weight_set)
    criterion = small_problem(penalty, p=6, step=9)
    tol = TOLERANCES[method]
    solution = solve(criterion, weight_set, method=method, tol=tol)
    best = solve(criterion, weight_set, tol=1e-10)
    assert best.converged
    assert best.lower_bound * (1 - 1e-12) <= solution.value
    assert solution.value <= best.value * (1 + max(solution.gap, 0.0) + 1e-10)
    assert solution.lower_bound <= best.value * (1 + 1e-12)
    assert solution.method == method
    assert weight_set.violation(solution.weights) <= 1e-9
    if (method, weight_set.norm) != ("closed_form", 1):  # sublinear on the simplex
        assert solution.converged
        assert solution.value == pytest.approx(best.value, rel=tol)


@every_set
@every_penalty
@pytest.mark.parametrize("max_iter", [2, None])
def test_weights_alone_can_be_certified_later(
    small_problem, weight_set, penalty, max_iter, monkeypatch
):
    """By a criterion made again, which remembers nothing."""
    solution = solve(small_problem(penalty), weight_set, max_iter=max_iter)
    remarks = []
    monkeypatch.setattr(
        Fisher, "remarks", lambda self, weights: remarks.append(weights) or ()
    )
    minimum = solve_module.find_weights(
        small_problem(penalty), weight_set, max_iter=max_iter
    )
    assert not remarks
    monkeypatch.undo()
    np.testing.assert_array_equal(minimum.weights, solution.weights)
    assert minimum.status.split(":")[0] == solution.status.split(":")[0]
    assert f"{minimum.gap:.1e}" in minimum.status
    later = solve_module.with_certificate(minimum, small_problem(penalty), weight_set)
    for name in ("value", "lower_bound", "gap"):
        expected = getattr(solution, name)
        # A gap is a difference of numbers that are rounded.
        atol = 1e-13 if name == "gap" else 0.0
        assert getattr(later, name) == pytest.approx(expected, rel=1e-12, abs=atol)
    assert later.status == solution.status and later.remarks == solution.remarks
    assert (later.n_iter, later.n_factorizations) == (
        solution.n_iter,
        solution.n_factorizations,
    )


def test_weights_that_no_method_moves_need_no_certificate(small_problem, monkeypatch):
    calls = []

    def counted(*args):
        calls.append(args)
        return certify(*args)

    monkeypatch.setattr(solve_module, "certify", counted)
    solve_module.find_weights(small_problem(1e-2), LpBall(2))
    assert not calls
    solve(small_problem(1e-2), LpBall(2))
    assert len(calls) == 1


@every_set
@every_penalty
def test_conditions_of_optimality(small_problem, weight_set, penalty):
    """``g_i + nu w_i^(q-1) >= 0``, and zero wherever a weight is positive."""
    criterion = small_problem(penalty)
    solution = solve(criterion, weight_set, tol=1e-10)
    weights, q = solution.weights, weight_set.norm
    scores = -criterion.evaluate(weights).gradient
    if np.isinf(q):
        np.testing.assert_array_equal(weights, weight_set.start(len(weights)))
        return
    nu = float(scores @ weights)  # the constraint is active: sum_i w_i^q = 1
    assert np.sum(weights**q) == pytest.approx(1.0, abs=1e-12)
    slack = nu * weights ** (q - 1.0) - scores
    assert np.min(slack) >= -1e-4 * nu
    assert abs(weights @ slack) <= 1e-10 * nu
    if q == 1:
        assert np.max(weights * np.abs(slack)) <= 1e-8 * nu
        assert np.min(slack) >= -1e-7 * nu


@pytest.mark.parametrize("method", ["newton", "closed_form", "cutting_plane"])
def test_max_iter_is_kept_and_admitted(small_problem, method):
    solution = solve(small_problem(1e-4), Simplex(), method=method, max_iter=2)
    assert not solution.converged
    assert solution.n_iter == 2
    assert solution.gap > solution.tol
    assert f"{solution.gap:.1e}" in solution.status
    assert "max_iter=2" in solution.status
    assert "optimal" not in solution.status
    # ... and everything else has the same form as after success.
    assert isinstance(solution, Solution)
    assert Simplex().violation(solution.weights) <= 1e-9
    assert solution.lower_bound <= solution.value


@pytest.mark.parametrize("tol", [1e-2, 1e-5, 1e-8])
def test_a_looser_tolerance_stops_earlier(small_problem, tol):
    solution = solve(small_problem(1e-4), Simplex(), tol=tol)
    assert solution.converged
    assert solution.gap <= tol
    assert solution.status.startswith("optimal")
    before = [row.gap for row in solution.trace[:-1]]
    assert all(gap > tol for gap in before)


def test_an_impossible_tolerance_ends_with_the_truth(small_problem):
    solution = solve(small_problem(1e-4), Simplex(), tol=1e-18)
    if not solution.converged:
        assert "optimal" not in solution.status
        assert f"{solution.gap:.1e}" in solution.status
    assert solution.gap <= 1e-9


@pytest.mark.parametrize("method", ["newton", "closed_form", "cutting_plane"])
def test_the_callback_sees_every_iteration(small_problem, method):
    rows = []
    solution = solve(
        small_problem(1e-2), Simplex(), method=method, tol=1e-4, callback=rows.append
    )
    assert tuple(rows) == solution.trace
    assert len(rows) == solution.n_iter
    assert [row.iteration for row in rows] == list(range(1, len(rows) + 1))
    assert np.all(np.diff([row.seconds for row in rows]) >= 0)


def test_the_callback_can_stop(small_problem):
    solution = solve(
        small_problem(1e-4), Simplex(), callback=lambda row: row.iteration == 3
    )
    assert solution.n_iter == 3
    assert not solution.converged
    assert "stopped by the callback" in solution.status


@pytest.mark.parametrize(("fall", "ended"), [(1e-6, 100), (0.0, 36)])
def test_a_gap_may_rise_while_the_value_falls(small_problem, fall, ended):
    """Not rounding: the block update stopped at 2e-4 on its way to 1e-8."""
    criterion = small_problem(1e-2)
    gaps = np.concatenate([np.geomspace(1.0, 1e-4, 11), np.full(89, 1e-3)])

    def scripted(criterion, weight_set):
        at = weight_set.start(criterion.n_weights)
        first = Iterate.at(at, criterion.evaluate(at, hessian=False))
        for i, gap in enumerate(gaps):
            value = 1.0 - fall * i
            yield replace(first, value=value, lower_bound=(1.0 - gap) * value)

    found = solve(criterion, Simplex(), Method("scripted", scripted, 1000))
    assert found.n_iter == ended
    assert ("rounding" in found.status) == (fall == 0.0)


def test_every_factorization_is_counted(small_problem):
    criterion = small_problem(1e-4)
    calls = []
    evaluate = criterion.evaluate
    criterion.evaluate = lambda *args, **kwargs: (
        calls.append(1) or evaluate(*args, **kwargs)
    )
    solution = solve(criterion, Simplex())
    assert solution.n_factorizations == len(calls) >= solution.n_iter


@every_penalty
@pytest.mark.parametrize("weight_set", [Simplex(), LpBall(2)], ids=repr)
def test_scale_and_order_of_the_kernels_do_not_matter(rng, weight_set, penalty):
    n, p = 25, 5
    parts = rng.standard_normal((p, n, 40)) * rng.uniform(0.1, 1, size=(p, 1, 40)) ** 3
    kernels = parts @ parts.transpose(0, 2, 1)
    target = rng.standard_normal((n, 2))
    target -= target.mean(axis=0)
    alpha = penalty if penalty == "learn" else n * penalty

    def solved(stack, columns):
        bank = DenseBank(center_and_scale(stack))
        return solve(Fisher(bank, columns, alpha), weight_set, tol=1e-10)

    first = solved(kernels, target)
    scaled = solved(kernels * 10.0 ** rng.integers(-6, 6, size=(p, 1, 1)), target)
    order = rng.permutation(p)
    moved = solved(kernels[order], target)
    rows = rng.permutation(n)
    shuffled = solved(kernels[:, rows][:, :, rows], target[rows])
    louder = solved(kernels, 1e3 * target)
    for other in (scaled, moved, shuffled):
        assert other.value == pytest.approx(first.value, rel=1e-9)
    assert louder.value == pytest.approx(1e6 * first.value, rel=1e-9)
    first_kernel = int(penalty == "learn")
    for other in (scaled, shuffled, louder):
        np.testing.assert_allclose(other.weights, first.weights, atol=1e-4)
    np.testing.assert_allclose(
        moved.weights[first_kernel:], first.weights[first_kernel:][order], atol=1e-4
    )


@every_method
@pytest.mark.parametrize("penalty", [1e-2, "learn"])
def test_one_kernel(small_problem, method, penalty):
    """A single weight needs no step; a kernel and the identity are two."""
    # A cone program takes long, and a single weight is the same in either set.
    for weight_set in (Simplex(), LpBall(2))[: 1 if method == "sdp" else 2]:
        require(method, weight_set)
        criterion = small_problem(penalty, p=1, step=9)
        solution = solve(criterion, weight_set, method=method, tol=1e-5)
        assert solution.converged
        if penalty != "learn" and method != "sdp":
            assert solution.n_factorizations == 1
            assert solution.weights == pytest.approx([1.0])


@every_method
def test_the_uniform_set_needs_one_evaluation(small_problem, method):
    require(method, Uniform())
    solution = solve(small_problem(1e-2), Uniform(), method=method)
    assert solution.converged
    assert solution.n_factorizations == 1
    np.testing.assert_array_equal(solution.weights, np.full(10, 0.1))


@every_method
def test_kernels_of_zeros_only(small_problem, method):
    """Nothing can be learned: the value is ``tr(H'H)`` for all weights."""
    require(method, Simplex())
    target = small_problem(1e-2).target
    criterion = Fisher(DenseBank(np.zeros((3, 30, 30))), target, 0.5)
    solution = solve(criterion, Simplex(), method=method)
    assert solution.converged
    assert solution.value == pytest.approx(np.sum(target**2), rel=1e-12)


@every_method
def test_a_target_of_zeros(small_problem, method):
    require(method, Simplex())
    bank = small_problem(1e-2, p=3, step=9).bank
    target = np.zeros((bank.n_samples, 2))
    solution = solve(Fisher(bank, target, 0.5), Simplex(), method=method)
    assert solution.converged
    assert solution.value == solution.gap == 0.0


def test_duplicate_kernels_share_a_weight_and_say_so(small_problem):
    criterion = small_problem(1e-2, p=6)
    alone = solve(criterion, Simplex())
    best = int(np.argmax(alone.weights))
    stack = np.concatenate([criterion.bank.stack, criterion.bank.stack[[best]]])
    twice = solve(
        Fisher(DenseBank(stack), criterion.target, criterion.alpha), Simplex()
    )
    assert twice.value == pytest.approx(alone.value, rel=1e-8)
    assert twice.weights[best] == twice.weights[-1] > 0
    assert twice.weights[best] + twice.weights[-1] == pytest.approx(
        alone.weights[best], abs=1e-6
    )
    (remark,) = twice.remarks
    assert f"'kernel {best}' and 'kernel 6' are the same" in remark
    assert alone.remarks == ()


def test_within_a_view_one_kernel_stands_for_its_copies(small_problem):
    """Views share what is the same, each through the first of its copies."""
    criterion = small_problem(1e-2, p=6)
    best = int(np.argmax(solve(criterion, Simplex()).weights))
    order = [best, *range(6), best]
    bank = DenseBank(criterion.bank.stack[order])
    bank.views = ["a", *"bbbbbb", "a"]
    solution = solve(Fisher(bank, criterion.target, criterion.alpha), Simplex())
    assert solution.converged
    assert solution.weights[0] == solution.weights[1 + best] > 0
    assert solution.weights[-1] == 0.0
    capped = solve(
        Fisher(bank, criterion.target, criterion.alpha), CappedSimplex(0.2), tol=1e-6
    )  # where one kernel may not have the weight of both, they keep what they have
    assert capped.converged and np.max(capped.weights) <= 0.2 + 1e-9


def test_a_narrow_kernel_is_mentioned_when_alpha_is_learned(wine_stack, make):
    stack, y = wine_stack
    learned = solve(make.class_problem(None, y, "learn", stack=stack), Simplex())
    assert any("alpha is not identifiable" in remark for remark in learned.remarks)
    fixed = solve(make.class_problem(None, y, 1e-2, stack=stack), Simplex())
    assert fixed.remarks == ()


@pytest.mark.parametrize("method", ["newton", "cutting_plane"])
@pytest.mark.parametrize("penalty", [1e-2, "learn"])
def test_other_array_libraries_agree_with_numpy(
    xp_backend, small_problem, method, penalty
):
    criterion = small_problem(penalty, p=5)
    there = Fisher(
        DenseBank(xp_backend.asarray(criterion.bank.stack)),
        xp_backend.asarray(criterion.target),
        criterion.alpha,
    )
    tol = TOLERANCES[method]
    expected = solve(criterion, Simplex(), method=method, tol=tol)
    solution = solve(there, Simplex(), method=method, tol=tol)
    assert solution.converged
    assert isinstance(solution.weights, np.ndarray)
    assert solution.value == pytest.approx(expected.value, rel=1e-9)
    np.testing.assert_allclose(solution.weights, expected.weights, atol=1e-6)
    assert to_numpy(solution.coef).shape == (30, 3)


@pytest.mark.parametrize(("gap", "advised"), [(1e-5, False), (1e-2, True)])
def test_only_a_large_gap_of_rounding_comes_with_advice(small_problem, gap, advised):
    found = solve_module._explained(small_problem(1e-2), "stopped", gap, gap, False)
    assert "rounding in float64 keeps the relative gap at" in found
    assert ("more regularisation would help" in found) is advised


def test_values_of_rounding_are_not_those_of_an_infeasible_problem(
    small_problem, monkeypatch
):
    def run(criterion, weight_set):
        weights = weight_set.start(criterion.n_weights)
        yield Iterate.at(weights, criterion.evaluate(weights))
        raise InfeasibleError("no margin")

    chosen = replace(solve_module.METHODS[0], run=run)
    monkeypatch.setattr(solve_module, "choose_method", lambda *given: chosen)
    solution = solve(small_problem(1e-2), Simplex())
    assert solution.status.startswith("infeasible: no margin")
    assert solution.value == solution.gap == np.inf


@pytest.mark.parametrize("penalty", [1e-2, "learn"])
def test_float32_kernels_get_a_certificate_that_holds(small_problem, penalty):
    exact = small_problem(penalty, p=5)
    stack = exact.bank.stack.astype(np.float32)
    single = Fisher(DenseBank(stack), exact.target, exact.alpha)
    double = Fisher(DenseBank(stack.astype(np.float64)), exact.target, exact.alpha)
    best = solve(double, Simplex(), tol=1e-10)
    loose = solve(single, Simplex(), tol=1e-4)
    assert loose.converged
    strict = solve(single, Simplex(), tol=1e-10)  # beyond float32
    for solution in (loose, strict):
        assert solution.coef.dtype == np.float32
        assert solution.weights.dtype == np.float64
        assert solution.lower_bound <= best.value * (1 + 1e-12)
        assert solution.value >= best.lower_bound * (1 - 1e-12)
    assert strict.gap <= 1e-5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "simplex"}, r"method must be 'auto' or one of .* got 'simplex'"),
        ({"tol": 0.0}, r"tol must be a finite number > 0, got 0\.0"),
        ({"tol": -1e-3}, r"tol must be a finite number > 0"),
        ({"tol": float("nan")}, r"tol must be a finite number > 0, got nan"),
        ({"tol": "small"}, r"tol must be a finite number > 0, got 'small'"),
        ({"aim": -1.0}, r"aim must be a finite number > 0, got -1\.0"),
        ({"max_iter": 0}, r"max_iter must be an int >= 1; got 0"),
        ({"max_iter": 2.5}, r"max_iter must be an int >= 1; got 2\.5"),
        ({"start": ["a"]}, r"start must hold \d+ finite weights >= 0.*got \['a'\]"),
        ({"start": [1.0]}, r"start must hold \d+ finite weights >= 0.*got \[1.0\]"),
    ],
)
def test_bad_arguments_are_named(small_problem, arguments, message):
    with pytest.raises(ValueError, match=message):
        solve(small_problem(1e-2), Simplex(), **arguments)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("simplex", r"weights must be a set such as Simplex\(\); got 'simplex'"),
        (Simplex, r"weights must be a set such as Simplex\(\); got <class"),
        (None, "weights must be a set"),
    ],
)
def test_what_is_no_problem_is_named(small_problem, weights, message):
    criterion = small_problem(1e-2)
    with pytest.raises(TypeError, match=message):
        solve(criterion, weights)
    with pytest.raises(TypeError, match=message):
        certify(criterion, weights, np.ones(1), None)
    for wrong in (criterion.bank, Simplex(), type(criterion)):
        with pytest.raises(TypeError, match=r"criterion must be a .* Fisher\(bank, H"):
            solve(wrong, Simplex())
    with pytest.raises(TypeError, match="callback must be a function, got 3"):
        solve(criterion, Simplex(), callback=3)


def test_the_target_joins_the_kernels():
    torch = pytest.importorskip("torch")
    K, H = np.diag([1.0, 2.0, 3.0, 4.0])[None], np.array([[1.0], [-1.0], [1.0], [-1.0]])
    for kernels, target in ((torch.asarray(K), H), (K, torch.asarray(H))):
        problem = Fisher(DenseBank.from_kernels(kernels), target, 1.0)
        expected = Fisher(DenseBank.from_kernels(K), H, 1.0).evaluate(np.ones(1)).value
        assert problem.evaluate(np.ones(1)).value == pytest.approx(expected, rel=1e-12)
        assert type(problem.target) is type(problem.bank.like)


def test_kernels_and_targets_that_make_no_sense_are_named():
    K, H = np.stack([np.eye(4)] * 2), np.array([[1.0], [-1.0], [1.0], [-1.0]])
    for wrong in (H.astype(str), H.astype(object), H + 0j, None):
        with pytest.raises(ValueError, match="target must hold real numbers; got"):
            Fisher(DenseBank.from_kernels(K), wrong, 1.0)
        with pytest.raises(ValueError, match="signs must hold real numbers; got"):
            Margin(DenseBank.from_kernels(K), wrong)
    assert Fisher(DenseBank.from_kernels(K), H.tolist(), 1.0).target.shape == H.shape
    for value in (np.nan, np.inf):
        spoilt = K.copy()
        spoilt[1, 2, 2] = value
        with pytest.raises(ValueError, match="kernel 1 holds NaN, infinity, or"):
            DenseBank.from_kernels(spoilt)
    with pytest.raises(ValueError, match="2 kernels need as many names; got 1"):
        DenseBank.from_kernels(K, ["one"])
    with pytest.raises(ValueError, match="has no kernels"):
        solve(Fisher(DenseBank.from_kernels(K[:0]), H, 1.0), Simplex())
    with pytest.raises(ValueError, match=r"alpha=0\.5 is .* negative eigenvalues"):
        solve(Fisher(DenseBank(-K), H, 0.5), Simplex())


def test_float32_goes_on_to_its_aim(small_problem):
    """On a ball the gap is the square of the error of the weights: 1e-4 means 1e-2."""
    exact = small_problem(1e-2, p=5)
    stack = exact.bank.stack.astype(np.float32)
    single = Fisher(DenseBank(stack), exact.target, exact.alpha)
    best = solve(exact, LpBall(2), tol=1e-10)
    loose = solve(single, LpBall(2), tol=1e-4)
    aimed = solve(single, LpBall(2), tol=1e-4, aim=1e-6)
    beyond = solve(single, LpBall(2), tol=1e-4, aim=1e-30)  # ends where rounding does
    # measured: 0.0019 and 7e-8
    assert np.max(np.abs(loose.weights - best.weights)) > 5e-4
    assert np.max(np.abs(aimed.weights - best.weights)) < 1e-5
    assert aimed.n_iter == loose.n_iter + 1 and beyond.n_iter <= aimed.n_iter + 3
    assert beyond.converged and beyond.gap <= aimed.gap
    on_simplex = [solve(single, Simplex(), tol=1e-4, aim=aim) for aim in (None, 1e-9)]
    assert on_simplex[0].n_iter == on_simplex[1].n_iter
