"""Label kernels: factors, ranks, and invalid input."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import linalg

from kernelweave.fits.subspace import (
    _root,
    column_signs,
    label_factor,
    target_factor,
)


@pytest.fixture
def labels(rng):
    """Unbalanced codes of four classes, each of which occurs."""
    return np.concatenate([np.arange(4), rng.integers(0, 4, 26)])


def indicator(codes):
    return np.eye(codes.max() + 1)[codes]


def centred(matrix):
    P = np.eye(len(matrix)) - 1 / len(matrix)
    return P @ matrix @ P


@pytest.mark.parametrize("kernel", ["normalized", "indicator", "matrix"])
def test_factor_is_that_of_the_centred_kernel(labels, rng, kernel):
    Y = indicator(labels)
    if kernel == "matrix":
        root = rng.normal(size=(4, 4))
        kernel = root @ root.T
        H = Y @ kernel @ Y.T
    elif kernel == "indicator":
        H = Y @ Y.T
    else:
        H = Y @ np.linalg.inv(Y.T @ Y) @ Y.T
    factor = label_factor(labels, 4, kernel)
    np.testing.assert_allclose(factor @ factor.T, centred(H), atol=1e-12)
    np.testing.assert_allclose(factor.sum(axis=0), 0, atol=1e-12)


def test_the_empty_direction_is_taken_out(labels):
    for kernel in ("normalized", "indicator"):
        factor = label_factor(labels, 4, kernel)
        assert factor.shape == (30, 3)
        assert np.linalg.matrix_rank(factor) == 3
    identity = label_factor(labels, 4, np.eye(4))
    other = label_factor(labels, 4, "indicator")
    np.testing.assert_allclose(identity @ identity.T, other @ other.T, atol=1e-12)


def test_two_classes_have_one_direction(rng):
    codes = np.array([0] * 7 + [1] * 4)
    one, other = (label_factor(codes, 2, k) for k in ("normalized", "indicator"))
    np.testing.assert_allclose(one / one[0], other / other[0], rtol=1e-12)
    assert np.all(one[codes == 1] > 0) and np.all(other[codes == 1] > 0)


def test_hierarchy_of_classes(labels):
    """Classes that the label kernel treats alike have the same rows."""
    same = np.kron(np.eye(2), np.ones((2, 2)))  # {0, 1} and {2, 3}
    factor = label_factor(labels, 4, same)
    for pair in ((0, 1), (2, 3)):
        a, b = (factor[labels == c][0] for c in pair)
        np.testing.assert_allclose(a, b, atol=1e-12)


def test_as_few_columns_as_the_rank(labels, rng):
    root = rng.normal(size=(4, 2))
    Y, S = indicator(labels), root @ root.T
    factor = label_factor(labels, 4, S)
    assert factor.shape == (30, 2)
    np.testing.assert_allclose(factor @ factor.T, centred(Y @ S @ Y.T), atol=1e-12)


def test_the_root_of_full_rank_is_symmetric(rng):
    """It has no signs to choose, and is continuous in the label kernel."""
    root = rng.normal(size=(4, 6))
    S = root @ root.T
    np.testing.assert_allclose(_root(S), linalg.sqrtm(S), atol=1e-10)


def test_signs_do_not_hang_on_rounding():
    """Among entries that tie up to rounding, the first decides."""
    columns = np.array([[1.0, -1.0, 0.2], [-1.0, 1.0, -0.7]])
    nudged = columns * (1.0 + 1e-12 * np.array([[-1.0, 1.0, 0.0], [1.0, -1.0, 0.0]]))
    for some in (columns, nudged):
        np.testing.assert_array_equal(column_signs(some), [1.0, -1.0, -1.0])


def test_numbers(rng):
    y = rng.normal(size=(20, 3)) * [1, 1e6, 1] + 5
    y[:, 2] = 7.0
    factor = target_factor(y)
    assert factor.shape == (20, 2)
    np.testing.assert_allclose(np.linalg.norm(factor, axis=0), 1)
    np.testing.assert_allclose(factor.sum(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(target_factor(y[:, 0]), factor[:, :1], rtol=1e-12)


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        ("other", "'normalized', 'indicator' or a matrix"),
        (np.eye(3), r"must have the shape \(4, 4\)"),
        (np.diag([1.0, 1.0, 1.0, -1.0]), "not positive semidefinite"),
        (np.triu(np.ones((4, 4))), "not symmetric"),
        (np.full((4, 4), np.nan), "NaN"),
        (np.ones((4, 4)), "treats all classes alike"),
        (np.zeros((4, 4)), "treats all classes alike"),
        (1j * np.eye(4), "real numbers"),
        (np.full((4, 4), "a"), "real numbers"),
    ],
)
def test_bad_kernels(labels, kernel, message):
    with pytest.raises(ValueError, match=message):
        label_factor(labels, 4, kernel)


def test_bad_numbers():
    with pytest.raises(ValueError, match="nothing to depend on"):
        target_factor(np.full(5, 0.1))
    with pytest.raises(ValueError, match="NaN"):
        target_factor(np.array([1.0, np.nan]))
    with pytest.raises(ValueError, match=r"row 0, .* Divide y by a constant\.$"):
        target_factor(np.array([1e305, 1.0]))
    for size in (1e300, 1e-200):  # whose squares leave the range of float64
        factor = target_factor(size * np.array([1.0, -1.0]))
        np.testing.assert_allclose(factor[:, 0], [0.5**0.5, -(0.5**0.5)])
