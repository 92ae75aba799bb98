"""Sums over chunks, in an order that depends only on how many there are."""

from __future__ import annotations

from typing import Generic, TypeVar

__all__ = ["FixedTree"]

#: Adjacent parts that are summed sequentially before the tree begins, so that far fewer
#: partial sums than chunks have to be kept and sent.
GROUP = 8

T = TypeVar("T")


class FixedTree(Generic[T]):
    """Sum a stream of parts pairwise: ``(0..7) + (8..15)``, and so on upwards.

    Floating-point sums depend on the order of additions. Here the order follows from
    the positions of the parts alone, so that a sum is the same, bit for bit, no matter
    how long it took and where the parts were computed. At most ``log2(parts / 8) + 2``
    partial sums are alive. An exception, such as a keyboard interrupt, loses nothing:
    either a part has been added, or it has not.
    """

    def __init__(self) -> None:
        self.count = 0
        self._group: T | None = None
        self._levels: tuple[T | None, ...] = ()

    def push(self, part: T) -> None:
        """Add the next part."""
        group: T | None = _add(self._group, part)
        levels = self._levels
        if (self.count + 1) % GROUP == 0:
            levels, group = _carry(levels, group), None
        # A single assignment, so that no interrupt can separate them.
        self._group, self._levels, self.count = group, levels, self.count + 1

    def total(self, last: T | None = None) -> T:
        """The sum of all parts, with ``last`` as one more that is not kept."""
        total = self._group if last is None else _add(self._group, last)
        for level in self._levels:
            if level is not None:
                total = level if total is None else _add(level, total)
        if total is None:
            raise ValueError("there is nothing to sum: no rows have been seen")
        return total


def _add(a: T | None, b: T) -> T:
    return b if a is None else a.merge(b)  # type: ignore[attr-defined]


def _carry(levels: tuple[T | None, ...], part: T) -> tuple[T | None, ...]:
    """Like adding one to a binary number: equal levels merge and move up."""
    new = list(levels)
    for i, level in enumerate(levels):
        if level is None:
            new[i] = part
            return tuple(new)
        part, new[i] = _add(level, part), None
    return (*new, part)
