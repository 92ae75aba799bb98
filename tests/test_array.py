"""Factorisations and small helpers on every array library."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import linalg
from scipy.spatial.distance import cdist

from estimators import in_turn
from kernelweave import _array
from kernelweave._array import FactorizationError, to_numpy

SIZES = (1, 2, 7, 40)
DTYPES = pytest.mark.parametrize("dtype", ["float64", "float32"])


def positive_definite(rng, n):
    A = rng.normal(size=(n, n + 2))
    return A @ A.T + np.eye(n)


def tolerance(dtype):
    return 1e-10 if dtype == "float64" else 2e-5  # measured: up to 4e-6


@DTYPES
@pytest.mark.parametrize("overwrite", [False, True])
def test_cholesky(dtype, overwrite, rng, xp_backend):
    for n in SIZES:
        A = positive_definite(rng, n)
        given = xp_backend.asarray(A.copy(), dtype)
        factor = _array.cholesky(given, overwrite=overwrite)
        assert factor.dtype == given.dtype
        lower = np.tril(to_numpy(factor))
        assert_allclose(
            lower, np.linalg.cholesky(A), rtol=tolerance(dtype), atol=tolerance(dtype)
        )
        if not overwrite:
            assert_allclose(to_numpy(given), A, rtol=1e-6)


def indefinite(n):
    A = np.eye(n)
    A[-1, -1] = -1.0
    return A


@DTYPES
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(indefinite, id="indefinite"),
        pytest.param(lambda n: -np.eye(n), id="negative"),
        pytest.param(lambda n: np.zeros((n, n)), id="zero"),
        pytest.param(lambda n: np.full((n, n), np.nan), id="nan"),
    ],
)
def test_cholesky_says_when_it_fails(dtype, make, xp_backend):
    for n in SIZES:
        with pytest.raises(FactorizationError):
            _array.cholesky(xp_backend.asarray(make(n), dtype))


@DTYPES
@pytest.mark.parametrize("order", ["C", "F"])
def test_robust_cholesky_takes_the_first_share_that_works(
    dtype, order, rng, xp_backend
):
    """Eigenvalues 1 and -0.05: a share of 0.01 fails; 0.1 or more succeeds."""
    basis, _ = np.linalg.qr(rng.normal(size=(5, 5)))
    A = np.array((basis * [1.0, 1.0, 1.0, 1.0, -0.05]) @ basis.T, order=order)
    given = xp_backend.asarray(A, dtype)
    ones = xp_backend.asarray(np.ones(5), dtype)
    for unit, diagonal, wanted in ((1.0, 0.0, 0.1), (ones, 0.06 * ones, 0.0)):
        factor, share = _array.robust_cholesky(given, (0, 0.01, 0.1, 1), unit, diagonal)
        L = np.tril(to_numpy(factor))
        raised = A + (wanted + (0.06 if wanted == 0 else 0.0)) * np.eye(5)
        assert share == wanted
        assert_allclose(L @ L.T, raised, atol=tolerance(dtype))
        assert_allclose(to_numpy(given), A, atol=1e-6)
    with pytest.raises(FactorizationError):
        _array.robust_cholesky(given, (0.0, 0.01))


@DTYPES
@in_turn(
    n=[1, 2, 7, 40] * 2,
    k=[1, 1, 1, 1, 3, 3, 3, 3],
    overwrite=[False, True, True],
)
def test_solve_triangular(n, dtype, k, overwrite, rng, xp_backend):
    A, b = positive_definite(rng, n), rng.normal(size=(n, k))
    factor = _array.cholesky(xp_backend.asarray(A.copy(), dtype), overwrite=overwrite)
    L = np.linalg.cholesky(A)
    right = xp_backend.asarray(b, dtype)
    rtol = tolerance(dtype)
    found = _array.solve_triangular(factor, right)
    assert_allclose(
        to_numpy(found), linalg.solve_triangular(L, b, lower=True), rtol=rtol, atol=rtol
    )
    found = _array.solve_triangular(factor, right, transpose=True)
    wanted = linalg.solve_triangular(L, b, lower=True, trans=1)
    assert_allclose(to_numpy(found), wanted, rtol=rtol, atol=rtol)
    assert_allclose(to_numpy(right), b, rtol=1e-6)


@DTYPES
@in_turn(n=SIZES, overwrite=[False, True, True, False])
def test_lower_inverse(n, dtype, overwrite, rng, xp_backend):
    A = positive_definite(rng, n)
    factor = _array.cholesky(xp_backend.asarray(A.copy(), dtype), overwrite=overwrite)
    inverse = to_numpy(_array.lower_inverse(factor))
    assert_allclose(np.triu(inverse, 1), 0.0, atol=1e-6)
    wanted = np.linalg.inv(A)
    rtol = tolerance(dtype)
    assert_allclose(inverse.T @ inverse, wanted, rtol=rtol, atol=rtol)
    whole = to_numpy(_array.inverse_factored(factor))
    assert_allclose(whole, wanted, rtol=rtol, atol=rtol)


@DTYPES
@pytest.mark.parametrize("n", [3, 7, 20])
def test_large_matrices_are_factored_in_place(n, dtype, rng, xp_backend):
    """Blocks of 3: every number of blocks, with and without a remainder."""
    A, b, rtol = positive_definite(rng, n), rng.normal(size=(n, 4)), tolerance(dtype)
    unread = np.triu(np.full((n, n), 9.0), 1)
    if xp_backend.name == "numpy":
        unread = unread.T
    if xp_backend.name not in ("numpy", "torch"):  # others read both triangles
        unread = 0.0
    given = xp_backend.asarray(A + unread, dtype)
    factor = _array.cholesky(given, overwrite=True, block=3)
    L = np.tril(to_numpy(factor))
    assert_allclose(L @ L.T, A, rtol=rtol, atol=rtol)
    if xp_backend.name == "torch" and n > 3:
        assert factor is given
    if xp_backend.name == "numpy" and n > 3:
        assert np.shares_memory(factor, given)
    right = xp_backend.asarray(b, dtype)
    wanted = np.linalg.solve(A, b)
    found = _array.solve_factored(factor, right, block=3)
    assert_allclose(to_numpy(found), wanted, rtol=rtol, atol=rtol)
    assert_allclose(to_numpy(right), b, rtol=1e-6)
    diagonal = _array.inverse_diagonal(factor, block=3)
    assert_allclose(to_numpy(diagonal), np.diag(np.linalg.inv(A)), rtol=rtol)
    A[n - 1, n - 1] = -1.0
    with pytest.raises(FactorizationError):
        _array.cholesky(xp_backend.asarray(A, dtype), overwrite=True, block=3)


def test_lapack_factors_only_the_blocks_of_large_matrices(rng, monkeypatch):
    """With 15,000 rows or more, OpenBLAS's own factorisation may end the program."""
    sizes, get = [], linalg.get_lapack_funcs

    def noted(names, arrays):
        sizes.append(len(arrays[0]))
        return get(names, arrays)

    monkeypatch.setattr(_array.linalg, "get_lapack_funcs", noted)
    _array.cholesky(positive_definite(rng, 20), block=3)
    assert max(sizes) == 3


def test_blocks_lose_no_digits_of_float32(rng, xp_backend):
    """Multiplied by inverses of its corners, this matrix is no longer positive."""
    x = np.sort(rng.normal(size=(300, 2)), axis=0)
    gram = np.exp(-cdist(x, x, "sqeuclidean") / 2.0) + 1e-5 * np.eye(300)
    factor = _array.cholesky(xp_backend.asarray(gram, "float32"), block=64)
    L = np.tril(to_numpy(factor).astype(np.float64))
    assert_allclose(L @ L.T, gram, atol=4e-6)


@pytest.mark.parametrize("n", SIZES)
@DTYPES
def test_eigh(n, dtype, rng, xp_backend):
    A = positive_definite(rng, n) - 2 * np.eye(n)
    values, vectors = _array.eigh(xp_backend.asarray(A.copy(), dtype))
    values, vectors = to_numpy(values), to_numpy(vectors)
    assert np.all(np.diff(values) >= 0)
    size = np.abs(values).max()
    assert_allclose(values, np.linalg.eigvalsh(A), atol=tolerance(dtype) * size)
    assert_allclose(vectors * values @ vectors.T, A, atol=tolerance(dtype) * size)
    assert_allclose(vectors.T @ vectors, np.eye(n), atol=1e-4)


@pytest.mark.parametrize("rank", [0, 1, 4, 7])
def test_psd_factor_has_as_many_columns_as_the_rank(rank, rng):
    A = rng.normal(size=(7, rank))
    F = _array.psd_factor(A @ A.T, 1e-13)
    assert F.shape == (7, rank)
    assert_allclose(F @ F.T, A @ A.T, atol=1e-12)


def test_psd_factor_drops_negative_eigenvalues():
    F = _array.psd_factor(np.diag([4.0, -1.0]))
    assert_allclose(np.abs(F), [[2.0], [0.0]])


@pytest.mark.parametrize("n", SIZES)
@DTYPES
def test_add_to_diagonal(n, dtype, rng, xp_backend):
    A = rng.normal(size=(n, n)).astype(dtype)
    given = xp_backend.asarray(A.copy(), dtype)
    assert _array.add_to_diagonal(given, 0.5) is None
    assert_allclose(to_numpy(given), A + 0.5 * np.eye(n, dtype=dtype), rtol=1e-6)


def test_moves_between_libraries(xp_backend, rng):
    values = rng.normal(size=(3, 2))
    there = xp_backend.asarray(values, "float32")
    back = to_numpy(there)
    assert type(back) is np.ndarray and back.dtype == np.float32
    again = _array.from_numpy(values, there)
    assert again.dtype == there.dtype and _array.same_home(again, there)
    wide = _array.from_numpy(values, there, dtype=xp_backend.xp.float64)
    assert np.array_equal(to_numpy(wide), values)
    assert _array.namespace(there, 3.0, None) is _array.namespace(there)
    assert _array.is_array(there) and not _array.is_array([1.0])
    assert _array.eps(there) == np.finfo(np.float32).eps
    assert _array.as_float(there, there.dtype) is there or np.shares_memory(
        to_numpy(_array.as_float(there, there.dtype)), to_numpy(there)
    )


def test_second_device():
    strict = pytest.importorskip("array_api_strict")
    here = strict.asarray([1.0, 2.0])
    there = strict.asarray([1.0, 2.0], device=strict.Device("device1"))
    assert not _array.same_home(here, there)
    assert to_numpy(there).tolist() == [1.0, 2.0]
    assert _array.from_numpy(np.ones(2), there).device == there.device


def test_numbers_that_numpy_lacks_are_widened():
    torch = pytest.importorskip("torch")
    found = to_numpy(torch.tensor([1.5, 2.0], dtype=torch.bfloat16))
    assert found.dtype == np.float32 and found.tolist() == [1.5, 2.0]


def test_libraries_are_told_apart():
    torch = pytest.importorskip("torch")
    assert not _array.same_home(torch.ones(2), np.ones(2))
    assert _array.is_numpy(np.ones(2)) and not _array.is_numpy(torch.ones(2))
    with pytest.raises(TypeError):
        _array.namespace(torch.ones(2), np.ones(2))
