"""Ranks of rows by what they hold: the same in any order and in any container."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from kernelweave.views.missing import ObservedViews
from kernelweave.views.ordering import FEW_COLUMNS, ranks_of_rows
from kernelweave.views.raw_columns import Columns

N = 40
NO_TARGETS = np.zeros(N)


def ranks(*blocks, targets=NO_TARGETS, weights=None):
    return ranks_of_rows(ObservedViews.complete(list(blocks)), targets, weights)


@pytest.fixture
def table(rng):
    """Few values, of either sign, and twelve columns: more than the first ones."""
    X = rng.integers(-1, 2, size=(N, 12)) * rng.choice([0.5, 3.0], size=(N, 12))
    X[N // 2 :, :FEW_COLUMNS] = X[: N // 2, :FEW_COLUMNS]
    return X


def expected(X):
    return np.unique(X, axis=0, return_inverse=True)[1].reshape(-1)


def test_the_first_column_decides_then_the_second(table):
    np.testing.assert_array_equal(ranks(table), expected(table))
    halves = ranks(table[:, :5], table[:, 5:])
    np.testing.assert_array_equal(halves, expected(table))


def test_containers_agree(table):
    pd = pytest.importorskip("pandas")
    wanted, labels = ranks(table), list(range(12))
    negative_zeros = np.where(table == 0, -0.0, table)
    stored_zeros = csr_array(np.where(table == 0, 7.0, table))
    stored_zeros.data[stored_zeros.data == 7.0] = 0.0
    for same in (
        negative_zeros,
        table.astype(np.float32),
        csr_array(table),
        stored_zeros,
        Columns(pd.DataFrame(table), labels),
        Columns(table.astype(object), labels),
    ):
        np.testing.assert_array_equal(ranks(same), wanted)


def test_rows_in_another_order_keep_their_ranks(table, rng):
    order = rng.permutation(N)
    np.testing.assert_array_equal(ranks(table[order]), ranks(table)[order])


def test_gaps_come_last_and_words_in_their_order():
    pd = pytest.importorskip("pandas")
    words = pd.DataFrame(
        {
            "a": pd.Series(["b", "a", None, "b", "a\ud800"], dtype=object),
            "b": [1.0, np.nan, 2.0, -5.0, 0.0],
        }
    )
    found = ranks(Columns(words, ["a", "b"]), targets=np.zeros(5))
    np.testing.assert_array_equal(found, [3, 0, 4, 2, 1])
    found = ranks(np.array([[np.nan], [np.inf], [-np.inf], [0.0]]), targets=np.zeros(4))
    np.testing.assert_array_equal(found, [3, 2, 0, 1])


def test_targets_and_weights_decide_between_equal_rows():
    X, y = np.zeros((N, 2)), np.arange(N) % 2
    np.testing.assert_array_equal(ranks(X, targets=y), y)
    np.testing.assert_array_equal(ranks(X, targets=np.array(["q", "r"])[y]), y)
    np.testing.assert_array_equal(ranks(X, targets=np.eye(2)[y]), 1 - y)
    weights = np.arange(N)[::-1] + 1.0
    found = ranks(X, targets=y, weights=weights)
    np.testing.assert_array_equal(found, np.argsort(np.lexsort((weights, y))))


@pytest.mark.parametrize("centred", [False, True])
def test_kernels_whose_rows_and_columns_are_permuted(rng, centred):
    X = rng.normal(size=(N, 3))
    K = np.exp(-0.3 * np.sum((X[:, None] - X[None]) ** 2, axis=2))
    K = K - K.mean(axis=0) - K.mean(axis=1)[:, None] + K.mean() if centred else K
    stack = np.stack([np.ones_like(K), K], axis=-1)  # the first says nothing
    found = ranks_of_rows(ObservedViews.complete(stack), NO_TARGETS, None)
    assert len(np.unique(found)) == N
    for _ in range(20):
        order = rng.permutation(N)
        mixed = stack[np.ix_(order, order)] * (1 + 1e-15 * rng.normal(size=stack.shape))
        again = ranks_of_rows(ObservedViews.complete(mixed), NO_TARGETS, None)
        np.testing.assert_array_equal(again, found[order])
