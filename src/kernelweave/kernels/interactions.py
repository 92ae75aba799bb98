"""Kernels between views: products of a kernel of one view with a kernel of another.

A sum of kernels on separate views represents sums ``f(x) = sum_v f_v(x_v)`` and nothing
else: where the sign of a column of one view decides what a column of another means,
every such sum is no better than chance. The functions ``f_u(x_u) f_v(x_v)`` are the
space of the product of two kernels. With ``g_v`` the kernel of view v, centred over the
training rows and scaled to mean square one::

    k(x, z) = sum_{u < v} g_u(x_u, z_u) g_v(x_v, z_v)
            = 1/2 [ (sum_v g_v)^2 - sum_v g_v^2 ]

so all pairs take no longer than all views. Since both factors are centred, a
product contains no function of one view alone (exactly so if views are independent),
unlike a kernel of all columns together: its weight says how much views interact.
"""

from __future__ import annotations

from dataclasses import dataclass

from sklearn.base import clone

from kernelweave._array import Array, at_home, detached, namespace, take
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.functions import RBF, Linear, Pipe, Standardizer
from kernelweave.views.columns import View, id_reader

#: Name of the view of all products.
BETWEEN = "between views"
#: Kernels are centred over this many training rows, evenly spaced if there are more.
#: The mean over them misses that of all rows by one sixteenth of a deviation, so
#: functions of one view alone make up less than 1 % of a product.
REFERENCE_ROWS = 256


@dataclass(frozen=True)
class _Factor:
    """A kernel of one view, ``s (k(x, z) - m(x) - m(z) + mean)``."""

    columns: list[int]  # of the rows that the product is given
    kernel: Kernel  # resolved
    reference: Array  # (r, d), the rows over which m is a mean
    mean: float  # of m over the training rows
    scale: float  # s; 0 if the view is constant

    @classmethod
    def of(cls, kernel: Kernel, columns: list[int], X: Array) -> _Factor:
        """The kernel on some columns of the training rows X (n, d)."""
        rows = take(X, columns, axis=1)
        if isinstance(kernel, Linear):  # the mean of x'z over z is that at their mean
            reference, own = namespace(X).mean(rows, axis=0, keepdims=True), rows
        else:
            step = -(-rows.shape[0] // REFERENCE_ROWS)
            reference = own = detached(rows[::step, :])
        resolved = kernel.resolve(rows)
        factor = cls(columns, resolved, reference, 0.0, 1.0)
        xp, means = namespace(X), factor.means(own)
        mean = float(xp.mean(means))
        size = float(xp.mean(resolved.diagonal(own))) - mean
        scale = 1.0 / size if size > 0 else 0.0
        return cls(columns, resolved, reference, mean, scale)

    def means(self, rows: Array) -> Array:
        """``m(x)`` (m,) of the rows (m, d) of the view."""
        gram = self.kernel.gram(rows, at_home(self.reference, rows))
        return namespace(rows).mean(gram, axis=1)

    def gram(self, X: Array, Z: Array | None) -> Array:
        """Values (n, m), exactly symmetric if Z is None."""
        rows = take(X, self.columns, axis=1)
        other = None if Z is None else take(Z, self.columns, axis=1)
        left = self.means(rows)
        right = left if other is None else self.means(other)
        gram = self.kernel.gram(rows, other)
        gram = gram - (left[:, None] + right[None, :])  # as a sum, which is symmetric
        gram += self.mean
        gram *= self.scale
        return gram


class ViewProducts(Kernel):
    """``k(x, z) = sum_{u < v} g_u(x_u, z_u) g_v(x_v, z_v)`` over all pairs of views.

    Here ``g_v`` is the same kernel on the columns of each view v, centred over the
    training rows and scaled so that ``g_v(x, x)`` has mean one.

    Parameters
    ----------
    groups : list of list of int
        The columns of each view.
    kernel : Kernel
        The kernel on each view: :class:`Linear` for products of columns,
        :class:`RBF` for those of any smooth functions.
    """

    _factors: list[_Factor]  # once resolved, one for each view

    def __init__(self, groups: list[list[int]], kernel: Kernel) -> None:
        self.groups = groups
        self.kernel = kernel

    @property
    def label(self) -> str:
        """Name of the kernel whose products these are."""
        return f"products of {type(self.kernel).__name__}"

    def resolve(self, X: Array, memo: dict[str, float] | None = None) -> Kernel:
        """Centre and scale the kernel of each view on the training rows X (n, d)."""
        resolved = clone(self)
        resolved._factors = [_Factor.of(self.kernel, own, X) for own in self.groups]
        return resolved

    def gram(self, X: Array, Z: Array | None = None) -> Array:
        """Gram matrix (n, m) of the rows of X (n, d) and Z (m, d)."""
        first, *others = self._factors
        total = first.gram(X, Z)
        squares = total * total
        for factor in others:
            gram = factor.gram(X, Z)
            total += gram
            gram *= gram
            squares += gram
        total *= total
        total -= squares
        total *= 0.5
        return total


def with_products(
    views: list[View], positions: list[list[int]]
) -> tuple[list[View], list[list[int]]]:
    """The views and their columns, and one more view: the products of all pairs.

    These are products of linear and of Gaussian kernels on standardised columns. A
    single view is returned as it is; views that look samples up by id have no columns
    to multiply.

    Parameters
    ----------
    views : list of View
        The views.
    positions : list of list of int
        Columns of each of them.
    """
    pairs = zip(views, positions, strict=True)
    numeric = [own for view, own in pairs if id_reader(view) is None]
    if len(numeric) < 2:
        return views, positions
    if any(view.name == BETWEEN for view in views):
        raise ValueError(
            f"interactions=True adds a view named {BETWEEN!r}, and one of the views "
            "has this name; rename it, or set interactions=False"
        )
    columns = sorted({c for own in numeric for c in own})
    place = {c: number for number, c in enumerate(columns)}
    groups = [[place[c] for c in own] for own in numeric]
    kernels = [ViewProducts(groups, kernel) for kernel in (Linear(), RBF())]
    between = View(BETWEEN, Pipe(Standardizer(), kernels), columns, joint=True)
    return [*views, between], [*positions, columns]
