"""Rows that lack a view: find them, and check the entries of all other rows.

A row lacks a view if all its entries in the view are NaN or, for precomputed kernels,
if its row or its column of the kernel is all NaN. Any other non-finite entry is an
error.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import issparse

from kernelweave._array import Array, namespace, to_numpy
from kernelweave._text import counted, prefixed, some, with_names
from kernelweave.exceptions import KernelWarning
from kernelweave.views.columns import View, host_like, observed_rows
from kernelweave.views.precomputed import validate_precomputed
from kernelweave.views.raw_columns import Columns
from kernelweave.views.streams import select_rows

#: Scores and probabilities say little about new rows without a view if fewer than this
#: share of the training rows lack it, and so many times this share of the new ones.
FEW_LACKING, MORE_OFTEN = 0.1, 2.0


@dataclass(frozen=True)
class ObservedViews:
    """The blocks of all views, and which rows have them.

    Attributes
    ----------
    blocks : list of arrays of shape (n, d_view), or one array of shape (m, n, p)
        Rows that lack the view are NaN in the list of blocks, and 0 in the array.
    observed : ndarray of bool of shape (n, v)
        One column per view (or precomputed kernel).
    numbers : ndarray of int of shape (n,), optional
        Indices of these rows in X; 0, 1, ... by default.
    """

    blocks: Any
    observed: np.ndarray
    numbers: np.ndarray | None = None

    @classmethod
    def complete(cls, blocks: Any) -> ObservedViews:
        """Rows that have every view."""
        listed = isinstance(blocks, list)
        n, v = (blocks[0].shape[0], len(blocks)) if listed else blocks.shape[::2]
        return cls(blocks, np.ones((n, v), dtype=bool))

    @property
    def like(self) -> Array:
        """An array with the library, device and dtype of the rows."""
        listed = isinstance(self.blocks, list)
        return host_like(self.blocks[0] if listed else self.blocks)

    def part(self, rows: slice) -> ObservedViews:
        """Some consecutive rows."""
        if isinstance(self.blocks, list):
            own = [block[rows, ...] for block in self.blocks]
        else:
            own = self.blocks[rows, ...]
        return ObservedViews(own, self.observed[rows])


def read_kernels(
    estimator: Any,
    X: Any,
    *,
    reset: bool,
    missing: bool = True,
    trained: np.ndarray | None = None,
) -> tuple[ObservedViews, list[str]]:
    """Check a stack of kernels in which rows of NaN mark samples without the kernel.

    Parameters
    ----------
    estimator : estimator
        If ``reset``, its ``n_features_in_`` is set to n; otherwise it is compared to n.
    X : array-like of shape (n, n) or (n, n, p); (m, n) or (m, n, p) if not ``reset``
        Kernel values. At fit, a sample lacks the kernel if its row or column is all
        NaN, and all its values are ignored. At prediction, a new sample lacks it if its
        values are NaN for all training samples that had the kernel.
    reset : bool
        True in ``fit``, False afterwards.
    missing : bool, default=True
        Whether samples may lack a kernel.
    trained : ndarray of bool of shape (n, p), default=None
        Which training samples had which kernel; the values for the others are ignored.

    Returns
    -------
    views : ObservedViews
        ``blocks`` is the stack (m, n, p), with 0 for NaN.
    names : list of str
        ``kernel_0``, ``kernel_1``, ...
    """
    K, names = validate_precomputed(estimator, X, reset=reset, allow_nan=missing)
    xp, (m, n, p) = namespace(K), K.shape
    blanks = xp.isnan(K) if missing else None
    if blanks is None or not bool(xp.any(blanks)):
        return ObservedViews.complete(K), names
    gaps: Any = to_numpy(blanks)
    observed = np.empty((m, p), dtype=bool)
    for kernel in range(p):
        gap = gaps[:, :, kernel]
        if reset:
            lacks = gap.all(axis=1) | gap.all(axis=0)
            columns = ~lacks
        else:
            columns = np.ones(n, bool) if trained is None else trained[:, kernel]
            lacks = gap[:, columns].all(axis=1)
        left = gap & columns[None, :] & ~lacks[:, None]
        if left.any():
            i, j = (int(index) for index in np.argwhere(left)[0])
            raise ValueError(
                f"Input X contains NaN: precomputed kernel {names[kernel]!r} holds "
                f"nan at position ({i}, {j}), but row {i} is not all NaN. A sample "
                "without this kernel has NaN in its entire row and column. Recompute "
                "it, or drop the sample."
            )
        observed[:, kernel] = ~lacks
    return ObservedViews(xp.where(blanks, xp.zeros_like(K), K), observed), names


def check_every_view(
    observed: np.ndarray, names: Sequence[str], joint: Sequence[bool] = ()
) -> None:
    """Refuse a view that every training row lacks; ``observed`` is (n, v).

    ``joint`` marks the views that take the columns of several others.
    """
    for v, (name, rows) in enumerate(zip(names, observed.T, strict=True)):
        if not np.any(rows) and v < len(joint) and joint[v]:
            raise ValueError(
                f"interactions=True needs rows that have every view, and each of the "
                f"{len(observed)} training rows lacks one. Set interactions=False."
            )
        if not np.any(rows):
            raise ValueError(
                f"Input X contains NaN: view {name!r} is missing in all "
                f"{len(observed)} training rows. Remove the view."
            )


def check_some_view(observed: np.ndarray, row: str = "row") -> None:
    """Refuse rows that lack every view; ``observed`` is (n, v)."""
    empty = np.flatnonzero(~np.any(observed, axis=1)).tolist()
    if empty:
        raise ValueError(
            f"Input X contains NaN: every view is missing in "
            f"{with_names(row, map(str, empty))}. Nothing is known about such rows; "
            "drop them."
        )


def rows_lacking(observed: np.ndarray) -> str:
    """The rows that lack a view, in words; ``observed`` is (m, v)."""
    lacking = np.flatnonzero(~np.all(observed, axis=1)).tolist()
    verb = "lacks" if len(lacking) == 1 else "lack"
    return f"{with_names('row', map(str, lacking))} {verb} a view"


def warn_lacking(
    observed: np.ndarray,
    trained: np.ndarray | None,
    names: list[str],
    joint: list[bool],
) -> None:
    """Warn of new rows without views that nearly all training rows have.

    Parameters
    ----------
    observed : ndarray of bool of shape (m, v)
        Which rows have which view.
    trained : ndarray of bool of shape (n, v) or None
        The same of the training rows; None if all have every view.
    names : list of str
        The views.
    joint : list of bool
        Which views are products of others; empty if none is.
    """
    lacking, n = np.sum(~observed, axis=0), counted(len(observed), "row")
    shares = np.zeros(len(names)) if trained is None else np.mean(~trained, axis=0)
    found = [
        f"{lacking[v]} of {n} {'lacks' if lacking[v] == 1 else 'lack'} the view "
        f"{name!r} ({100 * shares[v]:.2g} % of the training rows do)"
        for v, name in enumerate(names)
        if lacking[v] > MORE_OFTEN * shares[v] * len(observed)
        and shares[v] < FEW_LACKING
        and not (joint and joint[v])
    ]
    remarks = []
    if found:
        remarks.append(
            f"{some(found)}: such rows are predicted from their other views, less "
            "accurately than a score of rows with every view says, and probabilities "
            "may be too confident. A model fitted without a view knows better what "
            "the others are worth"
        )
    empty = int(np.sum(~np.any(observed, axis=1)))
    if empty:
        remarks.append(
            f"{empty} of {n} without any view: predictions for such rows say nothing "
            "about them, only what is most likely of any row"
        )
    if remarks:
        warnings.warn(". ".join(remarks), KernelWarning, stacklevel=2)


def take_rows(block: Array, rows: np.ndarray) -> Array:
    """The rows of ``block`` where ``rows`` (n,) is True; no copy if all are."""
    return block if np.all(rows) else select_rows(block, np.flatnonzero(rows))


def fill_rows(block: Any, rows: np.ndarray) -> Any:
    """``block`` (m, d) with its first row that has the view where ``rows`` is False.

    Sparse rows, which are zeros where they lack the view, are returned as they are, and
    so are rows that all have the view, or all lack it.
    """
    if np.all(rows) or not np.any(rows) or issparse(block):
        return block
    return select_rows(block, np.where(rows, np.arange(len(rows)), np.argmax(rows)))


def check_numbers(block: Columns, view: View, rows: np.ndarray) -> None:
    """Refuse columns that are not numbers in the rows (n,) that have the view."""
    with prefixed(f"View {view.name!r}"):
        numbers = block.numbers
    observed_rows(numbers, view, block.labels, False, missing=not np.all(rows))
