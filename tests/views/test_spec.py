"""Valid values of ``views``, and the messages for all others."""

from __future__ import annotations

import pytest

from kernelweave.views.columns import View, is_precomputed, parse_views


def test_none_is_one_view_of_all_columns():
    assert parse_views(None) == [View("all", "auto", slice(None))]


def test_precomputed_has_no_column_groups():
    assert is_precomputed("precomputed")
    assert not is_precomputed(["precomputed"])
    assert parse_views("precomputed") == []


def test_list_of_tuples_keeps_order_and_objects():
    kernel, columns = object(), ["g1"]
    first, second = parse_views([("rna", kernel, columns), ("dna", "rbf", slice(3))])
    assert (first.name, second.name) == ("rna", "dna")
    assert first.kernel is kernel
    assert first.columns is columns


@pytest.mark.parametrize(
    ("views", "error", "message"),
    [
        ("precomputd", ValueError, "found the string 'precomputd'"),
        ({"rna": [0]}, TypeError, "found dict {'rna': "),
        (("rna", "rbf", [0]), TypeError, "found tuple"),
        ([], ValueError, "found an empty list"),
        ([("rna", [0, 1])], ValueError, "tuple of length 2 at position 0"),
        ([("a", "rbf", [0]), ["b", "rbf", [1]]], TypeError, "list .* at position 1"),
        ([(0, "rbf", [0])], TypeError, "must be a str; found int 0"),
        ([("", "rbf", [0])], ValueError, "position 0 is empty"),
        ([("a__b", "rbf", [0])], ValueError, "contain '__'; found 'a__b'"),
        (
            [("a", "rbf", [0]), ("b", "rbf", [1]), ("a", "rbf", [2])],
            ValueError,
            "'a' is used twice, at positions 0 and 2",
        ),
        ([("alpha", "rbf", [0])], ValueError, "'alpha' is also a parameter"),
    ],
)
def test_everything_else_is_refused_with_what_was_found(views, error, message):
    with pytest.raises(error, match=message):
        parse_views(views, reserved=["alpha", "views"])
