"""Quadratic programs over the simplex: optimality conditions, and few positives."""

import numpy as np
import pytest

from kernelweave.inner.interior_point import minimize_on_simplex


@pytest.mark.parametrize("rank", [2, 12])
@pytest.mark.parametrize("total", [1.0, 0.3])
def test_the_result_satisfies_the_conditions_of_optimality(rank, total, rng):
    m = 12
    root = rng.normal(size=(m, rank))
    hessian, slope = root @ root.T, rng.normal(size=m)
    u = minimize_on_simplex(hessian, slope, total)
    assert np.min(u) >= 0 and np.sum(u) == pytest.approx(total, rel=1e-12)
    reduced = hessian @ u + slope
    level = float(reduced @ u) / total  # the slope common to all positive entries
    assert np.min(reduced) >= level - 1e-9
    np.testing.assert_allclose(reduced[u > 0], level, atol=1e-9)
    assert np.count_nonzero(u) <= rank + 1  # a vertex of the face of minimisers


def test_a_coordinate_joins_only_if_it_gains_more_than_the_tolerance():
    hessian, slope = np.eye(2), np.array([0.0, 0.999])
    first, second = minimize_on_simplex(hessian, slope, tol=0.01)
    assert first == pytest.approx(1.0) and second == 0.0
    assert minimize_on_simplex(hessian, slope)[1] == pytest.approx(0.0005)


def test_equal_kernels_share_nothing():
    u = minimize_on_simplex(np.ones((4, 4)), np.zeros(4))
    assert np.count_nonzero(u) == 1
