"""Kernels made anew in every pass against the same kernels kept as matrices."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array
from sklearn.decomposition import PCA

from kernelweave._array import is_numpy, to_numpy
from kernelweave.criteria.fisher import Fisher
from kernelweave.exceptions import KernelWarning
from kernelweave.fits.targets import class_target
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
from kernelweave.kernels.banks import lazy
from kernelweave.kernels.banks.dense import KernelBank
from kernelweave.kernels.banks.features import FeatureBank
from kernelweave.kernels.base import PairwiseRows
from kernelweave.kernels.interactions import with_products
from kernelweave.kernels.maps.kernel_map import (
    FASTER_FROM,
    SHARED_BY,
    FeatureSource,
    KernelMap,
)
from kernelweave.protocols import Bank
from kernelweave.views.columns import View

N = 23


def similarity(X, Z):
    return 1.0 / (1.0 + abs(X[:, :1] - Z[:, :1].T))


LEFT = [Linear(), Polynomial(2), RBF(), RBF(factor=3.0), Laplacian(), Chi2(), Cosine()]
RIGHT = [similarity, Pipe(PCA(2), [RBF(), Linear()]), Pipe(Standardizer(), RBF())]
VIEWS = [View("left", LEFT, [0, 1, 2]), View("right", RIGHT, [3, 4, 5])]


def in_tiles(views, blocks, tile_rows=10):
    """Kernels that take six tiles for 23 rows."""
    source = FeatureSource(views, blocks)
    source.tile_rows = tile_rows
    return source


def two_banks(X, views=VIEWS, positions=((0, 1, 2), (3, 4, 5)), **options):
    """The kernels as matrices, and made on the fly."""
    blocks = [X[:, min(own) : max(own) + 1] for own in positions]
    source = in_tiles(views, blocks)
    kinds = ("matrices", "on_the_fly")
    return tuple(KernelMap(source, storage=kind, **options).fit() for kind in kinds)


def draw(rng):
    return np.abs(rng.normal(size=(N, 6))) + 0.1


def close(found, wanted, tol=1e-12):
    wanted = to_numpy(wanted)
    assert_allclose(to_numpy(found), wanted, rtol=0, atol=tol * np.abs(wanted).max())


def test_all_products_are_those_of_the_matrices(rng, xp_backend):
    # weights of rows are the general case: NumPy shows the plain one
    weights = None if xp_backend.name == "numpy" else rng.uniform(0.5, 2.0, size=N)
    dense, bank = two_banks(xp_backend.asarray(draw(rng)), row_weights=weights)
    assert isinstance(bank, Bank) and isinstance(bank, lazy.OnTheFlyBank)
    assert bank.names == dense.names and bank.n_kernels == 11
    rows, some = np.sort(rng.choice(N, 14, replace=False)), np.array([7, 0, 9])
    pairs = [
        (bank, dense),
        (bank.restrict(rows).subset(some), dense.subset(some).restrict(rows)),
    ]
    for ours, theirs in pairs:
        p, n = theirs.n_kernels, theirs.n_samples
        assert (ours.n_kernels, ours.n_samples, ours.n_rows) == (p, n, n)
        w, b = rng.normal(size=p), xp_backend.asarray(rng.normal(size=(n, 2)))
        total = ours.combine(w)
        close(total, theirs.combine(w))
        assert_allclose(to_numpy(total), to_numpy(total).T, rtol=1e-12, atol=1e-12)
        again = ours.combine(2 * w, out=total, lower=True)
        assert again is total
        half = np.triu if is_numpy(total) else np.tril  # what cholesky reads
        close(half(to_numpy(again)), half(to_numpy(theirs.combine(2 * w))))
        found, wanted = ours.apply(b), theirs.apply(b)
        for i in range(p):
            close(found[i, :, :], wanted[i, :, :])
        close(ours.quad(b), theirs.quad(b))
        close(ours.kernel(1), theirs.kernel(1))
        close(ours.diagonals(), theirs.diagonals())
        close(ours.sizes(np.arange(p)), theirs.sizes(np.arange(p)))
    for (part, block), (same, wanted) in zip(
        bank.row_blocks(), dense.row_blocks(), strict=True
    ):
        assert part == same
        close(block, wanted)


def test_other_libraries_bring_their_own_threads(rng, other_backend, monkeypatch):
    monkeypatch.setattr(lazy, "in_threads", None)
    dense, bank = two_banks(other_backend.asarray(draw(rng)))
    close(bank.combine(np.ones(11)), dense.combine(np.ones(11)))


def test_some_sparse_rows(rng):
    """Also for kernels that share neither products nor distances."""
    X, rows = csr_array(rng.random((N, 3))), np.arange(0, N, 2)
    source = in_tiles([View("a", [Cosine(), RBF(), Laplacian()], [0, 1, 2])], [X])
    bank = KernelMap(source, storage="on_the_fly").fit()
    part = bank.restrict(rows)
    for i in range(bank.n_kernels):
        whole = bank.kernel(i)[np.ix_(rows, rows)]
        assert_allclose(part.kernel(i), whole, atol=1e-12)


def test_as_many_rows_or_kernels_in_another_order(rng):
    """A bootstrap sample of the rows has their number, and is not all of them."""
    features = rng.normal(size=(N, 4))
    banks = [*two_banks(draw(rng)), FeatureBank(features, [1, 1, 2], list("abc"))]
    rows = rng.integers(0, N, size=N)
    for bank in [*banks, KernelBank.subset(banks[0], np.arange(2))]:
        order = np.arange(bank.n_kernels)[::-1]
        both = bank.restrict(rows).subset(order)
        assert both.names == bank.names[::-1]
        assert both.views is None or both.views == bank.views[::-1]
        for part in (both, KernelBank.restrict(bank, rows).subset(order)):
            expected = bank.kernel(0)[np.ix_(rows, rows)]
            close(part.kernel(bank.n_kernels - 1), expected)


def test_products_that_overflow_in_the_exponent(rng):
    """A width far too small makes a kernel the identity, without a warning."""
    view = View("a", [RBF(gamma=1e300), RBF()], [0, 1, 2])
    source = in_tiles([view], [1e10 * rng.normal(size=(N, 3))])
    bank = KernelMap(source, storage="on_the_fly").fit()
    assert_allclose(bank.sizes(np.arange(2))[0], N / np.sqrt(N - 1))
    (_, block), *_ = bank.row_blocks()
    assert_allclose(block[0], bank.kernel(0)[: block.shape[1]])


def test_kernels_between_views(rng):
    views, positions = with_products(VIEWS, [[0, 1, 2], [3, 4, 5]])
    dense, bank = two_banks(draw(rng), views, positions)
    w, b = rng.uniform(size=bank.n_kernels), rng.normal(size=(N, 2))
    close(bank.combine(w), dense.combine(w))
    close(bank.apply(b), dense.apply(b))


def test_float32_kernels_are_widened_for_a_certificate(rng):
    dense, bank = two_banks(draw(rng).astype(np.float32))
    b = rng.normal(size=(N, 2))
    assert bank.apply(b).dtype == np.float64
    assert bank.combine(np.ones(11)).dtype == np.float32
    close(bank.apply(b), dense.apply(b), 1e-4)
    close(bank.combine(np.ones(11)), dense.combine(np.ones(11)), 1e-5)


def test_kernels_of_a_view_share_its_distances(rng, monkeypatch):
    made = []
    original = PairwiseRows.tile

    def counted(self, *args, **kwargs):
        made.append(self.base)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(PairwiseRows, "tile", counted)
    views = [View("all", [RBF(factor=f) for f in (0.1, 1.0, 5.0)], slice(0, 6))]
    bank = KernelMap(in_tiles(views, [draw(rng)]), storage="on_the_fly").fit()
    tiles = len(list(bank.lower()))
    made.clear()
    bank.combine(np.ones(3))
    bank.apply(np.ones((N, 1)))
    assert made == ["sqeuclidean"] * (2 * tiles)


def test_memory_is_that_of_one_matrix(rng):
    """Twelve kernels, evaluated as a solver does: 13 matrices if all were kept."""
    n = 240
    X, codes = rng.normal(size=(n, 3)), np.arange(n) % 2
    kernels = [RBF(factor=f) for f in np.logspace(-1, 1, 12)]
    source = in_tiles([View("all", kernels, slice(0, 3))], [X], tile_rows=24)
    problem, w = None, np.full(13, 1 / 13)
    tracemalloc.start()
    try:
        bank = KernelMap(source, storage="on_the_fly").fit()
        problem = Fisher(bank, class_target(codes, 2), "learn")
        first = problem.evaluate(w, hessian=True)
        problem.certificate_terms(w, first.coef, first.coef)
        problem.evaluate(w / 2, hessian=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1.6 * n * n * 8  # measured: 1.49


def test_constant_kernels_are_left_out(rng):
    X = draw(rng)
    X[:, 3:] = 2.0
    views = [VIEWS[0], View("right", [Linear(), RBF(gamma=1.0)], [3, 4, 5])]
    blocks = [X[:, :3], X[:, 3:]]
    made = KernelMap(in_tiles(views, blocks), storage="on_the_fly")
    with pytest.warns(KernelWarning, match="view 'right'.*constant"):
        bank = made.fit()
    assert made.active == list(range(7)) and bank.n_kernels == 7


@pytest.mark.parametrize("psd", ["error", "clip", "trust"])
def test_what_is_no_kernel_is_refused(psd, rng):
    def lopsided(X, Z):
        return X @ Z.T + X[:, :1]

    def indefinite(X, Z):
        return np.tanh(3.0 * X @ Z.T - 4.0)

    X, options = rng.normal(size=(N, 3)), {"psd": psd, "storage": "on_the_fly"}

    def fit(kernel):
        return KernelMap(
            in_tiles([View("v", kernel, slice(0, 3))], [X]), **options
        ).fit()

    with pytest.raises(ValueError, match="not symmetric"):
        fit(lopsided)
    if psd == "trust":
        assert fit(indefinite).n_kernels == 1
        return
    expected = {
        "error": "not positive semidefinite: as used",
        "clip": "psd='clip' needs its eigenvectors, while features='on_the_fly'",
    }
    with pytest.raises(ValueError, match=expected[psd]):
        fit(indefinite)


def test_rounding_of_a_callable_is_made_up_for(rng):
    """A smallest eigenvalue of -1e-9 n is added to the diagonal, on the fly too."""
    X = rng.normal(size=(N, N))
    off = np.linalg.qr(X - X.mean(axis=0))[0][:, 0]

    def nearly(A, B):
        left, right = (M[:, 0].astype(int) for M in (A, B))
        gram = np.outer(off, off) * (-1e-9 * N) + np.outer(X[:, 1], X[:, 1])
        return gram[np.ix_(left, right)]

    numbers = np.arange(N, dtype=float)[:, None]
    banks = [
        KernelMap(in_tiles([View("v", nearly, [0])], [numbers]), storage=storage).fit()
        for storage in ("matrices", "on_the_fly")
    ]
    dense, bank = banks
    assert bank._shifts[0] > 0
    b = rng.normal(size=(N, 2))
    close(bank.apply(b), dense.apply(b))
    close(bank.combine(np.ones(1)), dense.combine(np.ones(1)))
    close(bank.diagonals(), dense.diagonals())
    close(next(bank.row_blocks())[1], next(dense.row_blocks())[1])


def test_overflow_names_the_entry(rng):
    X = rng.normal(size=(N, 2))
    X[5, 1] = 1e80
    source = in_tiles([View("v", [Polynomial(3, gamma=1.0)], [0, 1])], [X])
    with pytest.raises(ValueError, match=r"View 'v': row 5, column 1 holds 1e\+80"):
        KernelMap(source, storage="on_the_fly").fit()


@pytest.mark.parametrize(
    ("n", "widths", "n_views", "faster"),
    [
        (FASTER_FROM, SHARED_BY, 1, True),
        (FASTER_FROM, SHARED_BY, 2, True),
        (FASTER_FROM - 1, SHARED_BY, 1, False),
        (FASTER_FROM, SHARED_BY - 1, 1, False),
    ],
)
def test_many_kernels_of_a_view_are_not_stored(n, widths, n_views, faster, rng):
    kernels = [RBF(gamma=float(g)) for g in np.logspace(-1, 1, widths)]
    views = [View(f"v{i}", kernels, [0]) for i in range(n_views)]
    source = in_tiles(views, [rng.normal(size=(n, 1)) for _ in views])
    assert KernelMap(source, storage="fastest").is_faster_on_the_fly() == faster
    assert not KernelMap(source).is_faster_on_the_fly()
