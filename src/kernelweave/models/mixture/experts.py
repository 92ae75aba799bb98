"""The experts of a mixture: one per kernel, each on the rows that have its view."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal

import numpy as np

from kernelweave._array import Array, detached, device, from_numpy, namespace
from kernelweave.exceptions import KernelWarning
from kernelweave.fits.predictive import Expert, PredictivePath, choose_noise
from kernelweave.fits.targets import class_target
from kernelweave.kernels.maps.diagonals import DiagonalSource
from kernelweave.kernels.maps.kernel_map import KernelMap
from kernelweave.kernels.maps.sources import FeatureSource, PrecomputedSource, Source
from kernelweave.models.shared.base import Progress
from kernelweave.models.shared.inputs import (
    check_parameters,
    number,
    one_of,
    positive,
)
from kernelweave.views.columns import View
from kernelweave.views.missing import ObservedViews, take_rows

__all__ = [
    "ExpertPanel",
    "MixtureOptions",
    "ViewMaps",
    "ask_experts",
    "check_mixture_parameters",
    "sources_of",
]

#: Which values the parameters of a mixture may take.
RULES = {
    "weights": one_of("per_class", "shared", "uniform", "stacking"),
    "concentration": number("a finite number >= 0", lambda v: isfinite(v) and v >= 0),
    "projection": one_of("prior", "posterior"),
    "noise": positive("loo", "ml", "em"),
    "likelihood": one_of("gaussian", "student", "tprocess"),
    "dof": number("a number > 2", lambda v: isfinite(v) and v > 2),
    "solver": one_of("auto", "newton", "em"),
}


@dataclass(frozen=True)
class MixtureOptions:
    """The parameters of :class:`MixtureKDA` that a fit depends on."""

    weights: str
    concentration: float
    noise: float | str
    likelihood: str
    dof: float
    missing: str
    solver: str
    tol: float
    max_iter: int | None

    def expert(self, path: PredictivePath) -> Expert:
        """The expert at its chosen noise level (for "em", the initial one)."""
        noise = "loo" if self.noise == "em" else self.noise
        return choose_noise(path, noise, "profile", self.likelihood, self.dof)

    def problem(self, n_experts: int) -> str:
        """What is maximised or minimised, for the certificate."""
        if self.weights == "stacking":
            return "leave-one-out squared error of the mixed mean of each class"
        share = "shared" if self.weights == "shared" else "per-class"
        return (
            f"mixture likelihood of {n_experts} experts, {share} weights, "
            f"leave-one-out {self.likelihood} densities, nats per row"
        )


def check_mixture_parameters(model: Any) -> None:
    """Refuse invalid parameter values and combinations."""
    check_parameters(model, **RULES)
    if model.noise == "em" and model.weights not in ("per_class", "shared"):
        raise ValueError(
            "noise='em' needs weights learned by likelihood ('per_class' or 'shared'); "
            f"got weights={model.weights!r}"
        )


class ViewMaps:
    """One :class:`KernelMap` per view, over the training rows that have the view.

    Parameters
    ----------
    sources : list of Source
        The raw kernels of each view.
    observed : ndarray of bool of shape (n, v)
        Which views each training row has.
    psd : {"error", "clip", "trust"}
        What to do with a kernel that is not positive semidefinite.

    Attributes
    ----------
    maps : list of KernelMap
        One per view.
    like : array
        Empty, with the namespace, device and dtype of the kernels.
    names, view_names : list of str
        The name of each of the p kernels and of its view.
    view_of : ndarray of int of shape (p,)
        The view of each kernel.
    active : list of int
        Kernels that vary over their rows.
    remarks : list of str
        Notes on what was done to the kernels.
    """

    def __init__(
        self,
        sources: list[Source],
        observed: np.ndarray,
        psd: Literal["error", "clip", "trust"],
    ) -> None:
        self.maps = [KernelMap(DiagonalSource(source), psd) for source in sources]
        self.like = detached(sources[0].like[:0, ...])  # a view would keep all of X
        self.observed = observed
        self.names = [name for one in self.maps for name in one.names]
        self.view_names = [name for one in self.maps for name in one.view_names]
        counts = [len(one.names) for one in self.maps]
        self.first = np.concatenate([[0], np.cumsum(counts)]).astype(int)
        self.view_of = np.repeat(np.arange(len(counts)), counts)
        self.active: list[int] = []
        self.remarks: list[str] = []

    def fit(self, progress: Progress) -> Iterator[tuple[int, Array]]:
        """Number and matrix (n_view, n_view) of each centred kernel in turn.

        Only the kernels of one view are in memory at a time, and the caller may
        overwrite each of them.
        """
        for v, one in enumerate(self.maps):
            first = int(self.first[v])

            def report(i: int, first: int = first) -> None:
                progress.kernel(first + i)

            try:
                bank = one.fit(report)
            except ValueError:
                # If all kernels of this view are constant, others may still vary.
                if one.active or len(one.centerings) < len(one.names):
                    raise
                self.remarks += one.remarks
                continue
            self.remarks += one.remarks
            for slot, i in enumerate(one.active):
                self.active.append(first + i)
                yield first + i, bank.kernel(slot)
            del bank
        if not self.active:
            raise ValueError(
                f"every one of the {len(self.names)} kernel(s) is constant on the "
                "training rows, so there is nothing to learn from; check the features"
            )

    def spread(self, weights: np.ndarray) -> np.ndarray:
        """Unchanged: the weights already cover all p kernels."""
        return np.asarray(weights)


def sources_of(
    views: list[View], data: ObservedViews, names: list[str]
) -> list[Source]:
    """One source per view, over the rows that have it.

    Parameters
    ----------
    views : list of View
        Empty if kernels are precomputed.
    data : ObservedViews
        The training rows.
    names : list of str
        Names of views, or of precomputed kernels.
    """
    sources: list[Source] = []
    for v, name in enumerate(names):
        rows = data.observed[:, v]
        if views:
            block = take_rows(data.blocks[v], rows)
            sources.append(FeatureSource([views[v]], [block]))
        else:
            sources.append(PrecomputedSource(_square(data.blocks, rows, v), [name]))
    return sources


def _square(stack: Array, rows: np.ndarray, kernel: int) -> Array:
    """Rows and columns of one precomputed kernel, (n_view, n_view, 1)."""
    one = stack[:, :, kernel : kernel + 1]
    if np.all(rows):
        return one
    xp = namespace(stack)
    index = xp.asarray(np.flatnonzero(rows), device=device(stack))
    return xp.take(xp.take(one, index, axis=0), index, axis=1)


@dataclass
class ExpertPanel:
    """Predictions of all experts for the training rows, and what new rows need.

    Attributes
    ----------
    target : ndarray of shape (n, k)
        Class coordinates.
    classes : ndarray of shape (k,)
        Class labels.
    observed : ndarray of bool of shape (n, p)
        Which experts have each row.
    allowed : ndarray of bool of shape (p, k)
        Which experts have seen enough rows of each class to predict it.
    noise, amplitude, intercept : ndarray of shape (p, k)
        Parameters of each expert and class.
    log_density, mean, variance, held_out : ndarray of shape (n, p, k)
        Leave-one-out results of each row; NaN where an expert lacks the row.
    coef : list of arrays of shape (n_view, k)
        Coefficients of the rows that each expert was fitted on.
    rows : list of ndarray
        The training rows in each expert's order: those with its kernel come first.
    scale : ndarray of shape (p,)
        Factor that keeps the trace of each kernel at n when rows of zeros are added.
    experts : dict of int to Expert
        The experts by number, with all their candidate noise levels.
    """

    target: np.ndarray
    classes: np.ndarray
    observed: np.ndarray
    allowed: np.ndarray
    noise: np.ndarray
    amplitude: np.ndarray
    intercept: np.ndarray
    log_density: np.ndarray
    mean: np.ndarray
    variance: np.ndarray
    held_out: np.ndarray
    coef: list[Array | None]
    rows: list[np.ndarray]
    scale: np.ndarray
    experts: dict[int, Expert] = field(default_factory=dict)

    @classmethod
    def empty(
        cls, maps: ViewMaps, target: np.ndarray, classes: np.ndarray, zero: bool
    ) -> ExpertPanel:
        """A panel of p experts without predictions yet."""
        (n, k), p = target.shape, len(maps.names)
        seen = maps.observed[:, maps.view_of]  # (n, p)
        table = np.full((n, p, k), np.nan)
        flat = np.zeros((p, k))
        counts = seen.sum(axis=0)
        order = [
            np.concatenate([np.flatnonzero(column), np.flatnonzero(~column)])
            for column in seen.T
        ]
        return cls(
            target=target,
            classes=classes,
            observed=np.ones_like(seen) if zero else seen.copy(),
            allowed=np.zeros((p, k), dtype=bool),
            noise=flat.copy(),
            amplitude=flat.copy(),
            intercept=flat.copy(),
            log_density=table.copy(),
            mean=table.copy(),
            variance=table.copy(),
            held_out=table.copy(),
            coef=[None] * p,
            rows=[
                rows if zero else rows[:count]
                for rows, count in zip(order, counts, strict=True)
            ],
            scale=n / counts if zero else np.ones(p),
        )

    def path(self, e: int, gram: Array) -> PredictivePath:
        """Expert ``e`` at all noise levels; its centred kernel is (n_view, n_view)."""
        rows = self.rows[e]
        target = from_numpy(self.target[rows], gram)
        whole = _embedded(gram, len(rows), float(self.scale[e]))
        return PredictivePath(whole, target)

    def settle(self, e: int, expert: Expert, like: Array) -> None:
        """Record the predictions of expert ``e``."""
        rows, seen = self.rows[e], self._kernel_rows(e)
        self.noise[e], self.amplitude[e] = expert.noise, expert.amplitude
        self.log_density[rows, e], self.mean[rows, e] = expert.log_density, expert.mean
        self.variance[rows, e] = expert.variance
        self.held_out[rows, e] = expert.held_out
        self.coef[e] = from_numpy(self.scale[e] * expert.coef[:seen], like)
        self.intercept[e] = np.mean(self.target[rows], axis=0)

    def allow(self, codes: np.ndarray, maps: ViewMaps) -> None:
        """Let experts predict the classes they have seen.

        This takes two rows of the class, so that one remains when the other is left
        out (or one, if the class has no more), and at least one row of another class.
        """
        k = self.allowed.shape[1]
        sizes = np.bincount(codes, minlength=k)
        for e in maps.active:
            own = maps.observed[:, maps.view_of[e]]
            counts = np.bincount(codes[own], minlength=k)
            self.allowed[e] = (counts >= np.minimum(2, sizes)) & (counts < own.sum())

    def remarks(self, maps: ViewMaps) -> Iterator[str]:
        """One sentence per view whose experts cannot predict some class."""
        for v, one in enumerate(maps.maps):
            if not one.active:
                continue
            allowed = self.allowed[int(maps.first[v]) + one.active[0]]
            absent = ", ".join(map(repr, self.classes[~allowed].tolist()))
            if absent:
                yield (
                    f"view {one.view_names[0]!r} has fewer than 2 rows of the "
                    f"class(es) {absent} or none of another: its kernels have weight "
                    "0 there"
                )

    def _kernel_rows(self, e: int) -> int:
        """Number of an expert's rows that have its kernel; they come first."""
        return round(len(self.rows[e]) / float(self.scale[e]))


def ask_experts(
    maps: ViewMaps,
    codes: np.ndarray,
    classes: np.ndarray,
    options: MixtureOptions,
    progress: Progress,
    settle: Callable[[int, PredictivePath], Expert] | None = None,
) -> ExpertPanel:
    """Fit one expert per kernel; each remark is added to ``maps`` with a warning.

    The rows have the class codes ``codes`` (n,) of the labels ``classes`` (k,).
    ``settle(e, path)``, if given, chooses the noise levels instead of ``options``.
    """
    target = class_target(codes, len(classes))
    panel = ExpertPanel.empty(maps, target, classes, options.missing == "zero")
    for e, gram in maps.fit(progress):
        path = panel.path(e, gram)
        expert = options.expert(path) if settle is None else settle(e, path)
        panel.settle(e, expert, gram)
        if options.noise == "em":
            panel.experts[e] = expert
    panel.allow(codes, maps)
    for remark in panel.remarks(maps):
        maps.remarks.append(remark)
        warnings.warn(remark, KernelWarning, stacklevel=6)
    return panel


def _embedded(gram: Array, n: int, scale: float) -> Array:
    """``scale`` times the kernel with zeros for the rows that lack it, (n, n)."""
    if gram.shape[0] == n:
        return gram
    xp, m = namespace(gram), gram.shape[0]
    whole = xp.zeros((n, n), dtype=gram.dtype, device=device(gram))
    whole[:m, :m] = gram * scale
    return whole
