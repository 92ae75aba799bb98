"""Feature maps against the kernels that they represent."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from kernelweave._array import to_numpy
from kernelweave.kernels import (
    RBF,
    Chi2,
    Cosine,
    Laplacian,
    Linear,
    Pipe,
    Polynomial,
    Standardizer,
)
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.features.maps import (
    FourierFeatures,
    NystroemFeatures,
    exact_map,
    exact_width,
    pivoted_cholesky,
)
from kernelweave.kernels.features.recipe import FeatureRecipe, choose_map, kernel_error
from kernelweave.views.columns import View

EXACT = [
    Linear(),
    Cosine(),
    Polynomial(1),
    Polynomial(2),
    Polynomial(3, gamma=0.3, coef0=2.0),
    Polynomial(2, coef0=0.0),
]
EPS = float(np.finfo(float).eps)


def centred(K):
    means = K.mean(axis=0)
    return K - means - means[:, None] + means.mean()


@pytest.mark.parametrize("kernel", EXACT, ids=str)
def test_exact_maps_are_exact(kernel, rng, xp_backend):
    X = 3 + rng.normal(size=(30, 4))
    kernel = kernel.resolve(X)
    made = exact_map(kernel, X)
    Z = to_numpy(made.to(xp_backend.asarray(X)).transform(xp_backend.asarray(X)))
    assert Z.shape == (30, made.n_features) == (30, exact_width(kernel, 4))
    K = kernel.gram(X)
    assert_allclose(centred(Z @ Z.T), centred(K), atol=1e-10 * np.abs(K).max())
    assert_allclose(made.transform(X), Z, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("method", ["exact", "nystroem", "random"])
@pytest.mark.parametrize(("dtype", "offset"), [("float64", 1e9), ("float32", 1e3)])
def test_features_keep_the_digits_of_columns_far_from_zero(
    method, dtype, offset, rng, xp_backend
):
    """Entries are multiples of 1/1024, so that adding an offset is exact."""
    X = np.round(1024 * rng.normal(size=(50, 3))) / 1024
    kernels = [Linear()] if method == "exact" else [Linear(), RBF(0.3), Laplacian(0.2)]
    grams = []
    for rows in (X, X + offset):
        there = xp_backend.asarray(rows, dtype)
        recipe = FeatureRecipe(
            [View("v", kernels, slice(None))], [to_numpy(there)], method, 40
        )
        out = xp_backend.asarray(np.zeros((50, recipe.n_features)), dtype)
        recipe.to(there).write([there], out)
        Z = [to_numpy(out)[:, block].astype(float) for block in recipe.blocks]
        grams.append([centred(z @ z.T) for z in Z])
    for K, L in zip(*grams, strict=True):
        # float32: Nystroem drops directions whose eigenvalues are rounding errors
        # measured: up to 6e-7
        assert_allclose(L, K, atol=1e-11 if dtype == "float64" else 1e-5)


@pytest.mark.parametrize("kernel", [RBF(0.3), Laplacian(0.2)], ids=str)
def test_fourier_features_tend_to_the_kernel(kernel, rng):
    X = rng.normal(size=(60, 4))
    K = kernel.gram(X)
    errors = []
    for size in (20, 200, 20000):
        made = FourierFeatures(kernel, 4, size, rng)
        Z = made.transform(X)
        assert_allclose(np.sum(Z * Z, axis=1), 1.0)
        errors.append(np.abs(Z @ Z.T - K).max())
    # The error decreases like one over the root of the size; the bound is loose.
    assert errors[2] < 5 / np.sqrt(10000) and errors[2] < errors[0]
    assert FourierFeatures(kernel, 4, 7, rng).n_features == 8


@pytest.mark.parametrize("kernel", [RBF(0.3), Chi2(), Polynomial(2), "any"], ids=str)
def test_nystroem_is_exact_on_landmarks_and_never_too_large(kernel, rng):
    X = np.abs(rng.normal(size=(80, 4)))
    if kernel == "any":
        from kernelweave.kernels import CallableKernel

        kernel = CallableKernel(lambda A, B: np.minimum(A[:, None], B[None]).sum(-1))
    kernel = kernel.resolve(X)
    made = NystroemFeatures(kernel, X, 25, rng)
    assert made.landmarks.shape[0] <= 25 and made.n_features <= 25
    marks, Z = made.landmarks, made.transform(X)
    Zm = made.transform(marks)
    assert_allclose(Zm @ Zm.T, kernel.gram(marks), atol=1e-6)
    residual = kernel.gram(X) - Z @ Z.T
    size = np.abs(kernel.gram(X)).max()
    assert np.linalg.eigvalsh(residual)[0] > -1e-6 * size
    assert np.sum(made.is_reference(X)) == len(marks)


def test_nystroem_of_all_rows_is_the_kernel_and_duplicates_are_no_trouble(rng):
    X = np.repeat(rng.normal(size=(15, 3)), 3, axis=0)
    kernel = RBF(0.5)
    made = NystroemFeatures(kernel, X, 45, rng)
    Z = made.transform(X)
    assert made.n_features <= 15
    assert_allclose(Z @ Z.T, kernel.gram(X), atol=1e-7)
    constant = NystroemFeatures(Linear(), np.zeros((5, 2)), 3, rng)
    assert_array_equal(constant.transform(np.ones((2, 2))), np.zeros((2, 1)))


class Loud(Kernel):
    """``scale exp(-|x - z|^2 / 4)``, whose diagonal is not one."""

    base = "sqeuclidean"

    def __init__(self, scale=1.0):
        self.scale = scale

    def from_base(self, base):
        return self.scale * np.exp(-0.25 * base)


@pytest.mark.parametrize("scale", [0.01, 100.0])
def test_nystroem_does_not_depend_on_the_scale_of_a_kernel(scale, rng):
    X, new = rng.normal(size=(400, 2)), rng.normal(size=(200, 2))
    made = [
        NystroemFeatures(Loud(s), X, 60, np.random.default_rng(0)) for s in (1.0, scale)
    ]
    # the same rows are drawn; the number of directions kept may differ slightly
    assert_allclose(made[1].landmarks, made[0].landmarks)
    assert abs(made[1].n_features - made[0].n_features) <= 2
    errors = [kernel_error(one, new) for one in made]
    # measured over 21 seeds: at most 0.003
    assert errors[0] < 0.05
    assert_allclose(errors[1], errors[0], rtol=1e-3)


def test_landmarks_find_a_rare_cluster(rng):
    X = np.concatenate([rng.normal(size=(1990, 2)), 30 + rng.normal(size=(10, 2))])
    draws = [pivoted_cholesky(RBF(0.3), X, 40, rng) for _ in range(5)]
    # 40 of 2000 rows drawn uniformly include one of the 10 a fifth of the time
    assert all(np.any(draw >= 1990) for draw in draws)


def test_held_out_error_measures_what_it_says(rng):
    X, new = rng.normal(size=(300, 3)), rng.normal(size=(100, 3))
    kernel = RBF().resolve(X)
    errors = [kernel_error(NystroemFeatures(kernel, X, m, rng), new) for m in (5, 150)]
    # measured over 21 seeds: at most 0.012, and 0.44 to 0.67
    assert errors[1] < 0.05 < errors[0] < 1.5
    made = NystroemFeatures(kernel, X, 100, rng)
    # The map is exact on its landmarks, so they are excluded from the estimate.
    assert np.isnan(kernel_error(made, made.landmarks))
    Z = made.transform(new)
    off = centred(kernel.gram(new) - Z @ Z.T)
    expected = np.linalg.norm(off) / np.linalg.norm(centred(kernel.gram(new)))
    assert kernel_error(made, new) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kernel", "method", "how"),
    [
        (Linear(), "nystroem", "exact"),
        (Polynomial(2), "random", "exact"),
        (Polynomial(5), "random", "Nystroem"),
        (RBF(0.1), "nystroem", "Nystroem"),
        (RBF(0.1), "random", "random Fourier"),
        (Laplacian(0.1), "random", "random Fourier"),
        (Chi2(), "random", "Nystroem"),
        (Polynomial(5), "exact", "exact"),
    ],
    ids=str,
)
def test_choice_of_a_map(kernel, method, how, rng):
    X = np.abs(rng.normal(size=(40, 4)))
    made = choose_map(kernel.resolve(X), X, method, 10, rng, EPS)
    assert made.how == how and how in repr(made)
    assert made.exact == (how == "exact")


def test_a_kernel_without_exact_features_says_so(rng):
    X = rng.normal(size=(20, 2))
    with pytest.raises(ValueError, match=r"View 'v': RBF.*no finite exact features"):
        FeatureRecipe([View("v", RBF(0.1), [0, 1])], [X], "exact", 5)


VIEWS = [
    View("a", [Linear(), Pipe(Standardizer(), [Linear(), RBF()])], [0, 1, 2]),
    View("b", ["rbf", Polynomial(2)], [3, 4]),
]


@pytest.mark.parametrize("method", ["nystroem", "random"])
def test_recipe_of_all_views(method, rng, xp_backend):
    blocks = [5 + rng.normal(size=(70, 3)), rng.normal(size=(70, 2))]
    recipe = FeatureRecipe(VIEWS, blocks, method, 12, seed=3)
    assert recipe.names[0] == "a: Linear()" and recipe.view_names == [*"aaabb"]
    assert recipe.n_features == sum(recipe.widths)
    like = xp_backend.asarray(blocks[0])
    moved = recipe.to(like)
    there = [xp_backend.asarray(block) for block in blocks]
    out = xp_backend.xp.empty((70, recipe.n_features), dtype=xp_backend.xp.float64)
    moved.write(there, out)
    host = np.empty((70, recipe.n_features))
    recipe.write(blocks, host)
    assert_allclose(to_numpy(out), host, atol=1e-9)
    # the same seed gives the same features, another one does not
    again = np.empty_like(host)
    FeatureRecipe(VIEWS, blocks, method, 12, seed=3).write(blocks, again)
    assert np.array_equal(host, again)
    FeatureRecipe(VIEWS, blocks, method, 12, seed=4).write(blocks, again)
    assert not np.array_equal(host, again)
    some = np.empty((70, recipe.widths[1] + recipe.widths[3]))
    recipe.write(blocks, some, [1, 3])
    assert_allclose(some[:, : recipe.widths[1]], host[:, recipe.blocks[1]])
    reports = recipe.report(blocks)
    assert [r.how == "exact" for r in reports] == [True, True, False, False, True]
    assert all(r.error == 0 for r in reports if r.how == "exact")


@pytest.mark.parametrize("kernel", [RBF(0.3), Polynomial(2)], ids=str)
def test_features_are_written_in_little_memory_besides_their_own(kernel, rng):
    X = rng.normal(size=(3000, 40))
    recipe = FeatureRecipe([View("a", kernel, [])], [X[:50]], "random", 1000)
    out = np.empty((len(X), recipe.n_features))
    tracemalloc.start()
    recipe.write([X], out)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert_allclose(out[-9:], recipe.maps[0].transform(X[-9:]), atol=1e-12)
    assert peak < 1.5 * out.nbytes  # measured: 0.9; 2 or more without blocks


def test_sparse_rows_stay_sparse_for_linear_kernels_only(rng):
    X = rng.normal(size=(60, 3)) * (rng.random((60, 3)) < 0.3)
    views = [View("a", [Linear(), Pipe(Standardizer(), Linear()), RBF()], [0, 1, 2])]
    recipe = FeatureRecipe(views, [sparse.csr_array(X)], "nystroem", 10)
    assert recipe.sparse == [True, True, False]
    dense = FeatureRecipe(views, [X], "nystroem", 10)
    assert dense.sparse == [False, False, False]
    for i in (0, 1):
        Z = recipe.sparse_features(i, sparse.csr_array(X)).toarray()
        expected = np.empty((60, 3))
        dense.write([X], expected, [i])
        assert_allclose(
            Z - Z.mean(axis=0), expected - expected.mean(axis=0), atol=1e-12
        )
