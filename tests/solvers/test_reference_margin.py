"""The margin programs through cvxpy: oracles that share no code with the solvers."""

from __future__ import annotations

import numpy as np
import pytest

from estimators import in_turn
from kernelweave.criteria.margin import Margin
from kernelweave.kernels import DenseBank
from kernelweave.solvers import solve
from kernelweave.weights import LpBall, Simplex, Uniform

KINDS = ["hard", "l1", "l2", "learn"]
every_kind = pytest.mark.parametrize("kind", KINDS)
every_method = pytest.mark.parametrize("method", ["qcqp", "sdp"])


@pytest.fixture(autouse=True)
def cvxpy():
    return pytest.importorskip("cvxpy")


@in_turn(
    kind=KINDS * 2,
    method=["qcqp"] * 4 + ["sdp"] * 4,
    weight_set=[Simplex(), LpBall(1.5), Uniform()],
)
def test_the_oracle_agrees_with_the_interior_point(margins, kind, method, weight_set):
    criterion, _ = margins.reference(40, 1, 3, kind)
    expected = solve(criterion, weight_set, tol=1e-8)
    solution = solve(criterion, weight_set, method, tol=1e-5)
    assert solution.converged
    assert solution.value == pytest.approx(expected.value, rel=1e-5)


@every_method
def test_several_columns(margins, method):
    X, y = margins.data(24, 0)
    signs = np.column_stack([y, np.where(X[:, 2] > 0, 1.0, -1.0)])
    signs[3:5, 0] = 0.0
    criterion = Margin(DenseBank(margins.kernels(X)), signs, "l1", 0.5)
    expected = solve(criterion, Simplex(), tol=1e-8)
    solution = solve(criterion, Simplex(), method, tol=1e-5)
    assert solution.value == pytest.approx(expected.value, rel=1e-5)


@every_method
def test_no_margin_is_reported(margins, method):
    X, y = margins.data(12, 0)
    X[1], y[:2] = X[0], [1.0, -1.0]
    criterion = Margin(DenseBank(margins.kernels(X)), y[:, None], "hard")
    solution = solve(criterion, Simplex(), method)
    assert solution.status.startswith("infeasible")
    assert not solution.converged and np.isinf(solution.value)
