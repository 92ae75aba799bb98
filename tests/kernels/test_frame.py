"""Origin and unit of columns are removed before products if the kernel ignores them."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import FunctionTransformer

from kernelweave._array import column_means, is_square_safe, to_numpy, units_of
from kernelweave.exceptions import KernelWarning
from kernelweave.kernels import (
    RBF,
    Chi2,
    Cosine,
    KernelMap,
    Laplacian,
    Linear,
    Pipe,
    Polynomial,
    Standardizer,
)
from kernelweave.kernels.functions import Frame, Framed
from kernelweave.kernels.maps.kernel_map import FeatureSource
from kernelweave.kernels.spec import gram_stack, resolve_kernels
from kernelweave.views.columns import View

#: Kernels, and the changes of the columns that do not affect them.
FORGETS = [
    (Linear(), "affine"),
    (RBF(), "affine"),
    (RBF(0.3), None),
    (Laplacian(), "affine"),
    (Laplacian(0.3), None),
    (Chi2("median"), "unit"),
    (Chi2(), None),
    (Polynomial(), "unit"),
    (Polynomial(gamma=0.3), None),
    (Cosine(), None),
]


def dyadic(rng, shape, low=0.0):
    """Multiples of 1/1024: adding 1e9, or 1e3 in float32, is exact."""
    return low + np.round(1024 * np.abs(rng.normal(size=shape))) / 1024


def bank_of(kernel, X):
    source = FeatureSource([View("v", kernel, slice(None))], [X])
    return to_numpy(KernelMap(source).fit().stack)


@pytest.mark.parametrize(("kernel", "forgets"), FORGETS, ids=str)
def test_what_a_kernel_says_it_forgets_it_does(kernel, forgets, rng):
    """Affine maps by powers of two and integers are exact, so tolerances are tight."""
    assert kernel.forgets == forgets
    X = dyadic(rng, (25, 3))
    expected = bank_of(kernel, X)
    if forgets is not None:
        assert_allclose(bank_of(kernel, 8.0 * X), expected, atol=1e-12)
    if forgets == "affine":
        assert_allclose(bank_of(kernel, X + 1000.0), expected, atol=1e-12)
    elif forgets == "unit":
        # measured over 21 seeds: 0.28 or more
        assert np.abs(bank_of(kernel, X + 5.0) - expected).max() > 0.1


@pytest.mark.parametrize(
    "kernel", [kernel for kernel, forgets in FORGETS if forgets], ids=str
)
def test_any_size_gives_the_same_bits(kernel, rng, xp_backend):
    X = xp_backend.asarray(dyadic(rng, (25, 3)))
    expected = bank_of(kernel, X)
    for exponent in (-900, -500, 500, 900):
        assert_allclose(bank_of(kernel, X * 2.0**exponent), expected, atol=1e-14)


@pytest.mark.parametrize(("dtype", "offset"), [("float64", 1e9), ("float32", 1e3)])
@pytest.mark.parametrize("kernel", [Linear(), RBF(0.3), Laplacian()], ids=str)
def test_an_offset_takes_no_digit(kernel, dtype, offset, rng, xp_backend):
    X = dyadic(rng, (25, 3))
    near = bank_of(kernel, xp_backend.asarray(X, dtype))
    far = bank_of(kernel, xp_backend.asarray(X + offset, dtype))
    assert_allclose(far, near, atol=1e-13 if dtype == "float64" else 1e-5)


def test_an_offset_behind_a_transformer_takes_no_digit_either(rng):
    X = dyadic(rng, (25, 3))
    moved = Pipe(FunctionTransformer(lambda X: X + 1e9), Linear())
    assert_allclose(bank_of(moved, X), bank_of(Linear(), X), atol=1e-13)


def test_a_framed_kernel_called_directly_is_what_its_name_says(rng, xp_backend):
    X, Z = dyadic(rng, (9, 3), 100.0), dyadic(rng, (4, 3), 100.0)
    (kernel,) = resolve_kernels("linear", xp_backend.asarray(X), "v")
    assert isinstance(kernel, Framed) and kernel.label == "Linear()"
    here = xp_backend.asarray
    assert_array_equal(to_numpy(kernel(here(Z), here(X))), Z @ X.T)
    assert_array_equal(to_numpy(kernel.gram(here(X))), X @ X.T)
    assert kernel.resolve(here(Z)) is kernel
    (again,) = resolve_kernels(kernel, here(Z), "v")
    assert again is kernel


def test_framed_kernels_share_their_frame_and_survive_pickle(rng):
    X = dyadic(rng, (20, 3))
    kernels = resolve_kernels(["linear", RBF(), Linear()], X * 2.0**700, "v")
    frames = {id(step) for kernel in kernels for step in kernel.steps}
    assert len(frames) == 1
    assert [k.label.split(" in units of ")[1][:3] for k in kernels] == ["2^7"] * 3
    expected = [K.copy() for K in gram_stack(kernels, X * 2.0**700)]
    for again in (pickle.loads(pickle.dumps(kernels)), copy.deepcopy(kernels)):
        for K, L in zip(gram_stack(again, X * 2.0**700), expected, strict=True):
            assert_array_equal(K, L)


def test_standardised_columns_need_no_frame(rng):
    for kernel in resolve_kernels("auto", dyadic(rng, (20, 3), 1e9), "v"):
        assert all(type(step) is Standardizer for step in kernel.steps)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_rounding_does_not_vary(dtype, xp_backend):
    """0.1 + 0.2 and 0.3 differ in the last bit: such a column has no information."""
    X = np.where(np.arange(12)[:, None] % 2, 1 / 3, np.nextafter(1 / 3, 1))
    if dtype == "float32":
        third = np.float32(1 / 3)
        X = np.where(np.arange(12)[:, None] % 2, third, np.nextafter(third, third * 2))
    there = xp_backend.asarray(np.concatenate([X, 7 * X], axis=1), dtype)
    with (
        pytest.warns(KernelWarning, match="constant on the training rows"),
        pytest.raises(ValueError, match="is constant"),
    ):
        bank_of("linear", there)
    # next to a column that varies, it has no effect
    column = np.arange(12.0)[:, None]
    both = xp_backend.asarray(np.concatenate([X, column], axis=1), dtype)
    alone = bank_of("linear", xp_backend.asarray(column, dtype))
    assert_allclose(bank_of("linear", both), alone, atol=1e-5)


# ---- powers of two ----------------------------------------------------------------


@pytest.mark.parametrize("bits", [32, 64])
def test_units_are_powers_of_two_and_one_for_ordinary_numbers(bits):
    largest = float(np.finfo(f"float{bits}").max)
    sizes = np.array([0.0, 1.0, 1e-9, 1e9, largest, 1 / largest, largest**0.6])
    units = units_of(sizes, bits)
    assert units[:4].tolist() == [1.0] * 4
    mantissas, _ = np.frexp(units)
    assert_array_equal(mantissas, 0.5)
    scaled = sizes[1:] / units[1:]
    assert np.all(scaled**2 < largest * 1e-20) and np.all(scaled**2 > 1 / largest)


@pytest.mark.parametrize("scale", [1e-300, 1e-3, 1.0, 1e300, 1e307])
def test_column_means_of_any_size(scale, rng, xp_backend):
    X = rng.uniform(0.5, 1.5, size=(40, 3))
    found = to_numpy(column_means(xp_backend.asarray(X * scale)))
    assert_allclose(found / scale, X.mean(axis=0), rtol=1e-14)


def test_frame_of_one_row_and_of_zeros(xp_backend):
    for X in (np.full((1, 2), 5.0), np.zeros((3, 2))):
        frame = Frame().fit(xp_backend.asarray(X))
        assert_array_equal(to_numpy(frame.transform(xp_backend.asarray(X))), 0.0)
        assert frame.unit_ == 1.0


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e200])
def test_what_cannot_be_squared_is_found(value, xp_backend):
    X = np.ones((4, 3))
    assert is_square_safe(xp_backend.asarray(X))
    X[2, 1] = value
    assert not is_square_safe(xp_backend.asarray(X))
