"""Columns of a view: every way to specify them, for every kind of container."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.compose import make_column_selector

from kernelweave.views.columns import View, find_columns, resolve_columns

NAMES = ["g1", "g2", "p1", "p2", "p3"]
DATA = np.arange(15.0).reshape(3, 5)


def pandas_frame():
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(DATA, columns=NAMES)


def polars_frame():
    polars = pytest.importorskip("polars")
    return polars.DataFrame(DATA, schema=NAMES)


def arrow_table():
    pyarrow = pytest.importorskip("pyarrow")
    return pyarrow.table(dict(zip(NAMES, DATA.T, strict=True)))


FRAMES = [pandas_frame, polars_frame, arrow_table]


def positions(X, *columns):
    views = [View(f"v{i}", "auto", c) for i, c in enumerate(columns)]
    return resolve_columns(X, views)


@pytest.mark.parametrize("make", [lambda: DATA, *FRAMES])
@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (2, [2]),
        (-1, [4]),
        (np.int64(1), [1]),
        ([0, -1], [0, 4]),
        ([3, 1], [3, 1]),
        ((0, 2), [0, 2]),
        (range(1, 4), [1, 2, 3]),
        (np.array([4, 0]), [4, 0]),
        (slice(None), [0, 1, 2, 3, 4]),
        (slice(1, 3), [1, 2]),
        (slice(-2, None), [3, 4]),
        (slice(None, None, 2), [0, 2, 4]),
        ([True, False, False, False, True], [0, 4]),
        (np.array([False, True, True, False, False]), [1, 2]),
        (lambda X: [0, X.shape[1] - 1], [0, 4]),
        (lambda X: slice(0, 2), [0, 1]),
    ],
)
def test_positions_slices_masks_and_callables(make, columns, expected):
    assert positions(make(), columns) == [expected]


@pytest.mark.parametrize("make", FRAMES)
@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ("p1", [2]),
        (["p3", "g1"], [4, 0]),
        (np.array(["g2", "p1"]), [1, 2]),
        (slice("g2", "p2"), [1, 2, 3]),
        (slice(None, "g2"), [0, 1]),
        (slice("p2", None), [3, 4]),
        (lambda X: [name for name in NAMES if name.startswith("g")], [0, 1]),
    ],
)
def test_names(make, columns, expected):
    assert positions(make(), columns) == [expected]


def test_selector_index_and_mask_of_pandas():
    X = pandas_frame().assign(text="a")
    assert positions(X, make_column_selector(pattern="^p")) == [[2, 3, 4]]
    assert positions(X, make_column_selector(dtype_include=np.number)) == [
        [0, 1, 2, 3, 4]
    ]
    assert positions(X, X.columns[:2], X.columns.str.startswith("p")) == [
        [0, 1],
        [2, 3, 4],
    ]


def test_integer_labels_of_a_frame_are_not_positions():
    pandas = pytest.importorskip("pandas")
    X = pandas.DataFrame(DATA, columns=[10, 11, 12, 13, 14])
    assert positions(X, [0, 4]) == [[0, 4]]


def test_mask_from_each_array_library(xp_backend):
    mask = xp_backend.asarray([True, False, True, False, False], dtype="bool")
    X = xp_backend.asarray(DATA)
    assert positions(X, mask) == [[0, 2]]


def test_failing_selector_names_its_view():
    with pytest.raises(ValueError, match=r"'v0'.*selector failed.*pandas dataframes"):
        positions(DATA, make_column_selector(pattern="g"))


def test_views_may_share_columns():
    found = positions(pandas_frame(), slice("g2", "p1"), "p3", ["g1", "g2", "p1"])
    assert found == [[1, 2], [4], [0, 1, 2]]
    assert positions(DATA, [-1], [0, 4], slice(None)) == [[4], [0, 4], [0, 1, 2, 3, 4]]
    with pytest.raises(ValueError, match=r"'v1'.*selects the column 4 twice"):
        positions(DATA, [-1], [4, 0, -1])


# ---- new data ----------------------------------------------------------------------


def found_in(X, *columns):
    """Positions in X of the columns of views that were fitted on NAMES."""
    views = [View(f"v{i}", "auto", c) for i, c in enumerate(columns)]
    return find_columns(X, views, resolve_columns(DATA, views), NAMES)


@pytest.mark.parametrize("make", FRAMES)
def test_columns_are_found_by_name_in_any_order(make):
    X = make()
    assert found_in(X, [0, 1], [1, 4]) == [[0, 1], [1, 4]]
    order = ["p3", "g2", "p2", "g1"]
    X = X[order] if make is pandas_frame else X.select(order)
    assert found_in(X, [0, 1], [1, 4]) == [[3, 1], [1, 0]]  # no view uses p1
    lacks = r"lacks the column 'p1' \(views 'v0', 'v2'\), present in fit"
    with pytest.raises(ValueError, match=lacks):
        found_in(X, [0, 2], [3], [2, 4])


@given(
    st.permutations(NAMES), st.integers(0, 5), st.lists(st.integers(0, 4), min_size=1)
)
def test_the_same_entries_are_found(order, extra, columns):
    X = pandas_frame()[order]
    X.insert(extra, "new", "text")
    columns = list(dict.fromkeys(columns))
    (found,) = found_in(X, columns)
    assert [X.columns[c] for c in found] == [NAMES[c] for c in columns]


def test_repeated_names_matter_only_where_they_are_used():
    X = pandas_frame()
    twice = X[["g1", "g2", "p1", "g1", "p2", "p3"]]
    assert found_in(twice, [1, 2], [4]) == [[1, 2], [5]]
    with pytest.raises(ValueError, match=r"repeats the column name 'g1' \(view 'v1'\)"):
        found_in(twice, [1], [0, 4])


def test_many_lacking_columns_are_counted():
    X = pandas_frame().add_prefix("x")
    with pytest.raises(ValueError, match=r"'g1' \(view 'v0'\), .*Is 'g1' now .*'xg1'"):
        found_in(X, slice(None))
    names = [f"g{i}" for i in range(20)]
    view = View("v", "auto", slice(None))
    with pytest.raises(ValueError, match=r"'g4' \(view 'v'\) and 15 more, present"):
        find_columns(X[["xp1"]], [view], [list(range(20))], names)


@given(st.lists(st.integers(-5, 4), min_size=1, max_size=5), st.integers(0, 3))
def test_integers_agree_with_numpy(columns, cut):
    expected = np.arange(5)[columns].tolist()
    if len(set(expected)) < len(expected):
        with pytest.raises(ValueError, match=r"selects the columns? .* twice"):
            positions(DATA, columns)
    else:
        assert positions(DATA, columns) == [expected]
    assert positions(DATA, slice(cut, None)) == [np.arange(5)[cut:].tolist()]


def test_twenty_thousand_names_are_found_quickly():
    pandas = pytest.importorskip("pandas")
    names = [f"g{i}" for i in range(20_000)]
    X = pandas.DataFrame(np.zeros((1, 20_000)), columns=names)
    assert positions(X, names[::-1]) == [list(range(20_000))[::-1]]
