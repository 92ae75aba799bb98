"""The common parts of all interior point methods, on problems with known solutions."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest

from kernelweave._array import FactorizationError
from kernelweave.inner.interior_point import BorderedSystem, largest_step, predict


@pytest.mark.parametrize(
    ("x", "step", "expected"),
    [
        ([1.0, 2.0], [-0.5, -4.0], 0.5),
        ([1.0, 2.0], [0.5, 0.0], np.inf),
        ([1.0], [-1e-320], np.inf),  # the quotient overflows
        ([0.0], [0.0], np.inf),
        ([], [], np.inf),
    ],
)
def test_largest_step(x, step, expected):
    assert largest_step(np.array(x), np.array(step)) == expected


@pytest.mark.parametrize("smallest", [1e-1, 1e-150])
def test_bordered_system_satisfies_its_equations(rng, smallest):
    """Near the central path, where ``v z`` is about mu however small v is."""
    m = 6
    root = rng.normal(size=(m, m))
    hessian, v = root @ root.T, rng.uniform(0.1, 1, m)
    v[0] = smallest
    z = rng.uniform(0.1, 0.3, m) / v
    force, equal = rng.normal(size=m) / v, rng.normal(size=(2, m))
    missing = rng.normal(size=2)
    dv, dnu = BorderedSystem(hessian, v, z, equal).solve(force, missing)
    np.testing.assert_allclose(equal @ dv, missing, atol=1e-11)
    left = v * (hessian @ dv + equal.T @ dnu - force) + z * dv
    np.testing.assert_allclose(left, 0, atol=1e-10)


def test_equal_kernels_share_a_step():
    """The system is singular: a ridge makes it solvable."""
    system = BorderedSystem(
        np.ones((2, 2)), np.full(2, 0.5), np.zeros(2), np.ones((1, 2))
    )
    dv, _ = system.solve(np.ones(2), np.array([0.2]))
    assert np.sum(dv) == pytest.approx(0.2, rel=1e-9)
    # measured: 0.001 here, up to 0.06 where rounding differs
    np.testing.assert_allclose(dv, [0.1, 0.1], rtol=0.2)


def test_singular_systems_are_refused():
    with pytest.raises(FactorizationError, match="singular"):
        BorderedSystem(np.zeros((2, 2)), np.full(2, 0.5), np.zeros(2), np.ones((1, 2)))


class Pair(NamedTuple):
    x: np.ndarray
    z: np.ndarray


class Cheapest:
    """``min c'x`` over ``x >= 0``: here ``z = c``, and the optimum is x = 0."""

    def __init__(self, c, x):
        self.c, self.x = c, x

    def solve(self, mu, before=None):
        assert before is None or before.z.shape == self.c.shape
        return Pair(mu / self.c - self.x, np.zeros_like(self.c))

    def mu(self, step=None):
        length = 0.0 if step is None else min(1.0, largest_step(self.x, step.x))
        dx = 0.0 if step is None else step.x
        return float(np.mean(self.c * (self.x + length * dx)))


def test_predictor_that_reaches_the_goal_needs_no_centring(rng):
    system = Cheapest(rng.uniform(1, 2, 5), rng.uniform(1, 2, 5))
    for goal in (0.0, 1e-3):
        predictor, mu = predict(system, goal)
        np.testing.assert_allclose(system.x + predictor.x, goal / system.c)
        assert mu == pytest.approx(max(goal, (goal / system.mu()) ** 3 * system.mu()))


class Stuck(Cheapest):
    """A point at which every step reduces mu by the same factor."""

    def __init__(self, share):
        super().__init__(np.ones(2), np.ones(2))
        self.share = share

    def mu(self, step=None):
        return 2.0 if step is None else 2.0 * self.share


@pytest.mark.parametrize(
    ("share", "expected"), [(0.5, 0.25), (1.0, 2.0), (3.0, 2.0), (-1e-17, 0.0)]
)
def test_centring_is_the_cube_of_the_share_and_never_more_than_mu(share, expected):
    assert predict(Stuck(share))[1] == expected
