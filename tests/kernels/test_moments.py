"""Moments of chunks: their values, and their independence of order and portions."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from kernelweave._array import to_numpy
from kernelweave.kernels import RBF, Linear, moments
from kernelweave.kernels.features.recipe import FeatureRecipe
from kernelweave.kernels.moments import (
    PROBE_ROWS,
    ChunkRecipe,
    FixedTree,
    RowAccumulator,
)
from kernelweave.views.columns import View

VIEWS = [View("a", ["linear", RBF()], [0, 1]), View("b", Linear(), [2])]


def make(rng, n=100, n_folds=1, classify=True, dtype=np.float64):
    X = rng.normal(size=(n, 3)).astype(dtype)
    y = np.array(["u", "v", "w"])[rng.integers(3, size=n)]
    if not classify:
        y = rng.normal(size=(n, 2))
    blocks = [X[:, :2], X[:, 2:]]
    features = FeatureRecipe(VIEWS, blocks, "nystroem", 8)
    return ChunkRecipe(features, X[:0], classify, n_folds), blocks, y


def rows_of(recipe, blocks, y):
    """The matrix A behind the moments."""
    Z = np.empty((len(y), recipe.features.n_features))
    recipe.features.write([b.astype(float) for b in blocks], Z)
    target = y if y.ndim == 2 else (y[:, None] == np.unique(y)).astype(float)
    return np.concatenate([np.ones((len(y), 1)), target, Z], axis=1)


@pytest.mark.parametrize("classify", [True, False])
@pytest.mark.parametrize("n_folds", [1, 4])
def test_moments_of_a_chunk(classify, n_folds, rng):
    recipe, blocks, y = make(rng, n_folds=n_folds, classify=classify)
    moments = recipe(blocks, y, 0)
    A = rows_of(recipe, blocks, y)
    assert moments.gram.shape[0] == n_folds and moments.n_rows == 100
    assert_allclose(moments.total(), A.T @ A, atol=1e-10)
    assert moments.n_targets == (3 if classify else 2)
    assert np.all(moments.gram[:, 0, 0] >= 0)


@pytest.mark.parametrize("classify", [True, False])
@pytest.mark.parametrize("n_folds", [1, 4])
def test_moments_of_weighted_rows(classify, n_folds, rng):
    recipe, blocks, y = make(rng, n_folds=n_folds, classify=classify)
    weights = rng.uniform(0.1, 3.0, 100)
    A = rows_of(recipe, blocks, y)
    moments = recipe(blocks, y, 0, weights)
    assert_allclose(moments.total(), A.T @ (weights[:, None] * A), atol=1e-10)
    sizes = np.unique(y, return_counts=True)[1] if classify else [100]
    assert moments.sizes.tolist() == list(sizes) and moments.n_rows == 100
    # a portion of the rows may lack some of the classes
    accumulator = RowAccumulator(recipe, 30)
    order = np.argsort(y.reshape(100, -1)[:, 0])
    for part in np.split(order, [7, 40]):
        accumulator.push([block[part] for block in blocks], y[part], weights[part])
    total = accumulator.total()
    assert_allclose(total.total(), moments.total(), atol=1e-10)
    assert total.sizes.tolist() == list(sizes)
    assert_allclose(np.sort(total.probe.weights), np.sort(weights))


def test_moments_on_other_libraries(rng, xp_backend):
    recipe, blocks, y = make(rng, n_folds=3)
    there = ChunkRecipe(recipe.features, xp_backend.asarray(blocks[0][:0]), True, 3)
    found = there([xp_backend.asarray(b) for b in blocks], y, 5)
    expected = recipe(blocks, y, 5)
    assert_allclose(to_numpy(found.gram), expected.gram, atol=1e-9)
    assert np.array_equal(found.probe.keys, expected.probe.keys)
    # rows in host memory are moved there
    assert_allclose(to_numpy(there(blocks, y, 5).gram), expected.gram, atol=1e-9)
    # and a chunk may lack some of the classes
    few = there([xp_backend.asarray(b[:9]) for b in blocks], np.repeat(["w"], 9), 6)
    both = found.merge(few)
    assert both.labels.tolist() == ["u", "v", "w"] and both.n_rows == 109
    assert_allclose(float(both.total()[0, 3]), np.sum(y == "w") + 9)


def test_single_precision_sums_are_double(rng):
    recipe, blocks, y = make(rng, n=3000, dtype=np.float32)
    accumulator = RowAccumulator(recipe, 100)
    accumulator.push(blocks, y)
    moments = accumulator.total()
    assert moments.gram.dtype == np.float64
    A = rows_of(recipe, blocks, y)
    truth = A.T @ A
    assert_allclose(moments.total(), truth, atol=1e-5 * truth.max())


def test_classes_that_come_later_find_their_place(rng):
    recipe, blocks, y = make(rng)
    order = np.argsort(y == "u", kind="stable")  # "u" comes last
    blocks, y = [b[order] for b in blocks], y[order]
    parts = [slice(0, 40), slice(40, 100)]
    tree = FixedTree()
    for number, part in enumerate(parts):
        tree.push(recipe([b[part] for b in blocks], y[part], number))
    moments = tree.total()
    assert moments.labels.tolist() == ["u", "v", "w"]
    A = rows_of(recipe, blocks, y)
    assert_allclose(moments.total(), A.T @ A, atol=1e-10)


@pytest.mark.parametrize("weighted", [False, True])
def test_sparse_and_dense_rows_have_the_same_moments(weighted, rng):
    weights = rng.uniform(0.1, 3.0, 100) if weighted else None
    _, blocks, y = make(rng, n_folds=2)
    thin = [sparse.csr_array(b * (rng.random(b.shape) < 0.5)) for b in blocks]
    features = FeatureRecipe(VIEWS, thin, "nystroem", 8)
    assert features.sparse == [True, False, True]
    found = ChunkRecipe(features, blocks[0][:0], True, 2)(thin, y, 0, weights)
    dense = [b.toarray() for b in thin]
    features.sparse = [False] * 3
    for step in {step for steps in features.steps for step in steps}:
        step.mean_ = np.zeros_like(step.mean_)  # sparse rows are not centred
    expected = ChunkRecipe(features, blocks[0][:0], True, 2)(dense, y, 0, weights)
    assert_allclose(found.gram, expected.gram, atol=1e-12)


@pytest.mark.parametrize("portions", [[100], [1] * 100, [33, 33, 34], [7, 80, 13]])
def test_portions_do_not_matter(portions, rng):
    recipe, blocks, y = make(rng, n_folds=2)
    whole = RowAccumulator(recipe, 16)
    whole.push(blocks, y)
    expected = whole.total()
    accumulator, start = RowAccumulator(recipe, 16), 0
    for size in portions:
        part = slice(start, start + size)
        accumulator = accumulator.added([b[part] for b in blocks], y[part])
        accumulator.total()  # does not change the state
        start += size
    found = accumulator.total()
    assert np.array_equal(found.gram, expected.gram)  # bit for bit
    assert np.array_equal(found.probe.keys, expected.probe.keys)
    assert all(
        np.array_equal(a, b)
        for a, b in zip(found.probe.views, expected.probe.views, strict=True)
    )


def test_no_more_rows_are_kept_than_are_needed(rng, monkeypatch):
    """Those of the probe of all, however many sums there are, and those that wait."""
    monkeypatch.setattr(moments, "PROBE_ROWS", 20)
    recipe, blocks, y = make(rng, n=15 * 8 * 4 + 8 + 3, n_folds=2)
    whole = RowAccumulator(recipe, 4)
    whole.push(blocks, y)  # sums of rows that no other rows follow keep more
    accumulator = RowAccumulator(recipe, 4)
    for start in range(0, len(y), 25):
        part = slice(start, start + 25)
        accumulator = accumulator.added([b[part] for b in blocks], y[part])
        n_waiting = accumulator.n_rows % 4
        assert n_waiting <= accumulator.n_kept <= 20 + n_waiting
    assert len(accumulator.tree.sums) == 5
    assert accumulator.n_kept == 23 < whole.n_kept
    found, expected = accumulator.total().probe, whole.total().probe
    assert np.array_equal(found.keys, expected.keys)
    assert np.array_equal(found.y, expected.y)
    assert np.array_equal(found.weights, expected.weights)
    for a, b in zip(found.views, expected.views, strict=True):
        assert np.array_equal(a, b)


def test_a_refused_or_interrupted_portion_leaves_no_trace(rng):
    recipe, blocks, y = make(rng)
    accumulator = RowAccumulator(recipe, 16)
    accumulator = accumulator.added([b[:50] for b in blocks], y[:50])
    before = accumulator.total()

    class Interrupting:
        calls, features = 0, recipe.features

        def __call__(self, *arguments):
            Interrupting.calls += 1
            if Interrupting.calls == 2:
                raise KeyboardInterrupt
            return recipe(*arguments)

    accumulator.recipe = Interrupting()
    with pytest.raises(KeyboardInterrupt):
        accumulator.added([b[50:] for b in blocks], y[50:])
    accumulator.recipe = recipe
    assert np.array_equal(accumulator.total().gram, before.gram)
    after = accumulator.added([b[50:] for b in blocks], y[50:])
    whole = RowAccumulator(recipe, 16)
    whole.push(blocks, y)
    assert np.array_equal(after.total().gram, whole.total().gram)


class Part:
    """A summand that records the order of additions as text."""

    def __init__(self, text):
        self.text = text

    def merge(self, other):
        return Part(f"({self.text}+{other.text})")


def test_the_tree_is_fixed():
    tree = FixedTree()
    with pytest.raises(ValueError, match="no rows"):
        tree.total()
    for i in range(28):
        tree.push(Part(str(i)))
    first, second, third = (
        f"{'(' * 7}{start}" + "".join(f"+{i})" for i in range(start + 1, start + 8))
        for start in (0, 8, 16)
    )
    rest = "(((24+25)+26)+27)"
    assert tree.total().text == f"(({first}+{second})+({third}+{rest}))"
    assert tree.total(Part("x")).text == f"(({first}+{second})+({third}+({rest}+x)))"
    assert tree.count == 28


def test_probe_is_a_sample_of_all_rows_in_any_order(rng):
    recipe, blocks, y = make(rng, n=6000)
    parts = [slice(i, i + 1500) for i in range(0, 6000, 1500)]
    chunks = [recipe([b[p] for b in blocks], y[p], i) for i, p in enumerate(parts)]
    forth = chunks[0].merge(chunks[1]).merge(chunks[2].merge(chunks[3])).probe
    back = chunks[3].merge(chunks[2]).merge(chunks[1].merge(chunks[0])).probe
    assert len(forth.keys) == PROBE_ROWS
    assert np.array_equal(np.sort(forth.keys), np.sort(back.keys))
    assert np.array_equal(np.sort(forth.keys), forth.keys)
    # rows keep their labels, and every quarter of the rows is represented
    known = {tuple(row): i for i, row in enumerate(blocks[0])}
    where = np.array([known[tuple(row)] for row in forth.views[0]])
    assert np.array_equal(y[where], forth.y)
    assert np.all(np.bincount(where // 1500, minlength=4) > 900)
