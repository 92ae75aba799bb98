"""The Hilbert-Schmidt independence criterion of explicit features, in one pass."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from kernelweave._array import Array, is_array, namespace
from kernelweave.dependence.hsic import Estimator, check_pairs
from kernelweave.views.columns import is_iterator

__all__ = ["hsic_of_features"]


def hsic_of_features(
    Z: Array | Iterable[tuple[Array, Array]],
    Y: Array | None = None,
    estimator: Estimator = "biased",
) -> float:
    """:func:`hsic` of the kernels ``K = ZZ'`` and ``L = YY'``, without n x n matrices.

    With explicit features on both sides, the two estimates of :func:`hsic` need only
    sums over the rows: for the biased one (Chen et al. 2008, Eq. 5)::

        tr(K P L P) = norm(Z' P Y)^2,      P = I - 11'/n

    and for the unbiased one also ``sum_i |z_i|^2 y_i``, ``sum_i |y_i|^2 z_i`` and the
    like. So rows may arrive in portions, and the memory needed is D_z x D_y for any n.

    Parameters
    ----------
    Z : array of shape (n, D_z), or iterator of pairs of arrays (m, D_z) and (m, D_y)
        Features of the first sample: the columns of a linear kernel, or the output of a
        map such as :class:`~kernelweave.kernels.features.maps.NystroemFeatures`.
    Y : array of shape (n, D_y), optional
        Features of the second sample, such as class indicators; None if Z is an
        iterator.
    estimator : {"biased", "unbiased"}, default="biased"
        Which estimate to compute.

    Returns
    -------
    value : float
        The estimate.

    See Also
    --------
    hsic : The estimate for any two n x n kernels.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave.dependence import hsic_of_features
    >>> from kernelweave.dependence import hsic
    >>> rng = np.random.default_rng(0)
    >>> Z = rng.normal(size=(100, 3))
    >>> Y = Z[:, :1] + rng.normal(size=(100, 1))
    >>> bool(np.isclose(hsic_of_features(Z, Y), hsic(Z @ Z.T, Y @ Y.T)))
    True
    >>> portions = ((Z[i : i + 30], Y[i : i + 30]) for i in range(0, 100, 30))
    >>> bool(np.isclose(hsic_of_features(portions), hsic(Z @ Z.T, Y @ Y.T)))
    True
    """
    if is_iterator(Z):
        if Y is not None:
            raise ValueError("an iterator yields pairs (Z, Y): leave out Y")
        pairs: Any = Z
    elif Y is None:
        raise ValueError("Y is missing; it is optional only if Z yields pairs (Z, Y)")
    else:
        pairs = [(Z, Y)]
    sums: _Sums | None = None
    for number, pair in enumerate(pairs):
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise TypeError(
                "an iterator of features must yield pairs (Z, Y); portion "
                f"{number} is {type(pair).__name__}"
            )
        z, y = (_checked(a, name, number) for a, name in zip(pair, "ZY", strict=True))
        if sums is None:
            sums = _Sums(z, y)
        sums.add(z, y, number)
    if sums is None:
        raise ValueError("the iterator has no portions: there is nothing to compare")
    return sums.value(estimator)


class _Sums:
    """Sums over rows of features, shifted by the means of the first portion.

    Both estimates are invariant under a shift of the features, and rounding errors are
    smallest when the features are centred near zero.
    """

    def __init__(self, z: Array, y: Array) -> None:
        xp = namespace(z, y)
        self.shifts = xp.mean(z, axis=0), xp.mean(y, axis=0)
        self.n = 0
        self.sums: list[Any] = []

    def add(self, z: Array, y: Array, number: int) -> None:
        """Add the rows z (m, D_z) and y (m, D_y) of one portion."""
        widths = tuple(int(shift.shape[0]) for shift in self.shifts)
        if (z.shape[1], y.shape[1]) != widths or z.shape[0] != y.shape[0]:
            raise ValueError(
                f"portion {number} must have as many rows in Z as in Y, and {widths} "
                f"columns as in the first portion; got the shapes {tuple(z.shape)} and "
                f"{tuple(y.shape)}"
            )
        xp = namespace(z, y)
        z, y = z - self.shifts[0][None, :], y - self.shifts[1][None, :]
        k, l = xp.sum(z * z, axis=1), xp.sum(y * y, axis=1)  # noqa: E741 diagonals
        new = [
            z.T @ y,
            xp.sum(z, axis=0),
            xp.sum(y, axis=0),
            z.T @ l,
            y.T @ k,
            xp.sum(k),
            xp.sum(l),
            xp.sum(k * l),
        ]
        self.n += int(z.shape[0])
        self.sums = (
            [a + b for a, b in zip(self.sums, new, strict=True)] if self.sums else new
        )

    def value(self, estimator: str) -> float:
        """The estimate from all rows so far."""
        check_pairs(self.n, estimator)
        n, cross, z, y, z_l, y_k, k, l, k_l = (self.n, *self.sums)  # noqa: E741
        xp = namespace(cross)
        if estimator == "biased":
            centred = cross - z[:, None] * y[None, :] / n
            return float(xp.sum(centred * centred)) / (n - 1) ** 2
        # A = K and B = L without their diagonals
        product = xp.sum(cross * cross) - k_l
        sums = (z @ z - k) * (y @ y - l)
        between = z @ (cross @ y) - z @ z_l - y @ y_k + k_l
        total = product + sums / ((n - 1) * (n - 2)) - 2.0 * between / (n - 2)
        return float(total) / (n * (n - 3))


def _checked(features: Any, name: str, number: int) -> Array:
    """Finite features (m, D) in double precision."""
    if not is_array(features):
        features = np.asarray(features, dtype=np.float64)
    xp = namespace(features)
    if features.ndim != 2:
        raise ValueError(
            f"{name} must have the shape (n, D); portion {number} has "
            f"{tuple(features.shape)}"
        )
    features = xp.astype(features, xp.float64, copy=False)
    if not bool(xp.all(xp.isfinite(features))):
        raise ValueError(f"{name} contains NaN or infinite values in portion {number}")
    return features
