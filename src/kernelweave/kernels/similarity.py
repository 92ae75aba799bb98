"""Similarities or distances computed elsewhere, looked up by the ids of the samples."""

from __future__ import annotations

import copy
import warnings
from typing import Any, Literal

import numpy as np

from kernelweave._array import Array, centred, from_numpy, is_array, to_numpy
from kernelweave._text import counted
from kernelweave.exceptions import KernelWarning
from kernelweave.kernels.base import Kernel, check_parameter, median_or_mean
from kernelweave.kernels.checks import check_symmetric, looks_like_distances
from kernelweave.views.columns import IdReader
from kernelweave.views.ids import (
    check_distinct,
    check_kernel_labels,
    other_spellings,
    read_ids,
    shown,
    spelling_hint,
)

#: Negative eigenvalues up to this times n, relative to the largest, are rounding:
#: centring cancels digits of squared distances.
EUCLIDEAN = 1e-10


class Similarity(Kernel, IdReader):
    """``k(x, z) = K[i, j]`` for the samples with the ids i and j in a column of X.

    The matrix covers all samples that will ever be requested, training rows and new
    ones, so it can be used with other views in cross-validation, grid search and
    prediction.

    Parameters
    ----------
    K : array-like or DataFrame of shape (N, N)
        Similarities, symmetric. On the training rows of each fit they are checked to be
        positive semidefinite, as the ``psd`` parameter of the estimator says.
    ids : array-like of shape (N,), default=None
        The ids of the rows and columns of K, without repetitions. None takes them from
        the index of a DataFrame.
    gamma : None, "median" or float, default=None
        If not None, K holds distances d, and the kernel is ``exp(-factor gamma d^2)``.
        "median" is the reciprocal of the median squared distance between training rows,
        as in :class:`RBF`. Set by :meth:`from_distances`.
    factor : float, default=1.0
        Positive multiplier of gamma.

    Attributes
    ----------
    removed : float
        Share of the spectrum, in absolute value, that :meth:`from_distances` removed to
        make the matrix positive semidefinite; 0 otherwise.

    Examples
    --------
    >>> import numpy as np
    >>> from kernelweave import KernelFDA
    >>> from kernelweave.kernels import Similarity
    >>> drugs = ["aspirin", "ibuprofen", "naproxen", "codeine", "morphine"]
    >>> K = np.eye(5)
    >>> K[:3, :3] += 0.8
    >>> K[3:, 3:] += 0.9
    >>> X = np.array([["codeine"], ["aspirin"], ["morphine"], ["naproxen"]], object)
    >>> views = [("structure", Similarity(K, drugs), [0])]
    >>> model = KernelFDA(views, alpha=0.1, cv=None).fit(
    ...     X, ["opioid", "other", "opioid", "other"]
    ... )
    >>> model.predict(np.array([["ibuprofen"]], object)).tolist()
    ['other']
    """

    psd = False
    removed: float = 0.0

    def __init__(
        self,
        K: Any,
        ids: Any = None,
        gamma: float | str | None = None,
        factor: float = 1.0,
    ) -> None:
        self.K = K
        self.ids = ids
        self.gamma = gamma
        self.factor = factor

    @classmethod
    def from_distances(
        cls,
        D: Any,
        ids: Any = None,
        method: Literal["gaussian", "centring"] = "gaussian",
        gamma: float | str = "median",
        factor: float = 1.0,
    ) -> Similarity:
        """A similarity made of distances between samples.

        Parameters
        ----------
        D : array-like or DataFrame of shape (N, N)
            Distances, not squared: symmetric, nonnegative, 0 on the diagonal.
        ids : array-like of shape (N,), default=None
            Their ids; None takes them from the index of a DataFrame.
        method : {"gaussian", "centring"}, default="gaussian"
            "gaussian" is ``exp(-factor gamma d^2)``; the width comes from the training
            rows of each fit. It is positive semidefinite at every width only for
            distances between points in some space; the square roots of city-block and
            Hamming distances are such distances. "centring" is
            ``B = -1/2 J D^2 J`` with ``J = I - 11'/N``, the inner products of points
            at these distances (classical scaling). If there are no such points, B has
            negative eigenvalues. They are set to zero, a ``KernelWarning`` says how
            large they were, and ``removed`` has their share. B is computed once, from
            all N samples, but from no labels.
        gamma, factor : float or "median", and float
            As for the class; for "gaussian" only.

        Returns
        -------
        kernel : Similarity
        """
        if method not in ("gaussian", "centring"):
            raise ValueError(
                "Similarity: method must be 'gaussian' or 'centring'; found "
                f"{method!r}."
            )
        kernel = cls(D, ids, gamma, factor)
        kernel._check()
        if method == "gaussian":
            return kernel
        values, known = kernel._matrix(), kernel._known()
        inner, removed = _double_centred(values)
        made = cls(inner, known)
        made.removed = removed
        return made

    @property
    def label(self) -> str:
        """Name for tables, with the size of the matrix and the width, if there is one.

        The matrix itself would fill pages.
        """
        size = f"{np.shape(self.K)[0]} samples"
        if self.gamma is None:
            return f"Similarity({size})"
        gamma = f"{self.gamma:.3g}" if isinstance(self.gamma, float) else self.gamma
        factor = "" if self.factor == 1.0 else f", factor={self.factor:.3g}"
        return f"Similarity({size}, gamma={gamma}{factor})"

    def __eq__(self, other: object) -> bool:
        """Similarities are equal if they have equal matrices, ids and widths."""
        if type(self) is not type(other):
            return NotImplemented
        assert isinstance(other, Similarity)
        widths = (self.gamma, self.factor) == (other.gamma, other.factor)
        return widths and (
            self.K is other.K
            or (
                np.array_equal(self._matrix(), other._matrix())
                and self._known() == other._known()
            )
        )

    def __copy__(self) -> Similarity:
        """A copy that shares the matrix, which no method changes."""
        made = type(self).__new__(type(self))
        vars(made).update(vars(self))
        return made

    __sklearn_clone__ = __copy__

    def __getstate__(self) -> dict[str, Any]:
        # Arrays and lists can be written to a file that runs no code; frames cannot.
        state = dict(vars(self))
        if hasattr(self.K, "iloc"):
            labels = {
                "index": self.K.index.tolist(),
                "columns": self.K.columns.tolist(),
            }
            state["K"] = {"data": self.K.to_numpy(), **labels}
        if hasattr(self.ids, "to_numpy"):
            state["ids"] = self.ids.to_list()
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        if isinstance(state["K"], dict):
            import pandas as pd

            state = state | {"K": pd.DataFrame(**state["K"])}
        vars(self).update(state)

    def places(self, ids: Any, gaps: bool = False) -> np.ndarray:
        """Row numbers (n, 1) of samples in K, as floats.

        Parameters
        ----------
        ids : array-like of shape (n,) or (n, 1)
            Ids of samples.
        gaps : bool, default=False
            Whether rows may lack the view: an unknown id then becomes NaN, unless it
            seems to be a known one that is spelled differently.
        """
        known = self._known()
        place = {value: i for i, value in enumerate(known)}
        given = read_ids(ids)
        unknown = [v for v in dict.fromkeys(given) if v is not None and v not in place]
        pairs = other_spellings(unknown, known) if unknown else []
        if pairs:
            examples = ", ".join(f"{a!r} for {b!r}" for a, b in pairs[:3])
            raise ValueError(
                f"X and Similarity spell {counted(len(pairs), 'id')} differently, such "
                f"as {examples}. {spelling_hint(pairs)}."
            )
        if unknown and not gaps:
            raise ValueError(
                f"Similarity lacks {counted(len(unknown), 'id')} of X: "
                f"{shown(unknown)}. It has {len(known)}: {shown(known)}. Add rows and "
                "columns for these samples to the matrix, drop the rows, or set "
                "missing='zero' or missing='available' if rows may lack this view."
            )
        found = [place.get(value, np.nan) for value in given]
        # The precision of all views of an estimator follows that of their columns.
        single = getattr(self.K, "dtype", None) == np.float32
        return np.array(found, dtype=np.float32 if single else np.float64)[:, None]

    def with_own_ids(self) -> Similarity:
        """A copy that no change of the caller's ids reaches; it shares the matrix."""
        made = copy.copy(self)
        made.ids = self._known()
        return made

    def resolve(self, X: Array, memo: dict[str, float] | None = None) -> Kernel:
        """A copy with its own matrix, and gamma from the training rows X (n, 1)."""
        self._check()
        resolved = copy.copy(self)
        resolved.K, resolved.ids = np.array(self._matrix()), self._known()
        if self.gamma is None:
            return resolved
        if self.gamma == "median":
            rows = _numbers(X)
            squares = resolved.K[np.ix_(rows, rows)] ** 2
            pairs = squares[np.triu_indices(len(rows), 1)]
            median = median_or_mean(pairs)
            resolved.gamma = 1 / median if median > 0 else 1.0
        resolved.gamma = float(resolved.gamma) * float(self.factor)  # type: ignore[arg-type]
        resolved.factor = 1.0
        return resolved

    def gram(self, X: Array, Z: Array | None = None) -> Array:
        """Gram matrix (n, m) of the samples at the places X (n, 1) and Z (m, 1)."""
        rows, columns = _numbers(X), _numbers(X if Z is None else Z)
        return from_numpy(self._values(self.K[np.ix_(rows, columns)]), X)

    def diagonal(self, X: Array) -> Array:
        """``k(x, x)`` (n,) of the samples at the places X (n, 1)."""
        rows = _numbers(X)
        return from_numpy(self._values(self.K[rows, rows]), X)

    def __call__(self, X: Any, Z: Any = None) -> Array:
        """Gram matrix between samples.

        Parameters
        ----------
        X : array-like of shape (n,) or (n, 1)
            Ids of samples.
        Z : array-like of shape (m,) or (m, 1), default=None
            Ids of other samples, X itself if None. A width that is not yet fixed is
            computed from them.

        Returns
        -------
        K : ndarray of shape (n, m)
        """
        rows = self.places(X)
        others = None if Z is None else self.places(Z)
        return self.resolve(rows if others is None else others).gram(rows, others)

    def _values(self, entries: np.ndarray) -> np.ndarray:
        """Kernel values from entries of the matrix."""
        return entries if self.gamma is None else np.exp(-self.gamma * entries**2)  # type: ignore[operator]

    def _matrix(self) -> np.ndarray:
        """K as floats: float32 if K is, else float64."""
        K = to_numpy(self.K) if is_array(self.K) else np.asarray(self.K)
        return K if K.dtype == np.float32 else np.asarray(K, dtype=np.float64)

    def _known(self) -> list[Any]:
        """The ids of the rows of K, which are distinct."""
        if self.ids is None and not hasattr(self.K, "iloc"):
            raise ValueError(
                "Similarity needs ids, one for each row of the matrix, unless it is a "
                "DataFrame whose index holds them."
            )
        known = read_ids(self.K.index if self.ids is None else self.ids)
        if len(known) != len(self.K):
            raise ValueError(
                f"Similarity: there are {len(known)} ids, but the matrix has "
                f"{len(self.K)} rows."
            )
        check_distinct(known, "Similarity")
        return known

    def _check(self) -> None:
        """Refuse a matrix that cannot be one of similarities (or distances)."""
        K, known = self._matrix(), self._known()
        what = "similarities" if self.gamma is None else "distances"
        if K.ndim != 2 or K.shape[0] != K.shape[1]:
            raise ValueError(
                f"Similarity: the matrix of {what} must be square; found {K.shape}."
            )
        if hasattr(self.K, "iloc"):
            check_kernel_labels(self.K, f"Similarity: the matrix of {what}")
        bad = np.argwhere(~np.isfinite(K))
        if len(bad):
            i, j = bad[0]
            raise ValueError(
                f"Similarity: the entry of {known[i]!r} and {known[j]!r} is {K[i, j]}. "
                "Leave samples that were not compared out of the matrix."
            )
        check_symmetric(K, "Similarity")
        if self.gamma is None:
            if looks_like_distances(K):
                raise ValueError(
                    "Similarity: the diagonal of the matrix is 0 and no entry is "
                    "negative, so it holds distances, not similarities. Use "
                    "Similarity.from_distances(D, ids)."
                )
            return
        check_parameter(self, "gamma", word="median")
        check_parameter(self, "factor")
        if not looks_like_distances(K) and np.any(K):
            i, j = np.unravel_index(K.argmin(), K.shape)
            i, j = (i, j) if K[i, j] < 0 else (np.abs(np.diagonal(K)).argmax(),) * 2
            raise ValueError(
                "Similarity: distances must be >= 0, and 0 on the diagonal; the entry "
                f"of {known[i]!r} and {known[j]!r} is {K[i, j]:.3g}. Pass similarities "
                "to Similarity(K, ids) instead."
            )


def _numbers(X: Array) -> np.ndarray:
    """Row numbers (n,) from places (n, 1)."""
    return np.asarray(to_numpy(X))[:, 0].astype(np.intp)


def _double_centred(D: np.ndarray) -> tuple[np.ndarray, float]:
    """``-1/2 J D^2 J`` without negative eigenvalues, and the share of the spectrum.

    The share is the part of the sum of absolute eigenvalues that was set to zero.
    """
    squares = np.asarray(D, dtype=np.float64) ** 2
    inner = -0.5 * centred(squares)
    inner = (inner + inner.T) / 2
    values, vectors = np.linalg.eigh(inner)
    lowest, largest = float(values[0]), float(np.abs(values).max())
    if lowest >= -EUCLIDEAN * len(D) * largest:
        return inner, 0.0
    removed = float(-values[values < 0].sum() / np.abs(values).sum())
    warnings.warn(
        "Similarity.from_distances: no points have exactly these distances. Double "
        f"centring gives {counted(int(np.sum(values < 0)), 'negative eigenvalue')} out "
        f"of {len(values)}, the smallest {lowest:.3g} (the largest is {largest:.3g}); "
        f"setting them to zero removed {100 * removed:.2g} % of the spectrum",
        KernelWarning,
        stacklevel=3,
    )
    kept = np.maximum(values, 0.0)
    return (vectors * kept[None, :]) @ vectors.T, removed
