"""Kernels over rows that lack views: zeros or available means, also for test rows."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelweave._array import to_numpy
from kernelweave.exceptions import KernelWarning
from kernelweave.kernels import RBF, KernelMap, Laplacian, Linear, Pipe
from kernelweave.kernels.maps.kernel_map import FeatureSource, PrecomputedSource
from kernelweave.kernels.maps.missing import CompletedKernelMap, spread_out
from kernelweave.kernels.spec import imputes
from kernelweave.views.columns import View
from kernelweave.views.missing import ObservedViews

KERNELS = [[RBF(gamma=0.3)], [Linear(), RBF(gamma=0.2)], [Laplacian(gamma=0.3)]]
VIEW_OF = [0, 1, 1, 2]
MODES = ["zero", "available"]
every_mode = pytest.mark.parametrize("missing", MODES)


def draw_mask(rng, n, rate=0.3):
    """Which of n rows have which of three views; no row and no view is empty."""
    mask = rng.random((n, 3)) > rate
    mask[np.arange(n), rng.integers(3, size=n)] = True
    mask[:3] = True
    return mask


def hide(X, mask):
    """X (n, 6) with NaN in the two columns of each missing view."""
    return np.where(np.repeat(mask, 2, axis=1), X, np.nan)


def blocks_of(X, mask, move=np.asarray):
    hidden = hide(X, mask)
    return [move(hidden[:, 2 * v : 2 * v + 2]) for v in range(3)]


def make_views(kernels=KERNELS):
    columns = ([0, 1], [2, 3], [4, 5])
    return [View(f"v{i}", kernels[i], columns[i]) for i in range(3)]


def feature_map(X, mask, missing, move=np.asarray, kernels=KERNELS, **options):
    source = FeatureSource(make_views(kernels), blocks_of(X, mask, move), mask)
    return CompletedKernelMap(source, "error", missing, **options)


def grams(X, Z):
    """The four raw kernels between rows X and Z without gaps, (m, n, 4)."""
    flat = [(kernel, v) for v, own in enumerate(KERNELS) for kernel in own]
    pairs = [(k, slice(2 * v, 2 * v + 2)) for k, v in flat]
    return np.stack([k(X[:, c], Z[:, c]) for k, c in pairs], axis=-1)


def precomputed_map(X, mask, missing, **options):
    names = [f"kernel_{i}" for i in range(4)]
    source = PrecomputedSource(grams(X, X), names, mask[:, VIEW_OF])
    return CompletedKernelMap(source, "error", missing, **options)


def oracle(raw, mask, missing, new=None, new_mask=None):
    """The definition, pair by pair: kernels (p, n, n), and (p, m, n) for new rows."""
    mask = mask[:, VIEW_OF]
    n, p = mask.shape
    m = 0 if new is None else len(new)
    rows = mask if new is None else np.vstack([mask, new_mask[:, VIEW_OF]])
    K = raw if new is None else np.concatenate([raw, new])  # (n + m, n, p)
    G = np.zeros((p, n + m, n))
    for i in range(p):
        own = np.flatnonzero(mask[:, i])
        inside = K[np.ix_(own, own, [i])][:, :, 0]
        centred = inside - inside.mean(axis=0) - inside.mean(axis=1)[:, None]
        scale = len(own) / np.trace(centred + inside.mean())
        for a in np.flatnonzero(rows[:, i]):
            row = K[a, own, i]
            G[i, a, own] = scale * (
                row - inside.mean(axis=0) - row.mean() + inside.mean()
            )
    if missing == "zero":
        return G[:, :n], G[:, n:]
    full = G.copy()
    for i in range(p):
        for a in range(n + m):
            for b in range(n):
                if not (rows[a, i] and mask[b, i]):
                    shared = np.flatnonzero(rows[a] & mask[b])
                    full[i, a, b] = np.mean(G[shared, a, b]) if len(shared) else 0.0
        if mask[:, i].all():
            continue
        C = full[i, :n]
        P = np.eye(n) - 1 / n
        scale = n / np.trace(P @ C @ P)
        shifted = scale * (full[i] - C.mean(axis=0)) @ P
        values, vectors = np.linalg.eigh(shifted[:n])
        if values[0] < -1e-10 * n:
            keep = vectors[:, values > 0.01]
            scale = n / values[values > 0.01].sum()
            shifted = scale * shifted @ keep @ keep.T
        full[i] = shifted
    full[:, n:] *= np.any(rows[n:], axis=1)[None, :, None]
    return full[:, :n], full[:, n:]


@every_mode
@pytest.mark.parametrize("make", [feature_map, precomputed_map])
def test_the_definition_pair_by_pair(make, missing, rng):
    X, new = rng.normal(size=(22, 6)), rng.normal(size=(9, 6))
    mask, new_mask = draw_mask(rng, 22), rng.random((9, 3)) > 0.4
    new_mask[0], new_mask[1] = False, True
    kernel_map = make(X, mask, missing)
    bank = kernel_map.fit()
    wanted, wanted_new = oracle(grams(X, X), mask, missing, grams(new, X), new_mask)
    assert_allclose(bank.stack, wanted, atol=1e-10)
    if make is feature_map:
        rows = ObservedViews(blocks_of(new, new_mask), new_mask)
    else:
        raw = np.where(new_mask[:, None, VIEW_OF], grams(new, X), 0.0)
        rows = ObservedViews(raw, new_mask[:, VIEW_OF])
    for i in range(4):
        found = kernel_map.cross(rows, np.eye(4)[i])
        assert_allclose(found, wanted_new[i], atol=1e-10)
        assert not np.any(found[0])  # a row without any view
    weights, coef = rng.random(4), rng.normal(size=(22, 3))
    expected = np.einsum("i,imn,nk->mk", weights, wanted_new, coef)
    assert_allclose(kernel_map.project(rows, weights, coef), expected, atol=1e-9)
    terms = np.einsum("i,imn,nk->mik", weights, wanted_new, coef)
    assert_allclose(kernel_map.project_each(rows, weights, coef), terms, atol=1e-9)


@every_mode
@pytest.mark.parametrize("make", [feature_map, precomputed_map])
def test_without_gaps_it_is_the_plain_map_bit_for_bit(make, missing, rng):
    X, new = rng.normal(size=(20, 6)), rng.normal(size=(8, 6))
    mask, new_mask = np.ones((20, 3), bool), np.ones((8, 3), bool)
    completed = make(X, mask, missing)
    if make is feature_map:
        plain = KernelMap(FeatureSource(make_views(), blocks_of(X, mask)))
        rows = ObservedViews.complete(blocks_of(new, new_mask))
    else:
        plain = KernelMap(PrecomputedSource(grams(X, X), list("abcd")))
        rows = ObservedViews.complete(grams(new, X))
    assert_array_equal(completed.fit().stack, plain.fit().stack)
    weights, coef = rng.random(4), rng.normal(size=(20, 2))
    assert_array_equal(
        completed.project(rows, weights, coef), plain.project(rows, weights, coef)
    )
    assert completed.remarks == [] and completed.repairs == {}


@every_mode
def test_kernels_are_kernels(missing, rng):
    X, mask = rng.normal(size=(30, 6)), draw_mask(rng, 30, 0.5)
    kernel_map = feature_map(X, mask, missing)
    stack = kernel_map.fit().stack
    for i, G in enumerate(stack):
        own = mask[:, VIEW_OF[i]]
        assert_allclose(G, G.T, atol=1e-12)
        assert_allclose(G.sum(axis=0), 0, atol=1e-9)
        assert np.linalg.eigvalsh(G)[0] > -1e-9
        assert_allclose(np.trace(G), own.sum() if missing == "zero" else 30)
        if missing == "zero":
            assert not np.any(G[~own]) and not np.any(G[:, ~own])


def test_few_rows_are_not_taken_for_the_identity(rng):
    """The remark on a learned alpha compares kernels to the identity over all rows."""
    X, mask = rng.normal(size=(40, 6)), np.ones((40, 3), bool)
    mask[8:, 0] = False
    narrow = [[RBF(gamma=1e9)], [Linear()], [RBF(gamma=1e9)]]
    bank = feature_map(X, mask, "zero", kernels=narrow).fit()
    likeness = bank.identity_likeness(np.arange(3))
    n_own = mask[:, 0].sum()
    assert_allclose(likeness[0], np.sqrt((n_own - 1) / 39), rtol=1e-6)
    # measured over 21 seeds: 0.21 to 0.23, and 1
    assert likeness[1] < 0.5 and likeness[2] > 0.99


def test_signed_weights_get_equal_traces(rng):
    X, mask = rng.normal(size=(25, 6)), draw_mask(rng, 25)
    plain, equal = (
        feature_map(X, mask, "zero", equal_trace=flag).fit().stack
        for flag in (False, True)
    )
    assert_allclose([np.trace(G) for G in equal], 25)
    factor = 25 / mask.sum(axis=0)[VIEW_OF]
    assert_allclose(equal, plain * factor[:, None, None], atol=1e-12)


@every_mode
@pytest.mark.parametrize("make", [feature_map, precomputed_map])
@pytest.mark.parametrize("equal_trace", [False, True])
def test_training_rows_as_new_rows(make, missing, equal_trace, rng):
    X, mask = rng.normal(size=(24, 6)), draw_mask(rng, 24)
    kernel_map = make(X, mask, missing, equal_trace=equal_trace)
    stack = kernel_map.fit().stack
    if make is feature_map:
        rows = ObservedViews(blocks_of(X, mask), mask)
    else:
        rows = ObservedViews(grams(X, X), mask[:, VIEW_OF])
    for i in range(4):
        assert_allclose(kernel_map.cross(rows, np.eye(4)[i]), stack[i], atol=1e-10)


@every_mode
def test_only_observed_rows_decide_about_kernels(missing, rng):
    X, mask = rng.normal(size=(25, 6)), draw_mask(rng, 25)
    kernels = [["auto"], [RBF()], [Pipe(StandardScaler(), Laplacian())]]
    kernel_map = feature_map(X, mask, missing, kernels=kernels)
    kernel_map.fit()
    for v in range(3):
        block = X[mask[:, v], 2 * v : 2 * v + 2]
        alone = FeatureSource([make_views(kernels)[v]], [block])
        own = [k for view, k in kernel_map.source.places if view == v]
        wanted = [k for _, k in alone.places]
        assert [k.label for k in own] == [k.label for k in wanted]
        assert_allclose(own[-1].gram(block), wanted[-1].gram(block))


@every_mode
def test_values_of_absent_rows_are_ignored(missing, rng):
    X, mask = rng.normal(size=(20, 6)), draw_mask(rng, 20)
    found = []
    for value in (0.0, 7.0, 1e6):
        raw, seen = grams(X, X), mask[:, VIEW_OF]
        for i in range(4):
            raw[~seen[:, i], :, i] = value
            raw[:, ~seen[:, i], i] = -value  # not even symmetric
        source = PrecomputedSource(raw, list("abcd"), seen)
        found.append(CompletedKernelMap(source, "error", missing).fit().stack)
    assert_array_equal(found[0], found[1])
    assert_array_equal(found[0], found[2])


@every_mode
def test_order_of_rows_and_views_does_not_matter(missing, rng):
    X, mask = rng.normal(size=(20, 6)), draw_mask(rng, 20)
    stack = feature_map(X, mask, missing).fit().stack
    order = rng.permutation(20)
    shuffled = feature_map(X[order], mask[order], missing).fit().stack
    assert_allclose(shuffled, stack[:, order][:, :, order], atol=1e-9)
    source = PrecomputedSource(
        grams(X, X)[:, :, ::-1].copy(), list("abcd"), mask[:, VIEW_OF][:, ::-1]
    )
    backwards = CompletedKernelMap(source, "error", missing).fit().stack
    assert_allclose(backwards[::-1], stack, atol=1e-9)


def test_complete_kernels_are_left_alone(rng):
    X, mask = rng.normal(size=(20, 6)), draw_mask(rng, 20)
    mask[:, 1], mask[5, 0], mask[6, 2] = True, False, False
    completed = feature_map(X, mask, "available")
    plain = KernelMap(FeatureSource(make_views(), blocks_of(X, np.ones_like(mask))))
    assert_array_equal(completed.fit().stack[1:3], plain.fit().stack[1:3])
    assert sorted(completed.repairs) == [0, 3]


def test_equal_kernels_complete_each_other(rng):
    """Entries missing in one kernel are present in the other, so nothing is lost."""
    X = rng.normal(size=(20, 2))
    whole = np.repeat(RBF(gamma=0.3)(X)[:, :, None], 2, axis=2)
    seen = np.ones((20, 2), bool)
    seen[:5, 0] = False
    source = PrecomputedSource(whole.copy(), ["a", "b"], seen)
    kernel_map = CompletedKernelMap(source, "error", "available")
    completed = kernel_map.fit().stack
    plain = KernelMap(PrecomputedSource(whole, ["a", "b"])).fit().stack
    # They differ only because the two kernels were centred over different rows.
    cosine = np.sum(completed[0] * plain[0]) / np.linalg.norm(plain[0])
    # measured over 21 seeds: 0.986 to 1
    assert cosine / np.linalg.norm(completed[0]) > 0.97


def test_pairs_without_a_common_view_are_zero_before_centring(rng):
    n = 12
    seen = np.zeros((n, 2), bool)
    seen[:6, 0], seen[6:, 1] = True, True
    K = np.stack([RBF(gamma=0.3)(rng.normal(size=(n, 2)))] * 2, axis=-1)
    source = PrecomputedSource(K, ["a", "b"], seen)
    G = CompletedKernelMap(source, "error", "available").fit().stack
    # Both kernels are then equal, with one diagonal block from each.
    assert_allclose(G[0], G[1], atol=1e-10)
    assert_allclose(G[0][:6, 6:], 0, atol=1e-10)


@every_mode
def test_a_view_missing_in_all_new_rows(missing, rng):
    """Transformers and kernels never see an empty block."""
    X, new = rng.normal(size=(20, 6)), rng.normal(size=(4, 6))
    mask, new_mask = draw_mask(rng, 20), np.ones((4, 3), bool)
    new_mask[:, 1] = False
    kernels = [[RBF()], [Pipe(PCA(1), Linear())], [Linear()]]
    kernel_map = feature_map(X, mask, missing, kernels=kernels)
    kernel_map.fit()
    rows = ObservedViews(blocks_of(new, new_mask), new_mask)
    one = kernel_map.cross(rows, np.array([0.0, 1.0, 0.0]))
    assert np.all(np.isfinite(one)) and one.shape == (4, 20)
    assert np.any(one) == (missing == "available")


@every_mode
def test_chunks_do_not_matter(missing, rng):
    X, new = rng.normal(size=(20, 6)), rng.normal(size=(13, 6))
    mask, new_mask = draw_mask(rng, 20), draw_mask(rng, 13)
    kernel_map = feature_map(X, mask, missing)
    whole = kernel_map.fit().stack
    rows, weights = ObservedViews(blocks_of(new, new_mask), new_mask), rng.random(4)
    coef = rng.normal(size=(20, 2))
    expected = kernel_map.cross(rows, weights)
    projected = kernel_map.project(rows, weights, coef)
    kernel_map.chunk_entries = 150
    assert len(list(kernel_map.pieces(rows))) > 1
    assert_allclose(kernel_map.cross(rows, weights), expected, atol=1e-12)
    assert_allclose(kernel_map.project(rows, weights, coef), projected, atol=1e-10)
    again = feature_map(X, mask, missing)
    again.chunk_entries = 150
    assert_allclose(again.fit().stack, whole, atol=1e-12)


@every_mode
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_array_libraries(missing, dtype, rng, xp_backend):
    X, new = rng.normal(size=(20, 6)), rng.normal(size=(7, 6))
    mask, new_mask = draw_mask(rng, 20), rng.random((7, 3)) > 0.4

    def move(values):
        return xp_backend.asarray(values, dtype)

    expected = feature_map(X, mask, missing)
    wanted = expected.fit().stack
    kernel_map = feature_map(X, mask, missing, move)
    found = kernel_map.fit().stack
    atol = 1e-9 if dtype == "float64" else 2e-5  # measured: up to 4e-6
    assert found.dtype == move(X).dtype
    assert_allclose(to_numpy(found), wanted, atol=atol)
    rows = ObservedViews(blocks_of(new, new_mask, move), new_mask)
    plain = ObservedViews(blocks_of(new, new_mask), new_mask)
    weights, coef = rng.random(4), rng.normal(size=(20, 2))
    projected = kernel_map.project(rows, weights, move(coef))
    assert projected.dtype == move(X).dtype
    wanted = expected.project(plain, weights, coef)
    # The number of small eigenvalues that count as zero depends on the precision.
    # measured: up to 7e-6 in float32
    atol = 1e-8 if dtype == "float64" else 1e-3 * np.abs(wanted).max()
    assert_allclose(to_numpy(projected), wanted, atol=atol)


def test_remarks_tell_rows_and_repair(rng):
    X, mask = rng.normal(size=(30, 6)), np.ones((30, 3), bool)
    mask[4:11, 1] = False
    zero = feature_map(X, mask, "zero")
    filled = zero.fit().stack
    assert zero.remarks == [
        "view 'v1': 7 of 30 training rows lack it; they are zero in its kernels"
    ]
    available = feature_map(X, mask, "available")
    available.fit()
    (remark,) = available.remarks
    assert remark.startswith("view 'v1': 7 of 30 training rows lack it; their entries")
    seen, shares = mask[:, VIEW_OF].T, []
    pairs = seen[:, :, None] & seen[:, None, :]  # (p, n, n)
    mean = filled.sum(axis=0) / np.maximum(pairs.sum(axis=0), 1)
    for i in np.flatnonzero(np.array(VIEW_OF) == 1):
        P = np.eye(30) - 1 / 30
        values = np.linalg.eigvalsh(P @ np.where(pairs[i], filled[i], mean) @ P)
        values *= 30 / values.sum()
        shares.append(np.abs(values[values <= 0.01]).sum() / np.abs(values).sum())
    assert (
        f"clipping removed at most {100 * max(shares):.2g} % of the spectrum" in remark
    )


@every_mode
def test_a_view_with_a_single_row_says_nothing(missing, rng):
    X, mask = rng.normal(size=(15, 6)), np.ones((15, 3), bool)
    mask[1:, 2] = False
    kernel_map = feature_map(X, mask, missing)
    with pytest.warns(KernelWarning, match="'v2'.*constant on the training rows"):
        bank = kernel_map.fit()
    assert kernel_map.active == [0, 1, 2] and bank.n_kernels == 3
    rest = feature_map(X[:, [0, 1, 2, 3, 0, 1]], np.ones((15, 3), bool), missing)
    assert_array_equal(bank.stack, rest.fit().stack[:3])


@every_mode
def test_indefinite_kernels_are_refused_on_their_own_rows(missing, rng):
    X, mask = rng.normal(size=(20, 6)), draw_mask(rng, 20)
    raw = grams(X, X)
    raw[:, :, 1] = np.tanh(3 * raw[:, :, 1] - 1)
    source = PrecomputedSource(raw, list("abcd"), mask[:, VIEW_OF])
    with pytest.raises(ValueError, match=r"kernel 1 .'b'. is not positive semidef"):
        CompletedKernelMap(source, "error", missing).fit()
    source = PrecomputedSource(raw, list("abcd"), mask[:, VIEW_OF])
    kernel_map = CompletedKernelMap(source, "clip", missing)
    with pytest.warns(KernelWarning, match="indefinite"):
        stack = kernel_map.fit().stack
    rows = ObservedViews(raw, mask[:, VIEW_OF])
    for i in range(4):
        assert_allclose(kernel_map.cross(rows, np.eye(4)[i]), stack[i], atol=1e-9)


def test_memory_for_projectors_is_counted(rng):
    X = rng.normal(size=(20, 6))
    mask = draw_mask(rng, 20)
    mask[:, 0], mask[4, 1], mask[5, 2] = True, False, False
    plain = feature_map(X, mask, "zero")._work_matrices()
    assert feature_map(X, mask, "available")._work_matrices() == plain + 3 + 1
    full = np.ones_like(mask)
    assert feature_map(X, full, "available")._work_matrices() == plain


def test_spread_out():
    own = np.arange(1.0, 7.0).reshape(2, 3)
    rows, columns = np.array([0, 1, 0, 1], bool), np.array([1, 0, 1, 1, 0], bool)
    found = spread_out(own, rows, columns)
    assert_array_equal(found[np.ix_(rows, columns)], own)
    assert np.count_nonzero(found) == 6 and found.shape == (4, 5)
    assert spread_out(own, np.ones(2, bool), np.ones(3, bool)) is own


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("auto", False),
        (RBF(), False),
        (Pipe(PCA(2), RBF()), False),
        (Pipe(SimpleImputer, RBF()), False),
        (Pipe("text", RBF()), False),
        (Pipe(SimpleImputer(), RBF()), True),
        (Pipe(SimpleImputer(), ["linear", RBF()]), True),
        (Pipe(make_pipeline(SimpleImputer(), PCA(2)), RBF()), True),
        ([Pipe(SimpleImputer(), RBF()), Linear()], False),
        ([Pipe(SimpleImputer(), RBF()), (Pipe(SimpleImputer(), Linear()),)], True),
    ],
    ids=str,
)
def test_which_views_impute(kernel, expected):
    assert imputes(kernel) is expected
