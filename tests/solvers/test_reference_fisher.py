"""The papers' semidefinite programs: an oracle that shares no code with the solvers."""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import pytest

from estimators import in_turn
from kernelweave.criteria import BlockFisher, WithinFisher
from kernelweave.kernels import DenseBank
from kernelweave.protocols import Method
from kernelweave.solvers import reference as cone
from kernelweave.solvers import solve
from kernelweave.weights import LpBall, Simplex
from reproduce.reference.free_kernel import free_alignment, free_margin


@pytest.fixture
def cvxpy():
    return pytest.importorskip("cvxpy")


@in_turn(  # every set with two problems, every problem with a set or two
    weight_set=[Simplex(), LpBall(1.2), LpBall(2)] * 2,
    penalty=[1e-4, 1e-2, "learn", "learn"],
    k=[1, 3, 1, 3],
)
def test_the_oracle_agrees_with_newton(cvxpy, small_problem, weight_set, penalty, k):
    """Eqs. 16, 34, 40 and 41."""
    criterion = small_problem(penalty, k=k, p=6, step=9)  # 20 rows: it takes n^6
    problem, weights = cone.sdp_problem(criterion, weight_set)
    problem.solve(solver="CLARABEL")
    best = solve(criterion, weight_set, tol=1e-10)
    assert problem.value == pytest.approx(best.value, rel=1e-6)
    at_oracle = weight_set.scale(np.maximum(weights.value, 1e-12))
    value = criterion.evaluate(at_oracle, hessian=False).value
    assert value == pytest.approx(best.value, rel=1e-6)


def test_reference_values_on_thirty_rows(cvxpy, small_problem):
    """Eq. 34, and Eq. 37 which is not an approximation of it."""
    exact = small_problem(1e-2)
    solution = solve(exact, Simplex(), method="sdp", tol=1e-5)
    assert solution.value == pytest.approx(4.834601868, rel=1e-7)
    np.testing.assert_allclose(solution.weights[4:6], [0.0857812, 0.9142188], atol=1e-4)
    block = BlockFisher(exact.bank, exact.target, exact.alpha)
    problem, weights = cone.sdp_problem(block, Simplex())
    problem.solve(solver="CLARABEL")
    assert problem.value == pytest.approx(8.960434920, rel=1e-7)
    np.testing.assert_allclose(weights.value[4:6], [0.25055406, 0.74944594], atol=1e-4)
    solution = solve(block, Simplex(), method="sdp", tol=1e-5)
    assert solution.value == pytest.approx(8.960434920, rel=1e-7)
    assert solution.converged


def test_large_problems_go_to_the_first_order_solver(cvxpy, small_problem):
    pytest.importorskip("scs")
    for penalty, k, solver in ((1e-2, 1, "CLARABEL"), ("learn", 3, "SCS")):
        problem, _ = cone.sdp_problem(small_problem(penalty, k, p=2), Simplex())
        cone.run_solver(problem)
        assert problem.solver_stats.solver_name == solver
        criterion = small_problem(penalty, p=3)  # three blocks of 31 rows
        solution = solve(criterion, Simplex(), method="sdp", tol=1e-5)
        assert solution.converged
        assert solution.n_factorizations == solution.n_iter == 1


def test_an_inaccurate_answer_is_judged_not_hidden(cvxpy, small_problem):
    pytest.importorskip("scs")
    hasty = Method("hasty", partial(cone.sdp, scs_iterations=30), max_iter=2)
    criterion = small_problem(1e-4, p=6)
    solution = solve(criterion, Simplex(), method=hasty)
    best = solve(criterion, Simplex())
    assert not solution.converged
    assert "optimal" not in solution.status
    assert solution.lower_bound <= best.value <= solution.value


@in_turn(
    kind=["total", "total", "total", "total", "within", "within"],
    penalty=[1e-2, 1e-2, "learn", "learn", 0.3, 0.3],
    method=["qcqp", "sdp"],
    weight_set=[Simplex(), LpBall(2), LpBall(2), Simplex()],
)
def test_the_programs_of_the_papers(
    cvxpy, small_problem, method, kind, penalty, weight_set
):
    """Eqs. 9, 34 and 41, and their equivalent forms with quadratic constraints."""
    if kind == "within":
        exact = small_problem(1e-2, p=4, step=9)
        codes = np.arange(exact.bank.n_samples) % 3
        criterion = WithinFisher(exact.bank, exact.target, penalty, codes)
    else:
        criterion = small_problem(penalty, p=4, step=9)
    best = solve(criterion, weight_set, tol=1e-9)
    found = solve(criterion, weight_set, method=method, tol=1e-5)
    assert found.converged and found.method == method
    assert found.value == pytest.approx(best.value, rel=1e-5)


def test_the_block_form_is_no_qcqp(small_problem):
    exact = small_problem(1e-2)
    block = BlockFisher(exact.bank, exact.target, exact.alpha)
    with pytest.raises(
        ValueError, match=r"BlockFisher over .*; it needs 'printed dual"
    ):
        solve(block, Simplex(), method="qcqp")


def test_a_missing_package_is_named(small_problem, monkeypatch):
    monkeypatch.setitem(sys.modules, "cvxpy", None)
    for method in ("sdp", "qcqp"):
        words = rf"method='{method}' needs cvxpy.*kernelweave\[sdp\]"
        with pytest.raises(ImportError, match=words):
            solve(small_problem(1e-2), Simplex(), method=method)
    for program in (free_alignment, free_margin):
        with pytest.raises(ImportError, match=f"^{program.__name__} needs cvxpy"):
            program(np.array([1.0, -1.0]))


def test_arrays_of_other_libraries_are_converted(cvxpy, xp_backend, small_problem):
    criterion = small_problem(1e-2, p=2, step=9)
    there = type(criterion)(
        DenseBank(xp_backend.asarray(criterion.bank.stack)),
        xp_backend.asarray(criterion.target),
        criterion.alpha,
    )
    expected = solve(criterion, Simplex())
    solution = solve(there, Simplex(), method="sdp", tol=1e-5)
    assert solution.value == pytest.approx(expected.value, rel=1e-6)
