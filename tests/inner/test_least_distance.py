"""Least distances satisfy their optimality conditions; contradictions are noticed."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import kernelweave.inner.least_distance as module
from kernelweave._array import FactorizationError
from kernelweave.inner.least_distance import cone_multipliers, least_distance


def assert_complementary(multipliers, slack, rows, goal):
    """Both are >= 0 and one of them is 0, up to the rounding of least squares.

    Backward stable least squares solve a problem with rows and goal a few units off:
    that changes ``rows (goal - z'rows)`` by a few units of this size.
    """
    size = np.linalg.norm(rows)
    off = 1e-13 * size * (np.linalg.norm(goal) + size * np.linalg.norm(multipliers))
    assert np.min(multipliers) >= 0.0 and np.min(slack) >= -off
    assert_allclose(multipliers * slack, 0.0, atol=off * np.max(multipliers))


@pytest.mark.parametrize("case", ["any", "the origin is feasible", "nearly parallel"])
def test_least_distance_meets_the_optimality_conditions(case, rng):
    rows = rng.normal(size=(8, 5))
    if case == "nearly parallel":
        rows[1:4] = rows[0] + 1e-4 * rows[1:4]
    feasible = np.zeros(5) if case == "the origin is feasible" else rng.normal(size=5)
    right = rows @ feasible - rng.uniform(size=8)
    multipliers, point = least_distance(rows, right)
    unit = 1.0 - float(multipliers @ right)  # of the multipliers
    stacked, goal = np.column_stack([rows, right]), np.append(np.zeros(5), 1.0)
    assert_complementary(multipliers, unit * (rows @ point - right), stacked, goal)
    assert_allclose(unit * point, multipliers @ rows, rtol=1e-12)
    if np.all(right <= 0.0):  # the origin is feasible
        assert_array_equal(point, 0.0)


def test_contradictions_have_no_point():
    multipliers, point = least_distance(np.array([[1.0], [-1.0]]), np.ones(2))
    assert point is None
    assert_allclose(multipliers, 0.5)


@pytest.mark.parametrize("case", ["any", "nearly parallel"])
def test_cone_multipliers_leave_a_residual_outside_the_cone(case, rng):
    rows, goal = rng.normal(size=(6, 4)), rng.normal(size=4)
    if case == "nearly parallel":
        rows[1:4] = rows[0] + 1e-4 * rows[1:4]
    multipliers = cone_multipliers(rows, goal)
    residual = goal - multipliers @ rows
    assert_complementary(multipliers, -rows @ residual, rows, goal)


def test_a_method_that_does_not_end_says_so(monkeypatch):
    def endless(*args, **options):
        raise RuntimeError("Maximum number of iterations reached.")

    monkeypatch.setattr(module, "nnls", endless)
    with pytest.raises(FactorizationError, match="non-negative least squares"):
        least_distance(np.eye(2), np.ones(2))
