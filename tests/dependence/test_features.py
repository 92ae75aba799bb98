"""HSIC from one pass over features equals HSIC of their kernels."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave.dependence import hsic, hsic_of_features
from kernelweave.kernels import Linear, Polynomial
from kernelweave.kernels.features.maps import exact_map

ESTIMATORS = ["biased", "unbiased"]


def draw(rng, n=40):
    Z = rng.normal(size=(n, 3))
    return Z, np.eye(3)[np.argmax(Z + rng.normal(size=Z.shape), axis=1)]


def portions(Z, Y, size):
    for start in range(0, len(Z), size):
        yield Z[start : start + size], Y[start : start + size]


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("size", [1, 7, 40])
def test_same_as_from_kernels(estimator, size, rng):
    Z, Y = draw(rng)
    expected = hsic(Z @ Z.T, Y @ Y.T, estimator)
    assert hsic_of_features(Z, Y, estimator) == pytest.approx(expected, rel=1e-10)
    found = hsic_of_features(portions(Z, Y, size), estimator=estimator)
    assert found == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("kernel", [Linear(), Polynomial(degree=2)])
def test_exact_features_of_kernels(kernel, estimator, rng):
    X, Y = draw(rng)
    kernel = kernel.resolve(X)
    features = exact_map(kernel, X).transform(X)
    expected = hsic(kernel(X, X), Y @ Y.T, estimator)
    assert hsic_of_features(features, Y, estimator) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_moving_the_features_changes_nothing(estimator, rng):
    Z, Y = draw(rng)
    expected = hsic_of_features(Z, Y, estimator)
    moved = hsic_of_features(Z + 1e6, Y - 1e5, estimator)
    assert moved == pytest.approx(expected, rel=1e-6)


def test_other_array_libraries(rng, xp_backend):
    Z, Y = draw(rng)
    there = xp_backend.asarray(Z), xp_backend.asarray(Y)
    for estimator in ESTIMATORS:
        found = hsic_of_features(*there, estimator)
        assert found == pytest.approx(hsic_of_features(Z, Y, estimator), rel=1e-10)


def test_bad_input(rng):
    Z, Y = draw(rng)
    hole = Z.copy()
    hole[30, 1] = np.nan
    for arguments, message in (
        ((Z,), "got ndarray and no Y"),
        ((portions(Z, Y, 10), Y), "pairs .* alone; got generator and ndarray"),
        ((Z, Y[:-1]), "as many rows"),
        ((Z[:, 0], Y), "Z must have two axes"),
        ((portions(hole, Y, 20),), "NaN or infinite values in portion 1"),
        ((iter([(Z, Y), (Z[:, :2], Y)]),), "portion 1 must have"),
        ((iter([]),), "no portions"),
        ((Z, Y, "other"), "estimator must be"),
        ((Z[:3], Y[:3], "unbiased"), "at least 4 pairs"),
    ):
        with pytest.raises(ValueError, match=message):
            hsic_of_features(*arguments)
    with pytest.raises(TypeError, match="portion 0 is ndarray"):
        hsic_of_features(iter([Z]))
