"""The experts of a mixture: one per kernel, each on the rows that have its view."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import numpy as np

from kernelweave._array import Array, detached, from_numpy, take, zeros
from kernelweave.exceptions import KernelWarning
from kernelweave.fits.design import RowDesign
from kernelweave.fits.predictive import Expert, PredictivePath
from kernelweave.fits.targets import class_target
from kernelweave.kernels.maps.kernel_map import (
    FeatureSource,
    FittedMap,
    KernelMap,
    PrecomputedSource,
    Source,
)
from kernelweave.models.shared.base import Progress
from kernelweave.views.columns import View
from kernelweave.views.missing import ObservedViews, take_rows


class ViewMaps(FittedMap):
    """One :class:`KernelMap` per view, over the training rows that have the view.

    Parameters
    ----------
    views : list of View
        Empty if kernels are precomputed.
    data : ObservedViews
        The training rows.
    names : list of str
        Names of views, or of precomputed kernels.
    psd : {"error", "clip", "trust"}
        What to do with a kernel that is not positive semidefinite.
    design : RowDesign
        Weights of the rows, by whose roots kernels are multiplied.
    targets : ndarray of shape (n,)
        Labels, for transformers that need them.

    Attributes
    ----------
    maps : list of KernelMap
        One per view.
    views : list of View
        The views, as the fit has settled them.
    like : array
        Empty, with the namespace, device and dtype of the kernels.
    names, view_names : list of str
        The name of each of the p kernels and of its view.
    view_of : ndarray of int of shape (p,)
        The view of each kernel.
    active : list of int
        Kernels that vary over their rows.
    errors : ndarray of shape (p,)
        Bounds on the errors of their eigenvalues, where centring cancelled digits.
    remarks : list of str
        Notes on what was done to the kernels.
    """

    def __init__(
        self,
        views: list[View],
        data: ObservedViews,
        names: list[str],
        psd: Literal["error", "clip", "trust"],
        design: RowDesign,
        targets: np.ndarray,
    ) -> None:
        self.design = design
        self.maps: list[KernelMap] = []
        for v, name in enumerate(names):
            rows = data.observed[:, v]
            source: Source
            if views:
                own = take_rows(data.blocks[v], rows)
                numbers = np.flatnonzero(rows)
                if data.numbers is not None:
                    numbers = data.numbers[rows]
                given = [views[v]], [own], None, targets[rows]
                source = FeatureSource(*given, numbers=numbers)
            else:
                own = take_seen(data.blocks[:, :, v : v + 1], rows, axis=0)
                source = PrecomputedSource(take_seen(own, rows, axis=1), [name])
            weights = design.restrict(np.flatnonzero(rows)).weights
            self.maps.append(KernelMap(source, psd, weights))
        sources = [one.source for one in self.maps]
        self.views = [view for one in sources for view in one.views]
        self.like = detached(sources[0].like[:0, ...])  # a view would keep all of X
        self.observed = data.observed
        self.names = [name for one in self.maps for name in one.names]
        self.view_names = [name for one in self.maps for name in one.view_names]
        counts = [len(one.names) for one in self.maps]
        self.first = np.concatenate([[0], np.cumsum(counts)]).astype(int)
        self.view_of = np.repeat(np.arange(len(counts)), counts)
        self.active: list[int] = []
        self.errors = np.zeros(len(self.names))
        self.remarks: list[str] = []

    def fit(self, progress: Progress) -> Iterator[tuple[int, Array]]:
        """Number and matrix (n_view, n_view) of each centred kernel in turn.

        Only the kernels of one view are in memory at a time, and the caller may
        overwrite each of them.
        """
        for v, one in enumerate(self.maps):
            first = int(self.first[v])
            try:
                bank = one.fit(partial(progress.kernel, first=first))
            except ValueError:
                # If all kernels of this view are constant, others may still vary.
                if one.active or len(one.centerings) < len(one.names):
                    raise
                continue
            finally:
                self.remarks += one.remarks
            for slot, i in enumerate(one.active):
                self.active.append(first + i)
                if bank.errors is not None:
                    self.errors[first + i] = bank.errors[slot]
                yield first + i, bank.kernel(slot)
            del bank
        self.require_active()

    @property
    def parts(self) -> list[KernelMap]:
        """One map per view."""
        return self.maps

    @property
    def seen(self) -> np.ndarray:
        """Which training rows have which view, (n, v)."""
        return self.observed

    @property
    def row_size(self) -> int:
        """Entries of each kernel of a new row."""
        return len(self.observed)

    def spread(self, weights: np.ndarray) -> np.ndarray:
        """Unchanged: the weights already cover all p kernels."""
        return np.asarray(weights)


def take_seen(stack: Array, rows: np.ndarray, axis: int) -> Array:
    """The entries of an axis of a stack (m, n, p) that ``rows`` selects."""
    return stack if np.all(rows) else take(stack, np.flatnonzero(rows), axis)


class ExpertPanel:
    """One expert per kernel: predictions for the training rows, what new rows need.

    Parameters
    ----------
    maps : ViewMaps
        The kernels; each remark is added to them with a warning.
    codes : ndarray of int of shape (n,)
        Classes of the rows.
    classes : ndarray of shape (k,)
        Class labels.
    zero : bool
        Whether missing views count as rows of zeros.
    choose : callable
        ``choose(e, path)`` chooses the noise levels of expert ``e``.
    progress : Progress
        Told of each kernel.

    Attributes
    ----------
    target : ndarray of shape (n, k)
        Class coordinates.
    observed : ndarray of bool of shape (n, p)
        Which experts have each row.
    allowed : ndarray of bool of shape (p, k)
        Which experts have seen enough rows of each class to predict it.
    noise, amplitude, intercept : ndarray of shape (p, k)
        Parameters of each expert and class.
    excess : ndarray of shape (p, k)
        Leave-one-out squared error, relative to the smallest at more noise.
    log_density, mean, variance, held_out : ndarray of shape (n, p, k)
        Leave-one-out results of each row; NaN where an expert lacks the row.
    mean_error, log_density_error : ndarray of shape (n, p, k)
        Bounds on the errors of these, of kernels that lost digits in centring.
    coef : list of arrays of shape (n_view, k)
        Coefficients of the rows that each expert was fitted on.
    rows : list of ndarray
        The training rows in each expert's order: those with its kernel come first.
    scale : ndarray of shape (p,)
        Factor that keeps the trace of each kernel at n, or at the sum of the row
        weights, when rows of zeros are added.
    design : RowDesign
        Weights of the rows.
    """

    def __init__(
        self,
        maps: ViewMaps,
        codes: np.ndarray,
        classes: np.ndarray,
        zero: bool,
        choose: Callable[[int, PredictivePath], Expert],
        progress: Progress,
    ) -> None:
        n, p, k = len(codes), len(maps.names), len(classes)
        seen = maps.observed[:, maps.view_of]  # (n, p)
        self.maps, self.zero, self.design = maps, zero, maps.design
        self.classes = classes
        self.target = class_target(codes, k, self.design.weights)
        self.observed = np.ones_like(seen) if zero else seen
        self.noise, self.amplitude, self.intercept, self.excess = np.zeros((4, p, k))
        empty = np.full((4, n, p, k), np.nan)
        self.log_density, self.mean, self.variance, self.held_out = empty
        self.mean_error, self.log_density_error = np.zeros((2, n, p, k))
        self.coef: list[Array | None] = [None] * p
        self.rows = [np.flatnonzero(own) for own in seen.T]
        self.scale = np.ones(p)
        if zero:
            self.rows = [np.argsort(~own, kind="stable") for own in seen.T]
            self.scale = self.design.total / (self.design.each @ seen)
        self.n_seen = np.sum(seen, axis=0)
        for e, gram in maps.fit(progress):
            self.settle(e, choose(e, self._path(e, gram)))
        self.allowed = self._allowed(np.eye(k)[codes], seen)
        for remark in self._remarks():
            maps.remarks.append(remark)
            warnings.warn(remark, KernelWarning, stacklevel=6)

    def _path(self, e: int, gram: Array) -> PredictivePath:
        """Expert ``e`` at all noise levels; its centred kernel is (n_view, n_view)."""
        rows, scale, m = self.rows[e], float(self.scale[e]), gram.shape[0]
        if len(rows) > m:  # with zeros for the rows that lack the kernel
            part, gram = gram, zeros((len(rows), len(rows)), gram)
            gram[:m, :m] = part * scale
        target, design = from_numpy(self.target[rows], gram), self.design.restrict(rows)
        error = float(scale * self.maps.errors[e])
        return PredictivePath(gram, target, design=design, error=error)

    def settle(self, e: int, expert: Expert) -> None:
        """Record the predictions of expert ``e``."""
        rows = self.rows[e]
        self.noise[e], self.amplitude[e] = expert.noise, expert.amplitude
        self.log_density[rows, e], self.mean[rows, e] = expert.log_density, expert.mean
        self.variance[rows, e], self.excess[e] = expert.variance, expert.excess
        self.held_out[rows, e] = expert.held_out
        if expert.errors is not None:
            self.mean_error[rows, e], self.log_density_error[rows, e] = expert.errors
        coef = expert.coef[: self.n_seen[e]]  # of the rows with the kernel
        self.coef[e] = from_numpy(self.scale[e] * coef, self.maps.like)
        if not self.zero:  # else it is 0, as is the projection of a row without views
            each = self.design.each[rows]
            self.intercept[e] = np.average(self.target[rows], axis=0, weights=each)

    def _allowed(self, of_class: np.ndarray, seen: np.ndarray) -> np.ndarray:
        """Which classes (p, k) experts may predict, from indicators (n, k) and (n, p).

        This takes two rows of the class, so that one remains when the other is left
        out (or one, if the class has no more), and at least one row of another class.
        """
        counts = seen.T @ of_class
        enough = np.minimum(2, of_class.sum(axis=0))
        varies = np.isin(np.arange(len(counts)), self.maps.active)[:, None]
        rows = counts.sum(axis=1, keepdims=True)
        return varies & (counts >= enough) & (counts < rows)

    def _remarks(self) -> Iterator[str]:
        """One sentence per view whose experts cannot predict some class."""
        for v, one in enumerate(self.maps.maps):
            if not one.active:
                continue
            allowed = self.allowed[int(self.maps.first[v]) + one.active[0]]
            absent = [f"class {c!r}" for c in self.classes[~allowed].tolist()]
            if absent:
                yield (
                    f"view {one.view_names[0]!r} has fewer than 2 rows of "
                    f"{' and of '.join(absent)}, or none of another: its kernels have "
                    "weight 0 there"
                )
