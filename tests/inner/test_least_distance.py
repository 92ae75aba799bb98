"""Least distances satisfy their optimality conditions; contradictions are noticed."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

import kernelweave.inner.least_distance as module
from kernelweave._array import FactorizationError
from kernelweave.inner.least_distance import cone_multipliers, least_distance


def test_least_distance_meets_the_optimality_conditions(rng):
    rows = rng.normal(size=(8, 5))
    right = rows @ rng.normal(size=5) - rng.uniform(size=8)  # so some point is feasible
    multipliers, point = least_distance(rows, right)
    slack = rows @ point - right
    assert np.min(slack) >= -1e-12 and np.min(multipliers) >= 0.0
    assert_allclose(multipliers * slack, 0.0, atol=1e-12)
    scale = float(point @ point) / float(multipliers @ right)
    assert_allclose(scale * multipliers @ rows, point, atol=1e-12)


def test_contradictions_have_no_point():
    multipliers, point = least_distance(np.array([[1.0], [-1.0]]), np.ones(2))
    assert point is None
    assert_allclose(multipliers, 0.5)


def test_cone_multipliers_leave_a_residual_outside_the_cone(rng):
    rows, goal = rng.normal(size=(6, 4)), rng.normal(size=4)
    multipliers = cone_multipliers(rows, goal)
    residual = goal - multipliers @ rows
    assert np.min(multipliers) >= 0.0 and np.max(rows @ residual) <= 1e-12
    assert_allclose(multipliers * (rows @ residual), 0.0, atol=1e-12)


def test_a_method_that_does_not_end_says_so(monkeypatch):
    def endless(*args, **options):
        raise RuntimeError("Maximum number of iterations reached.")

    monkeypatch.setattr(module, "nnls", endless)
    with pytest.raises(FactorizationError, match="non-negative least squares"):
        least_distance(np.eye(2), np.ones(2))
