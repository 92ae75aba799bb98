"""HSIC against its definitions, from kernels and features; the permutation test."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from kernelweave.dependence import hsic, hsic_test
from kernelweave.kernels import RBF, Linear, Polynomial
from kernelweave.kernels.features.maps import exact_map

ESTIMATORS = ["biased", "unbiased"]


def random_kernels(rng, n):
    x, y = rng.normal(size=(2, n, 3))
    return RBF(0.5)(x, x), y @ y.T


def slow_unbiased(K, L):
    """The definition: means over all tuples of distinct indices."""
    n = len(K)
    pairs = list(itertools.permutations(range(n), 2))
    triples = list(itertools.permutations(range(n), 3))
    quads = list(itertools.permutations(range(n), 4))
    first = np.mean([K[i, j] * L[i, j] for i, j in pairs])
    second = np.mean([K[i, j] * L[q, r] for i, j, q, r in quads])
    third = np.mean([K[i, j] * L[i, q] for i, j, q in triples])
    return first + second - 2 * third


def test_biased_is_equation_5(rng):
    K, L = random_kernels(rng, 20)
    P = np.eye(20) - 1 / 20
    expected = np.trace(K @ P @ L @ P) / 19**2
    assert hsic(K, L) == pytest.approx(expected, rel=1e-10)
    assert hsic(K, L) >= 0


def test_unbiased_is_the_mean_over_tuples(rng):
    K, L = random_kernels(rng, 8)
    assert hsic(K, L, "unbiased") == pytest.approx(slow_unbiased(K, L), abs=1e-12)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_invariances(rng, estimator):
    K, L = random_kernels(rng, 15)
    value = hsic(K, L, estimator)
    order = rng.permutation(15)
    shuffled = hsic(K[np.ix_(order, order)], L[np.ix_(order, order)], estimator)
    assert shuffled == pytest.approx(value, rel=1e-10)
    assert hsic(L, K, estimator) == pytest.approx(value, rel=1e-10)
    assert hsic(3 * K, L, estimator) == pytest.approx(3 * value, rel=1e-10)
    # a constant has no effect, however large it is
    assert hsic(K + 1e6, L, estimator) == pytest.approx(value, rel=1e-6)
    assert hsic(np.ones_like(K), L, estimator) == pytest.approx(0, abs=1e-12)


def test_unbiased_has_mean_zero_under_independence(rng):
    values = []
    for _ in range(300):
        x, y = rng.normal(size=(2, 12, 1))
        values.append(hsic(RBF(1.0)(x, x), RBF(1.0)(y, y), "unbiased"))
    error = np.std(values) / np.sqrt(len(values))
    # The mean is zero; 4.5 standard errors are exceeded once in 150,000 draws.
    assert abs(np.mean(values)) < 4.5 * error
    assert min(values) < 0


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_permutation_test_sees_what_is_not_correlated(rng, estimator):
    x = rng.normal(size=(60, 1))
    y = x**2 + 0.3 * rng.normal(size=(60, 1))
    K, L = RBF(1.0)(x, x), RBF(1.0)(y, y)
    result = hsic_test(K, L, estimator=estimator, n_permutations=99, rng=0)
    assert result.p_value == pytest.approx(0.01)
    assert result.statistic == pytest.approx(hsic(K, L, estimator))
    again = hsic_test(K, L, estimator=estimator, n_permutations=99, rng=0)
    np.testing.assert_array_equal(result.null, again.null)
    assert result.null.shape == (99,)


def test_null_is_hsic_of_permuted_rows(rng):
    K, L = random_kernels(rng, 12)
    result = hsic_test(K, L, n_permutations=3, rng=7)
    generator = np.random.default_rng(7)
    for value in result.null:
        order = generator.permutation(12)
        expected = hsic(K, L[np.ix_(order, order)], "unbiased")
        assert value == pytest.approx(expected, abs=1e-12)


def test_level_of_the_permutation_test(rng):
    """Under independence, P(p <= 0.1) = 0.1, and the mean of 1/40, ..., 1 is 0.5125.

    Both are allowed 4.5 standard errors of 150 tests.
    """
    p_values = []
    for seed in range(150):
        K, L = random_kernels(rng, 10)
        p_values.append(hsic_test(K, L, n_permutations=39, rng=seed).p_value)
    rejected = np.mean(np.array(p_values) <= 0.1)
    assert rejected < 0.1 + 4.5 * np.sqrt(0.1 * 0.9 / 150)
    deviation = np.std(np.arange(1, 41) / 40)
    assert abs(np.mean(p_values) - 0.5125) < 4.5 * deviation / np.sqrt(150)


def test_ties_count_against_dependence():
    assert hsic_test(np.eye(6), np.eye(6), n_permutations=19, rng=0).p_value == 1.0


def test_other_libraries(rng, xp_backend):
    K, L = random_kernels(rng, 10)
    there = xp_backend.asarray(K), xp_backend.asarray(L)
    for estimator in ESTIMATORS:
        expected = hsic(K, L, estimator)
        assert hsic(*there, estimator) == pytest.approx(expected, rel=1e-12)
    found = hsic_test(*there, n_permutations=5, rng=1)
    expected = hsic_test(K, L, n_permutations=5, rng=1)
    np.testing.assert_allclose(found.null, expected.null, rtol=1e-10, atol=1e-14)


@pytest.mark.parametrize(
    ("K", "L", "options", "message"),
    [
        (np.eye(4), np.eye(5), {}, "same pairs"),
        (np.ones((4, 3)), np.eye(4), {}, "square kernel"),
        (np.eye(4), np.full((4, 4), np.nan), {}, "L contains NaN"),
        (np.triu(np.ones((4, 4))), np.eye(4), {}, "'K' is not symmetric"),
        (np.eye(4), np.eye(4), {"estimator": "other"}, "'biased' or 'unbiased'"),
        (np.eye(3), np.eye(3), {"estimator": "unbiased"}, "at least 4 pairs"),
        (np.eye(1), np.eye(1), {}, "at least 2 pairs"),
    ],
)
def test_bad_input(K, L, options, message):
    with pytest.raises(ValueError, match=message):
        hsic(K, L, **options)


def test_bad_number_of_permutations():
    with pytest.raises(ValueError, match="n_permutations must be"):
        hsic_test(np.eye(5), np.eye(5), n_permutations=0)


# ----------------------------------------------------------------------- features


def draw_features(rng, n=40):
    Z = rng.normal(size=(n, 3))
    return Z, np.eye(3)[np.argmax(Z + rng.normal(size=Z.shape), axis=1)]


def portions(Z, Y, size):
    for start in range(0, len(Z), size):
        yield Z[start : start + size], Y[start : start + size]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("size", [1, 7, 40])
def test_features_give_the_same_as_their_kernels(estimator, size, rng):
    Z, Y = draw_features(rng)
    expected = hsic(Z @ Z.T, Y @ Y.T, estimator)
    assert hsic(Z, Y, estimator, features=True) == pytest.approx(expected, rel=1e-10)
    found = hsic(portions(Z, Y, size), estimator=estimator, features=True)
    assert found == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("kernel", [Linear(), Polynomial(degree=2)])
def test_exact_features_of_kernels(kernel, estimator, rng):
    X, Y = draw_features(rng)
    kernel = kernel.resolve(X)
    features = exact_map(kernel, X).transform(X)
    expected = hsic(kernel(X, X), Y @ Y.T, estimator)
    found = hsic(features, Y, estimator, features=True)
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_moving_the_features_changes_nothing(estimator, rng):
    Z, Y = draw_features(rng)
    expected = hsic(Z, Y, estimator, features=True)
    moved = hsic(Z + 1e6, Y - 1e5, estimator, features=True)
    assert moved == pytest.approx(expected, rel=1e-6)


def test_features_in_other_libraries(rng, xp_backend):
    Z, Y = draw_features(rng)
    there = xp_backend.asarray(Z), xp_backend.asarray(Y)
    for estimator in ESTIMATORS:
        found = hsic(*there, estimator, features=True)
        assert found == pytest.approx(hsic(Z, Y, estimator, features=True), rel=1e-10)


def test_bad_features(rng):
    Z, Y = draw_features(rng)
    hole = Z.copy()
    hole[30, 1] = np.nan
    for arguments, message in (
        ((Z,), "got ndarray and no L"),
        ((portions(Z, Y, 10), Y), "pairs .* alone; got generator and ndarray"),
        ((Z, Y[:-1]), "as many rows"),
        ((Z[:, 0], Y), "K must have two axes"),
        ((portions(hole, Y, 20),), "NaN or infinite values in portion 1"),
        ((iter([(Z, Y), (Z[:, :2], Y)]),), "portion 1 must have"),
        ((iter([]),), "iterator is empty"),
        ((Z, Y, "other"), "estimator must be"),
        ((Z[:3], Y[:3], "unbiased"), "at least 4 pairs"),
    ):
        with pytest.raises(ValueError, match=message):
            hsic(*arguments, features=True)
    with pytest.raises(TypeError, match="portion 0 is ndarray"):
        hsic(iter([Z]), features=True)
    with pytest.raises(ValueError, match=r"generator and no L.* features=True"):
        hsic(portions(Z, Y, 10))
