"""Valid values of ``views``, and the messages for all others."""

from __future__ import annotations

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
