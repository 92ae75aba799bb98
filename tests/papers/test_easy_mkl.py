"""EasyMKL against its definition, solved by a general solver."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave.kernels import DenseBank
from reproduce.reference.easy_mkl import easy_mkl_weights


def by_definition(stack, y, lam):
    """The quadratic program as printed."""
    cp = pytest.importorskip("cvxpy")
    gamma = cp.Variable(len(y), nonneg=True)
    total = (1 - lam) * np.sum(stack, axis=0) * np.outer(y, y) + lam * np.eye(len(y))
    root = np.linalg.cholesky(total + 1e-13 * np.eye(len(y))).T
    sums = [cp.sum(gamma[y > 0]) == 1, cp.sum(gamma[y < 0]) == 1]
    cp.Problem(cp.Minimize(cp.sum_squares(root @ gamma)), sums).solve(
        solver="CLARABEL", tol_gap_rel=1e-11, tol_gap_abs=1e-11, tol_feas=1e-11
    )
    signed = gamma.value * y
    scores = np.einsum("i,pij,j->p", signed, stack, signed)
    return scores / np.sum(scores)


@pytest.mark.parametrize("lam", [0.0, 0.02, 0.1, 0.5, 0.9, 1.0])
def test_it_is_the_definition(margin_data, global_random_seed, lam):
    X, y = margin_data.rows(40, global_random_seed)
    stack = margin_data.three(X)
    weights = easy_mkl_weights(DenseBank(stack), y, lam)
    assert np.sum(weights) == pytest.approx(1.0)
    np.testing.assert_allclose(weights, by_definition(stack, y, lam), atol=2e-5)


@pytest.mark.parametrize(
    "lam, expected",
    [
        (0.0, [0.254122, 0.705870, 0.040008]),
        (0.02, [0.256984, 0.702192, 0.040824]),
        (0.1, [0.268531, 0.687124, 0.044345]),
        (0.5, [0.352732, 0.566201, 0.081068]),
        (0.9, [0.425984, 0.288783, 0.285232]),
        (1.0, [0.323010, 0.131088, 0.545903]),
    ],
)
def test_values_of_the_authors_software(margin_data, lam, expected):
    """MKLpy 0.6 on the same kernels; its solver is less accurate at lam = 0."""
    X, y = margin_data.rows(80, 3)
    weights = easy_mkl_weights(DenseBank(margin_data.three(X)), y, lam)
    np.testing.assert_allclose(weights, expected, atol=1e-5 if lam == 0 else 2e-6)


def test_rows_without_a_label_take_no_part(margin_data):
    X, y = margin_data.rows(40, 0)
    stack = margin_data.three(X)
    known = np.where(np.arange(40) < 30, y, 0.0)
    for lam in (0.1, 1.0):
        part = easy_mkl_weights(DenseBank(stack[:, :30, :30]), y[:30], lam)
        whole = easy_mkl_weights(DenseBank(stack), known, lam)
        np.testing.assert_allclose(whole, part, atol=1e-8)


def test_the_classes_are_interchangeable(margin_data):
    X, y = margin_data.rows(40, 1)
    bank = DenseBank(margin_data.three(X))
    np.testing.assert_allclose(
        easy_mkl_weights(bank, y), easy_mkl_weights(bank, -y), atol=1e-8
    )


def test_kernels_of_zeros_get_uniform_weights():
    y = np.array([1.0, 1.0, -1.0, -1.0])
    np.testing.assert_allclose(
        easy_mkl_weights(DenseBank(np.zeros((2, 4, 4))), y, 1.0), 0.5
    )


BAD = {
    "lam": ({"lam": 1.5}, "between 0 and 1, got 1.5"),
    "shape": ({"labels": np.ones(3)}, r"shape \(4,\) with one .* got \(3,\)"),
    "one class": ({"labels": np.ones(4)}, "both classes"),
    "one class, means": ({"labels": np.ones(4), "lam": 1.0}, "both classes"),
}


@pytest.mark.parametrize("arguments, message", BAD.values(), ids=BAD)
def test_bad_input_is_named(arguments, message):
    good = {"bank": DenseBank(np.eye(4)[None]), "labels": np.array([1, 1, -1, -1])}
    with pytest.raises(ValueError, match=message):
        easy_mkl_weights(**{**good, **arguments})
