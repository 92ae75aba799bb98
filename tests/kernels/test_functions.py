"""Kernel functions: against scikit-learn, across libraries, on awkward data."""

from __future__ import annotations

import copy
import functools
import pickle
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array, issparse
from scipy.spatial.distance import cdist, pdist
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_selection import SelectFromModel, SelectKBest, VarianceThreshold
from sklearn.impute import SimpleImputer
from sklearn.linear_model import Lasso
from sklearn.metrics import pairwise
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    PolynomialFeatures,
    StandardScaler,
)

from estimators import in_turn
from kernelweave._array import CHUNK_ENTRIES, to_numpy
from kernelweave.kernels import base as base_module
from kernelweave.kernels.base import (
    Kernel,
    PairwiseRows,
    base_matrix,
    median_distance,
)
from kernelweave.kernels.functions import (
    RBF,
    CallableKernel,
    Chi2,
    Cosine,
    Frame,
    Framed,
    Laplacian,
    Linear,
    Pipe,
    Polynomial,
    Standardizer,
    needs_targets,
    seen_by,
)
from kernelweave.kernels.spec import (
    AUTO_WIDTHS,
    KERNELS,
    gram_stack,
    resolve_kernels,
)

#: So many rows that an (n, n) matrix takes more than one chunk.
MANY = 1100
assert MANY**2 > CHUNK_ENTRIES


def my_kernel(X, Z):
    return (X @ Z.T) ** 2


#: (kernel with fixed parameters, its counterpart in scikit-learn)
REFERENCES = [
    (Linear(), pairwise.linear_kernel),
    (RBF(gamma=0.3), lambda X, Z: pairwise.rbf_kernel(X, Z, gamma=0.3)),
    (RBF(gamma=0.3, factor=2.0), lambda X, Z: pairwise.rbf_kernel(X, Z, gamma=0.6)),
    (
        Polynomial(degree=4, gamma=0.5, coef0=2.0),
        lambda X, Z: pairwise.polynomial_kernel(X, Z, degree=4, gamma=0.5, coef0=2.0),
    ),
    (Laplacian(gamma=0.2), lambda X, Z: pairwise.laplacian_kernel(X, Z, gamma=0.2)),
    (Chi2(gamma=0.7), lambda X, Z: pairwise.chi2_kernel(X, Z, gamma=0.7)),
    (Cosine(), pairwise.cosine_similarity),
]


def kernel_id(kernel):
    """A name without function addresses, which differ between test processes."""
    return re.sub(r" at 0x\w+", "", str(kernel))


#: Every kernel with its defaults, and kernels that wrap kernels.
KERNEL_OBJECTS = [
    *(make() for make in KERNELS.values()),
    RBF(factor=3.0),
    Chi2(gamma="median"),
    CallableKernel(my_kernel),
    Pipe(Standardizer(), RBF()),
    Pipe(PCA(2), Linear()),
    Pipe(Standardizer(), Pipe(PCA(2), Laplacian())),
]


def by_class(kernel):
    return kernel.label


def rows(n=20, d=4, seed=0):
    return np.random.default_rng(seed).uniform(size=(n, d))


# ---- against scikit-learn ---------------------------------------------------------


@pytest.mark.parametrize(("kernel", "reference"), REFERENCES)
def test_equal_to_scikit_learn(kernel, reference, rng, xp_backend):
    X, Z = rng.uniform(size=(31, 5)), rng.uniform(size=(17, 5))
    here = xp_backend.asarray
    square, cross = kernel(here(X)), kernel(here(X), here(Z))
    assert type(square) is type(here(X))
    np.testing.assert_allclose(to_numpy(square), reference(X, X), rtol=0, atol=1e-12)
    np.testing.assert_allclose(to_numpy(cross), reference(X, Z), rtol=0, atol=1e-12)


@pytest.mark.parametrize("kernel", [kernel for kernel, _ in REFERENCES], ids=by_class)
def test_gradients_agree_with_differences(kernel, rng):
    """Of sums over rows z_j, at rows x that share no coordinate with them."""
    X, Z = rng.uniform(0.1, 1.0, size=(6, 4)), rng.uniform(0.1, 1.0, size=(9, 4))
    coef, kernel = rng.normal(size=(9, 3)), kernel.resolve(Z)
    found, step = kernel.gradient(X, Z, coef), 1e-6
    assert found.shape == (6, 4, 3)
    for j in range(4):
        shift = step * (np.arange(4) == j)
        up, down = kernel.gram(X + shift, Z), kernel.gram(X - shift, Z)
        wanted = (up - down) @ coef / (2.0 * step)
        np.testing.assert_allclose(found[:, j], wanted, rtol=1e-7, atol=1e-8)


def test_every_kernel_with_a_name_states_its_gradient():
    stated = {type(kernel) for kernel, _ in REFERENCES}
    assert {type(make()) for make in KERNELS.values()} <= stated
    with pytest.raises(NotImplementedError, match="'my_kernel': a subclass of"):
        CallableKernel(my_kernel).gradient(rows(2), rows(3), rows(3, 1))


def test_gradients_at_rows_of_zeros_and_at_kinks():
    """The mean of the derivatives from both sides; zero where a direction has none."""
    X, coef = np.array([[0.0, 0.0], [0.5, 1.0]]), np.ones((2, 1))
    assert np.all(Cosine().gradient(X, X, coef)[0] == 0.0)
    assert np.all(np.isfinite(Chi2().gradient(X, X, coef)))
    kinks = Laplacian(gamma=1.0).gradient(X[1:], X[1:], coef[1:])
    assert np.all(kinks == 0.0)


@pytest.mark.parametrize("kernel", [kernel for kernel, _ in REFERENCES], ids=by_class)
def test_memory_of_any_kind(kernel, rng):
    """Rows that cannot be written to, and sparse rows with indices of 64 bits."""
    X, Z = rng.uniform(size=(9, 5)), rng.uniform(size=(4, 5))
    expected = [kernel(X), kernel(X, Z)]
    sparse = [csr_array(X), csr_array(Z)]
    for own in sparse:
        own.indices, own.indptr = (
            a.astype(np.int64) for a in (own.indices, own.indptr)
        )
    X.flags.writeable = Z.flags.writeable = False
    for left, right in ((X, Z), sparse):
        found = [kernel(left), kernel(left, right)]
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(to_numpy(one), other, rtol=0, atol=1e-12)


def test_every_name_is_compared_with_scikit_learn():
    assert {type(kernel) for kernel, _ in REFERENCES} == set(KERNELS.values())


@pytest.mark.parametrize("kernel", KERNEL_OBJECTS, ids=by_class)
def test_libraries_agree(kernel, rng, other_backend):
    X, Z = rng.uniform(size=(15, 4)), rng.uniform(size=(7, 4))
    expected, expected_cross = kernel(X), kernel(Z, X)
    here = other_backend.asarray
    square, cross = kernel(here(X)), kernel(here(Z), here(X))
    np.testing.assert_allclose(to_numpy(square), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(to_numpy(cross), expected_cross, rtol=0, atol=1e-12)


# ---- properties -------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("kernel", KERNEL_OBJECTS, ids=by_class)
def test_shape_dtype_symmetry_and_psd(kernel, dtype, rng, xp_backend):
    X = xp_backend.asarray(rng.uniform(size=(25, 6)), dtype=dtype)
    before = to_numpy(X).copy()
    K = kernel(X)
    assert tuple(K.shape) == (25, 25)
    assert K.dtype == X.dtype
    np.testing.assert_array_equal(to_numpy(X), before)
    K = to_numpy(K)
    if kernel.psd:
        np.testing.assert_array_equal(K, K.T)
    lowest = np.linalg.eigvalsh(K.astype(float)).min()
    assert lowest >= -(1e-10 if dtype == "float64" else 1e-6) * 25 * np.abs(K).max()


@pytest.mark.parametrize("kernel", [RBF(), RBF(2.0), Laplacian()], ids=by_class)
def test_own_distance_is_zero_exactly(kernel, rng, xp_backend):
    X = xp_backend.asarray(1e3 + rng.normal(size=(30, 7)))
    np.testing.assert_array_equal(np.diag(to_numpy(kernel(X))), 1.0)


def test_duplicates_are_at_distance_zero(rng, xp_backend):
    X = 50 + rng.normal(size=(20, 300))
    X[10:] = X[:10][::-1]
    D = to_numpy(base_matrix("sqeuclidean", xp_backend.asarray(X)))
    np.testing.assert_array_equal(D[np.arange(20), 19 - np.arange(20)], 0.0)
    assert (D == 0).sum() == 40
    cross = base_matrix("sqeuclidean", xp_backend.asarray(X[:3]), xp_backend.asarray(X))
    np.testing.assert_array_equal(to_numpy(cross)[np.arange(3), np.arange(3)], 0.0)
    tiles = PairwiseRows("sqeuclidean", xp_backend.asarray(X))
    tile = to_numpy(tiles.tile(slice(0, 10), slice(10, 20)))
    np.testing.assert_array_equal(tile == 0.0, np.eye(10)[::-1] == 1.0)


def test_squared_distances_survive_a_large_offset(rng):
    X, Z = rng.normal(size=(30, 5)), rng.normal(size=(9, 5))
    for A, B in ((X, None), (X, Z)):
        exact = cdist(A + 1e7, (A if B is None else B) + 1e7, "sqeuclidean")
        found = base_matrix("sqeuclidean", A + 1e7, None if B is None else B + 1e7)
        np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("value", [1e3, 1e9, 1e20])
def test_squared_distances_survive_an_outlier(value, rng, xp_backend):
    """The other rows keep their digits, and the kernel remains semidefinite."""
    X = rng.normal(size=(100, 3))
    X[rng.integers(100), 1] = value
    K = to_numpy(RBF()(xp_backend.asarray(X)))
    assert_allclose = np.testing.assert_allclose
    median = np.median(pdist(X, "sqeuclidean"))
    assert_allclose(K, np.exp(-cdist(X, X, "sqeuclidean") / median), atol=1e-12)
    assert np.linalg.eigvalsh(K)[0] > -1e-12


def test_rows_do_not_depend_on_their_neighbours(rng):
    X, Z = rng.normal(size=(40, 5)), rng.normal(size=(9, 5))
    kernel = RBF().resolve(X)
    alone = np.concatenate([kernel(Z[i : i + 1], X) for i in range(9)])
    np.testing.assert_allclose(kernel(Z, X), alone, rtol=0, atol=1e-14)
    Z[0] = 1e9
    np.testing.assert_allclose(kernel(Z, X)[1:], alone[1:], rtol=0, atol=1e-14)


def test_own_distance_is_zero_whatever_the_rounding(monkeypatch, rng, xp_backend):
    monkeypatch.setattr(base_module, "eps", lambda X: 0.0)
    rows = xp_backend.asarray(rng.normal(size=(MANY, 40)))
    D = base_matrix("sqeuclidean", rows)
    np.testing.assert_array_equal(np.diag(to_numpy(D)), 0.0)


#: The same matrices from other programs.
BASES = {
    "dot": pairwise.linear_kernel,
    "sqeuclidean": lambda X, Z: cdist(X, Z, "sqeuclidean"),
    "l1": lambda X, Z: cdist(X, Z, "cityblock"),
    "chi2": lambda X, Z: -pairwise.additive_chi2_kernel(X, Z),
}


@in_turn(
    base=["dot", "sqeuclidean", "l1", "chi2"] * 2,
    step=[1, 2, 2, 2],
    xp_backend=["numpy", "array_api_strict", "torch"],
    indirect=["xp_backend"],
)
def test_many_and_strided_rows(base, step, rng, xp_backend):
    d = 67 if base in ("dot", "sqeuclidean") else 3
    X = rng.uniform(size=(MANY, d * step))
    rows, X = xp_backend.asarray(X)[:, ::step], X[:, ::step]
    D = to_numpy(base_matrix(base, rows))
    np.testing.assert_array_equal(D, D.T)
    expected = BASES[base](X, X)
    np.testing.assert_allclose(D, expected, rtol=0, atol=1e-11)
    cross = to_numpy(base_matrix(base, rows[:1000, :], rows))
    np.testing.assert_allclose(cross, expected[:1000], rtol=0, atol=1e-11)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(
    "kernel",
    [RBF(), Polynomial(), Laplacian(), Cosine(), Chi2("median"), "auto"],
    ids=kernel_id,
)
def test_unit_of_the_features_does_not_matter(kernel, dtype, rng):
    X = rng.uniform(size=(20, 4)).astype(dtype)
    atol = 1e-12 if dtype is np.float64 else 1e-5
    expected = list(gram_stack(resolve_kernels(kernel, X, "v"), X))
    for scale in (1e-12, 1e-6, 1e6, 1e12):
        Y = (X * dtype(scale)).astype(dtype)
        found = list(gram_stack(resolve_kernels(kernel, Y, "v"), Y))
        for K, L in zip(found, expected, strict=True):
            np.testing.assert_allclose(K, L, rtol=0, atol=atol * np.abs(L).max())


@pytest.mark.parametrize("spec", [*KERNELS, "auto", Pipe(Standardizer(), Cosine())])
def test_constant_view(spec, xp_backend):
    for value in (0.0, 0.1, 1e12):
        X = xp_backend.asarray(np.full((6, 3), value))
        for kernel in resolve_kernels(spec, X, "v"):
            K = to_numpy(kernel(X))
            assert np.isfinite(K).all(), value
            np.testing.assert_allclose(K, K[0, 0], rtol=1e-12)
            assert kernel.core.get_params().get("gamma", 1.0) > 0


@pytest.mark.parametrize("spec", [*KERNELS, "auto"])
def test_one_row_and_one_column(spec):
    for X in (np.array([[2.0, 1.0]]), np.array([[1.0], [2.0], [4.0]])):
        for kernel in resolve_kernels(spec, X, "v"):
            assert np.isfinite(kernel(X)).all()
            assert kernel(X[:1], X).shape == (1, len(X))


@given(
    arrays(
        np.float64,
        st.tuples(st.integers(1, 8), st.integers(1, 4)),
        elements=st.one_of(st.just(0.0), st.floats(1e-9, 1e9)),
    )
)
def test_any_nonnegative_matrix(X):
    for kernel in KERNEL_OBJECTS[:7]:
        K = kernel(X)
        scale = np.abs(K).max()
        assert np.isfinite(K).all()
        np.testing.assert_array_equal(K, K.T)
        assert np.linalg.eigvalsh(K).min() >= -1e-10 * len(X) * max(scale, 1e-300)


# ---- data-dependent parameters -----------------------------------------------------


def test_median_rule(rng, xp_backend):
    X = rng.normal(size=(40, 3))
    squared = np.median(pdist(X, "sqeuclidean"))
    resolved = RBF(factor=0.5).resolve(xp_backend.asarray(X))
    assert resolved.gamma == pytest.approx(0.5 / squared, rel=1e-12)
    assert resolved.factor == 1.0
    assert resolved.resolve(X) == resolved
    found = Laplacian().resolve(xp_backend.asarray(X)).gamma
    assert found == pytest.approx(1 / np.median(pdist(X, "cityblock")), rel=1e-12)
    assert RBF().gamma == "median"


def test_median_of_zero_falls_back_to_the_mean_and_then_to_one():
    X = np.zeros((10, 2)) + 0.1
    assert median_distance(X, "sqeuclidean") == 0
    assert RBF().resolve(X).gamma == 1.0
    X[0] += 3.0
    expected = pdist(X, "sqeuclidean").mean()
    assert RBF().resolve(X).gamma == pytest.approx(1 / expected, rel=1e-12)
    assert Polynomial().resolve(np.zeros((3, 2))).gamma == 1.0


def test_median_of_many_rows_uses_every_other():
    X = rows(2001, 2)
    expected = np.median(pdist(X[::2], "sqeuclidean"))
    assert median_distance(X, "sqeuclidean") == pytest.approx(expected, rel=1e-12)


def test_median_is_found_once_for_a_list(monkeypatch):
    calls = []
    original = base_module.base_matrix
    monkeypatch.setattr(
        base_module,
        "base_matrix",
        lambda *args: calls.append(args[0]) or original(*args),
    )
    resolve_kernels([RBF(), RBF(factor=2.0), [RBF(factor=3.0)]], rows(), "v")
    assert calls == ["sqeuclidean"]


def test_polynomial_scale():
    X = rows()
    gamma = Polynomial().resolve(X).gamma
    assert gamma == pytest.approx(1 / (X**2).sum(axis=1).mean(), rel=1e-12)


def test_unresolved_kernels_take_reference_rows():
    X, Z = rows(5), rows(30, seed=1)
    np.testing.assert_array_equal(RBF()(X, Z), RBF().resolve(Z)(X, Z))


# ---- objects ----------------------------------------------------------------------


class Weighted(Kernel):
    """A kernel with an array among its parameters."""

    def __init__(self, scales=None):
        self.scales = scales

    def gram(self, X, Z=None):
        return (X * self.scales) @ (X if Z is None else Z).T


def test_labels():
    assert Linear().label == "Linear()"
    assert RBF().label == "RBF()"
    assert RBF(gamma=0.0131234).label == "RBF(gamma=0.0131)"
    assert RBF(gamma=np.float64(0.0131234)).label == "RBF(gamma=0.0131)"
    assert RBF(gamma=np.float32(0.5)).label == "RBF(gamma=0.5)"
    assert Polynomial(degree=np.int64(2)).label == "Polynomial(degree=2)"
    assert Polynomial(degree=2, coef0=0.0).label == "Polynomial(degree=2, coef0=0)"
    assert Pipe(PCA(2), RBF(0.5)).label == "PCA > RBF(gamma=0.5)"
    assert CallableKernel(pairwise.rbf_kernel).label == "rbf_kernel"
    narrow = functools.partial(pairwise.rbf_kernel, gamma=9.0)
    assert CallableKernel(narrow).label == "rbf_kernel(gamma=9)"
    first = functools.partial(pairwise.rbf_kernel, np.ones((50, 2)))
    assert CallableKernel(first).label == "rbf_kernel(array of shape (50, 2))"
    assert CallableKernel(Weighted(np.ones(2))).label == "Weighted"
    assert Weighted(np.ones(2)).label == "Weighted(scales=array of shape (2,))"


def test_parameters_are_those_of_the_constructor():
    """As for every estimator, wherever else a class takes arguments."""

    class Open(RBF):
        def __new__(cls, *arguments, **named):
            return super().__new__(cls)

        def __init__(self, gamma="median", **others):
            super().__init__(gamma)

    class Closed(RBF):
        def __init__(self, *arguments):
            super().__init__()

    assert clone(Open(gamma=0.5)).label == "Open(gamma=0.5)"
    assert Open(gamma=0.5, unknown=1).get_params() == {"gamma": 0.5}
    with pytest.raises(RuntimeError, match="no varargs"):
        clone(Closed())


@pytest.mark.parametrize(
    ("bad", "found"), [(np.nan, "NaN"), (np.inf, "infinity"), (1j, "complex")]
)
def test_a_kernel_needs_finite_real_numbers(bad, found, xp_backend):
    """A median width would otherwise become one, and imaginary parts vanish."""
    X = np.array([[0.0, 1.0], [bad, 2.0], [3.0, 5.0]])
    for given_rows in (xp_backend.asarray(X, str(X.dtype)), csr_array(X)):
        with pytest.raises(ValueError, match=found):
            RBF()(given_rows)
    if bad is np.nan:
        filled = Pipe(SimpleImputer(), RBF())(X)
        np.testing.assert_array_equal(filled, RBF()(np.nan_to_num(X, nan=1.5)))


def test_equality_is_by_parameters():
    assert RBF(0.5) == RBF(0.5)
    assert RBF(0.5) != RBF(0.6)
    assert RBF(0.5) != Laplacian(0.5)
    assert RBF() != "rbf"
    assert clone(Polynomial(degree=2)) == Polynomial(degree=2)
    assert Weighted(np.ones(2)) == Weighted(np.ones(2)) != Weighted(np.arange(2))
    by_name = {"a": np.ones(2), "b": {1, 2}}
    assert clone(Weighted(by_name)) == Weighted(by_name) != Weighted({"a": np.ones(2)})
    assert Pipe(PCA(2), RBF()) == Pipe(PCA(2), RBF()) != Pipe(PCA(3), RBF())


@pytest.mark.parametrize("spec", ["auto", *KERNEL_OBJECTS], ids=kernel_id)
def test_resolved_kernels_survive_pickle_and_copy(spec):
    X = rows()
    resolved = resolve_kernels(spec, X, "v")
    references = [seen_by(kernel, X[:5]) for kernel in resolved]
    expected = list(gram_stack(resolved, X, references))
    for again in (pickle.loads(pickle.dumps(resolved)), copy.deepcopy(resolved)):
        shared = {id(step) for kernel in again for step in kernel.steps}
        assert len(shared) == len({id(s) for k in resolved for s in k.steps})
        for K, L in zip(gram_stack(again, X, references), expected, strict=True):
            np.testing.assert_array_equal(K, L)


def test_resolving_copies_the_users_objects():
    kernel, scaler = RBF(), StandardScaler()
    pipe = Pipe(scaler, kernel)
    for resolved in (*resolve_kernels([kernel, pipe], rows(), "v"),):
        assert resolved is not kernel
        assert resolved is not pipe
    assert kernel.gamma == "median"
    assert pipe.transformer is scaler
    assert not hasattr(scaler, "mean_")


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (RBF(gamma=-1.0), "RBF: gamma must be a positive number or 'median'; found -1"),
        (RBF(gamma="mean"), "gamma must be .* found 'mean'"),
        (RBF(gamma=True), "gamma must be .* found True"),
        (RBF(gamma=None), "gamma must be .* found None"),
        (RBF(factor=0), "RBF: factor must be a positive number; found 0"),
        (Laplacian(gamma=np.inf), "Laplacian: gamma must be .* found inf"),
        (Chi2(gamma=np.nan), "Chi2: gamma must be .* found nan"),
        (Polynomial(degree=0), "degree must be a positive number; found 0"),
        (Polynomial(degree=2.5), "degree must be an integer; found 2.5"),
        (Polynomial(coef0=-1), "coef0 must be a number >= 0; found -1"),
        (Polynomial(gamma="median"), "or 'scale'; found 'median'"),
    ],
)
def test_bad_parameters_name_view_and_kernel(kernel, message):
    with pytest.raises(ValueError, match=f"View 'rna': .*{message}"):
        resolve_kernels([Linear(), kernel], rows(), "rna")


def test_direct_calls_accept_lists_and_integers_and_name_shapes():
    whole = np.array([[1, 2], [3, 4]])
    for rows_of_integers in (whole.tolist(), whole, csr_array(whole)):
        found = Linear()(rows_of_integers)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, whole @ whole.T)
    mixed = RBF(1.0)(rows().astype(np.float32), rows())
    assert mixed.dtype == np.float64
    with pytest.raises(ValueError, match="found 1-D"):
        Linear()([1.0, 2.0])
    with pytest.raises(ValueError, match="X has 4 columns, but Z has 3"):
        Linear()(rows(), rows(d=3))


def test_kernel_without_base_or_gram_says_so():
    class Empty(Kernel):
        base = "dot"

    with pytest.raises(TypeError, match="Empty is not computed from a base matrix"):
        Empty()(rows())


@pytest.mark.parametrize("library", ["numpy", "array_api_strict", "torch"])
def test_chi2_names_the_negative_entry(library):
    xp = pytest.importorskip(library)
    X = rows()
    good = xp.asarray(X)
    X = X.copy()
    X[3, 2] = -0.5
    bad = xp.asarray(X)
    message = "View 'rna': .*nonnegative.*row 3, feature 2 holds -0.5"
    with pytest.raises(ValueError, match=message):
        next(gram_stack([Chi2()], bad, view_name="rna"))
    with pytest.raises(ValueError, match=message):
        next(gram_stack([Chi2()], bad, [good], view_name="rna"))
    with pytest.raises(ValueError, match=r"row 3, feature 2 holds -0\.5"):
        PairwiseRows("chi2", bad)  # a tile would not know the number of the row
    with pytest.raises(ValueError, match=r"^Negative values in data"):
        next(gram_stack([Chi2()], good, [bad]))


# ---- callables ---------------------------------------------------------------------


def test_callable(xp_backend):
    X, Z = xp_backend.asarray(rows()), xp_backend.asarray(rows(3))
    (kernel,) = resolve_kernels(my_kernel, X, "v")
    assert not kernel.psd
    expected = my_kernel(rows(), rows(3))
    np.testing.assert_allclose(to_numpy(kernel(X, Z)), expected, atol=1e-13)


def test_callable_may_hold_on_to_its_answer(xp_backend):
    kept = xp_backend.asarray(np.eye(20))
    K = next(
        gram_stack([CallableKernel(lambda X, Z: kept)], xp_backend.asarray(rows()))
    )
    K[:, :] = -1.0
    np.testing.assert_array_equal(to_numpy(kept), np.eye(20))


def test_callable_on_the_host_comes_back_to_the_data(xp_backend):
    def host(X, Z):
        return (to_numpy(X) @ to_numpy(Z).T).tolist()

    X = xp_backend.asarray(rows(), dtype="float32")
    K = CallableKernel(host)(X)
    assert type(K) is type(X)
    assert K.dtype == X.dtype


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda X, Z: X,
            r"'<lambda>' returned the shape \(20, 4\) instead of \(20",
        ),
        (lambda X, Z: 1.0, r"returned the shape \(\) instead"),
        (lambda X, Z: np.full((len(X), len(Z)), np.nan), "returned NaN or infinity"),
    ],
)
def test_callable_with_a_wrong_answer_is_named(function, message):
    X = rows()
    kernels = resolve_kernels(function, X, "rna")
    with pytest.raises(ValueError, match=f"View 'rna': .*{message}"):
        next(gram_stack(kernels, X, view_name="rna"))


# ---- what a user may write ---------------------------------------------------------


def linear_and_gaussians(S):
    median = np.median(pdist(S, "sqeuclidean"))
    gaussians = [pairwise.rbf_kernel(S, gamma=1 / (w * median)) for w in AUTO_WIDTHS]
    return [S @ S.T, *gaussians]


def test_auto_is_linear_and_gaussians_on_columns_with_and_without_their_scale():
    X = rows() * [1.0, 10.0, 100.0, 0.0] + [0.0, 5.0, -3.0, 2.0]
    kernels = resolve_kernels("auto", X, "v")
    once = [Linear] + [RBF] * len(AUTO_WIDTHS)
    assert [type(k.core) for k in kernels] == once + once
    centred = X - X.mean(axis=0)
    common = centred / np.sqrt(np.mean(X.var(axis=0)))
    expected = linear_and_gaussians(common)
    expected += linear_and_gaussians(StandardScaler().fit_transform(X))
    for K, L in zip(gram_stack(kernels, X), expected, strict=True):
        np.testing.assert_allclose(K, L, rtol=0, atol=1e-10)


@pytest.mark.parametrize("columns", [slice(0, 1), slice(0, 3)])
def test_auto_offers_one_scaling_where_standardising_changes_nothing(columns):
    X = 7.0 * StandardScaler().fit_transform(rows())[:, columns]
    assert len(resolve_kernels("auto", X, "v")) == 1 + len(AUTO_WIDTHS)


def test_names_work_on_columns_as_they_are():
    X = rows() * 10
    for name, make in KERNELS.items():
        (kernel,) = resolve_kernels(name, X, "v")
        assert type(kernel.core) is make
        assert kernel.label.startswith(f"{make.__name__}(")
        np.testing.assert_array_equal(kernel(X), make()(X))


def test_lists_flatten_in_order():
    spec = [
        "linear",
        [RBF(1.0), (RBF(2.0), [my_kernel])],
        Pipe(PCA(1), ["rbf", "cosine"]),
    ]
    kernels = resolve_kernels(spec, rows(), "v")
    found = [k.label.split("(gamma")[0] for k in kernels]
    assert found == [
        "Linear()",
        "RBF",
        "RBF",
        "my_kernel",
        "PCA > RBF",
        "PCA > Cosine()",
    ]


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        ("rfb", ValueError, "unknown kernel 'rfb'.*'linear', 'rbf'.*mean 'rbf'"),
        ("polynom", ValueError, "Did you mean 'polynomial'"),
        ("precomputed", ValueError, "views='precomputed'"),
        ("zzz", ValueError, "the known names are 'auto', 'linear'.*'cosine'.$"),
        ([], ValueError, "the list of kernels is empty"),
        (["rbf", []], ValueError, "the list of kernels is empty"),
        (RBF, TypeError, r"the class RBF; pass an instance such as RBF\(\)"),
        (None, TypeError, "must be a name.*found NoneType None"),
        (3, TypeError, "found int 3"),
        (Pipe(PCA, "rbf"), TypeError, "transformer must be a scikit-learn"),
        (Pipe("pca", "rbf"), TypeError, "transformer must be .*found 'pca'"),
        (Pipe(PCA(99), "rbf"), ValueError, "n_components=99"),
        (Pipe(SelectKBest(k=2), "rbf"), ValueError, "requires y"),
        (
            Pipe(FunctionTransformer(lambda X: X[0]), "rbf"),
            ValueError,
            r"FunctionTransformer returned features of the shape \(4,\) for 20 rows",
        ),
        (
            Pipe(FunctionTransformer(lambda X: X * np.inf), "rbf"),
            ValueError,
            "FunctionTransformer returned NaN or infinity",
        ),
    ],
)
def test_other_specifications_are_refused_by_view(spec, error, message):
    with pytest.raises(error, match=f"View 'rna': .*{message}"):
        resolve_kernels(spec, rows(), "rna")


# ---- pipes ------------------------------------------------------------------------


def test_pipe_equals_the_kernel_on_transformed_rows(xp_backend):
    X, Z = rows(), rows(6, seed=1)
    pca = PCA(2).fit(X)
    here = xp_backend.asarray
    (kernel,) = resolve_kernels(Pipe(PCA(2), RBF()), here(X), "v")
    inner = RBF().resolve(pca.transform(X))
    expected = inner(pca.transform(Z), pca.transform(X))
    np.testing.assert_allclose(
        to_numpy(kernel(here(Z), here(X))), expected, rtol=0, atol=1e-12
    )
    assert kernel.psd
    assert kernel.core.base == "sqeuclidean"
    assert not Pipe(PCA(2), CallableKernel(my_kernel)).psd


def test_pipe_with_names_needs_a_view():
    with pytest.raises(TypeError, match="single kernel object is needed here"):
        Pipe(PCA(2), "rbf").resolve(rows())


def test_pipe_parameters():
    pipe = Pipe(PCA(2), [RBF(gamma=1.0), "linear"])
    params = pipe.get_params()
    assert params["transformer__n_components"] == 2
    assert params["kernel__0__gamma"] == 1.0
    inner = pipe.kernel[0]
    pipe.set_params(kernel__0__gamma=2.0, transformer__n_components=1)
    assert pipe.kernel[0] == RBF(gamma=2.0)
    assert inner == RBF(gamma=1.0)
    with pytest.raises(ValueError, match=r"kernel__1__gamma.*'linear'.*RBF\(gamma"):
        pipe.set_params(kernel__1__gamma=2.0)
    assert clone(pipe).get_params(deep=False)["kernel"] == pipe.kernel


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_standardizer(rng, xp_backend, dtype):
    X = rng.normal(size=(30, 5)) * [1e-12, 1.0, 1e12, 0.0, 1.0] + [0, 5, 0, 0.1, 0]
    X[:, 4] = 3.7
    data = xp_backend.asarray(X, dtype=dtype)
    found = Standardizer().fit(data).transform(data)
    assert found.dtype == data.dtype
    expected = StandardScaler().fit_transform(X)
    atol = 1e-12 if dtype == "float64" else 1e-4
    np.testing.assert_allclose(to_numpy(found)[:, :3], expected[:, :3], atol=atol)
    np.testing.assert_allclose(to_numpy(found)[:, 3:], 0.0, atol=1e-6)
    assert to_numpy(Standardizer().fit(data).scale_)[3:].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("step", [Standardizer(), Frame(affine=True)], ids=repr)
def test_sparse_rows_are_not_filled(step, rng):
    X = csr_array(1e200 * rng.normal(size=(9, 4)) * (rng.random((9, 4)) < 0.4))
    found = step.fit(X).transform(X)
    assert issparse(found) and found.nnz == X.nnz


def test_absolute_differences_of_sparse_rows_need_no_dense_ones():
    places = np.array([[0, 1], [7, 800_000]], dtype=np.int32)
    wide = csr_array(([1.0, 2.0], tuple(places)), shape=(2, 1_000_000))
    tracemalloc.start()
    found = base_matrix("l1", wide)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    np.testing.assert_array_equal(found, [[0.0, 3.0], [3.0, 0.0]])
    assert peak < 2**20  # dense rows take 16 MB


@pytest.mark.parametrize(
    ("transformer", "needs"),
    [
        (SelectKBest(), True),
        (SelectFromModel(Lasso()), True),
        (VarianceThreshold(), False),
        (StandardScaler(), False),
        (make_pipeline(SelectKBest(), StandardScaler()), True),
        (make_column_transformer(("passthrough", [0]), (SelectKBest(), [1, 2])), True),
        (make_column_transformer(("passthrough", [0]), (PCA(), [1, 2])), False),
        (make_union(PCA(), SelectKBest()), True),
        (make_union(PCA(), StandardScaler()), False),
        (PLSRegression(), True),
        (LinearDiscriminantAnalysis(), True),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_which_transformers_need_targets(transformer, needs):
    assert needs_targets(transformer) is needs


def test_pipe_accepts_a_transformer_that_widens():
    (kernel,) = resolve_kernels(Pipe(PolynomialFeatures(2), Linear()), rows(), "v")
    wide = PolynomialFeatures(2).fit_transform(rows())
    np.testing.assert_allclose(kernel(rows()), wide @ wide.T, atol=1e-12)


# ---- stacks -----------------------------------------------------------------------


def test_stack_equals_one_by_one_in_any_order(rng, xp_backend):
    X = xp_backend.asarray(rng.uniform(size=(12, 4)))
    Z = xp_backend.asarray(rng.uniform(size=(5, 4)))
    spec = ["linear", "rbf", "polynomial", "auto", "cosine", "linear", Laplacian(2.0)]
    spec += ["chi2", Pipe(Standardizer(), ["linear", "cosine"]), RBF(0.1), "linear"]
    kernels = resolve_kernels(spec, X, "v")
    for reference in (None, X):
        left = X if reference is None else Z
        seen = None if reference is None else [seen_by(k, reference) for k in kernels]
        stack = gram_stack(kernels, left, seen)
        for kernel, K in zip(kernels, stack, strict=True):
            expected = to_numpy(kernel.gram(left, reference))
            if isinstance(kernel, Framed):  # with the mean of X as its origin
                about = to_numpy(X).mean(axis=0)
                expected = (to_numpy(left) - about) @ (to_numpy(X) - about).T
                np.testing.assert_allclose(to_numpy(K), expected, atol=1e-14)
            else:
                np.testing.assert_array_equal(to_numpy(K), expected)
            K[:, :] = -1.0  # the caller may overwrite it


def test_stack_shares_bases_and_features(monkeypatch):
    from kernelweave.kernels import spec as resolve

    calls = []
    original = resolve.base_matrix
    monkeypatch.setattr(
        resolve, "base_matrix", lambda *args: calls.append(args[0]) or original(*args)
    )
    X = rows()
    spec = ["auto", "rbf", Polynomial(), RBF(0.1), "linear", RBF(0.2)]
    kernels = resolve_kernels(spec, X, "v")
    assert len(list(gram_stack(kernels, X))) == 11
    # the linear kernel uses its own origin, which the polynomial must not
    assert calls == ["dot", "sqeuclidean"] * 2 + ["sqeuclidean", "dot", "dot"]


def test_memory_of_a_stack_is_one_base_and_one_gram():
    n = 2300
    X = rows(n, 3)
    kernels = resolve_kernels("auto", X, "v")
    tracemalloc.start()
    for K in gram_stack(kernels, X):
        del K
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 2 * n * n * 8 + 3 * 8 * CHUNK_ENTRIES


def test_a_stack_holds_nothing_that_it_no_longer_needs():
    """Neither the last base matrix nor the features of transformers used before."""
    X = rows(400, 3)
    twice = [Pipe(FunctionTransformer(lambda X: np.tile(X, 200)), "rbf") for _ in "12"]
    kernels = resolve_kernels(twice, X, "v")
    tracemalloc.start()
    held = []
    for _ in gram_stack(kernels, X):
        held.append(tracemalloc.get_traced_memory()[0] / (X.shape[0] ** 2 * 8))
    tracemalloc.stop()
    assert max(held) < 1.1  # in matrices; measured: 1.01


def test_a_pipe_called_directly_refuses_what_its_transformer_leaves(rng):
    X = rng.normal(size=(6, 3))
    gap = np.where(np.arange(18).reshape(6, 3) == 4, np.nan, X)
    pipe = Pipe(Standardizer(), Linear())
    for pair in ((gap,), (X, gap), (gap, X)):
        with pytest.raises(ValueError, match=r"NaN .* after the transformer Standard"):
            pipe(*pair)
    assert np.all(np.isfinite(Pipe(SimpleImputer(), Linear())(gap)))
