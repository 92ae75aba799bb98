"""The criteria of a fitted model, for any of its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.utils.multiclass import type_of_target

from kernelweave._array import from_numpy, namespace, to_numpy
from kernelweave.criteria import Alignment, Fisher, Margin
from kernelweave.fits.ridge import (
    RowDesign,
    reduced_class_target,
    signs_of_codes,
)
from kernelweave.kernels import DenseBank
from kernelweave.models import KernelAlignment, MultipleKernelRidge, MultipleKernelSVC
from kernelweave.protocols import Bank, Criterion


def norm_of(model: Any) -> float:
    """The norm of the weights: the one that was chosen, or the parameter, or 1."""
    chosen: Any = getattr(model, "norm_", None) or getattr(model, "norm", 1.0)
    return 1.0 if isinstance(chosen, str) else float(chosen)


def criteria_of(
    model: Any, y: Any, caller: str
) -> tuple[Callable[[Bank, np.ndarray], list[Criterion]], np.ndarray | None]:
    """How to build the criteria of a model for some of its rows, and the classes.

    The kernels are those of the rows themselves, centred with their weights; where the
    criterion needs it, rows are multiplied by the roots of the weights here.
    """
    y = _targets(y, model, caller)
    whole = RowDesign(len(y), model.kernel_map_.row_weights)
    numbers = type_of_target(y) not in ("binary", "multiclass")
    if numbers or isinstance(model, MultipleKernelRidge):
        outputs = y.reshape(len(y), -1).astype(np.float64)

        def of_numbers(bank: Bank, rows: np.ndarray) -> list[Criterion]:
            design = whole.restrict(rows)
            target = _standardised(outputs[rows], design)
            if not isinstance(model, MultipleKernelRidge):
                return [_alignment(model, bank, target, design)]
            goal = design.scale(from_numpy(target, bank.like))
            return [Fisher(_scaled(bank, design), goal, _alpha(model), design)]

        return of_numbers, None
    codes = np.unique(y, return_inverse=True)[1].reshape(-1)

    def of_classes(bank: Bank, rows: np.ndarray) -> list[Criterion]:
        design = whole.restrict(rows)
        own = np.unique(codes[rows], return_inverse=True)[1].reshape(-1)
        k = int(own.max()) + 1
        signs = signs_of_codes(own, k)
        if isinstance(model, MultipleKernelSVC):
            return _margins(model, bank, signs, design)
        if isinstance(model, KernelAlignment):
            target = signs if k == 2 else np.eye(k)[own]
            return [_alignment(model, bank, target, design)]
        goal = from_numpy(reduced_class_target(own, k, design.weights)[0], bank.like)
        scaled = _scaled(bank, design)
        return [model._criterion(scaled, goal, own, design, _alpha(model))]

    return of_classes, codes


def _targets(y: Any, model: Any, caller: str) -> np.ndarray:
    """The targets (n,) or (n, t) in host memory, as many as the model has rows."""
    values = to_numpy(y)
    n = model.kernel_map_.source.n_samples
    if len(values) != n:
        raise ValueError(
            f"{caller}: the model was fitted on {n} rows, but y has {len(values)}"
        )
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    return values


def _alignment(
    model: Any, bank: Bank, target: np.ndarray, design: RowDesign
) -> Criterion:
    centred = bool(model.centre)
    return Alignment(bank, target, centred=centred, row_weights=design.weights)


def _scaled(bank: Bank, design: RowDesign) -> Bank:
    """The kernels ``D G_i D`` with ``D = diag(sqrt(w))``."""
    if design.weights is None:
        return bank
    grams = [
        design.scale(design.scale(bank.kernel(i)).T) for i in range(bank.n_kernels)
    ]
    return DenseBank(namespace(bank.like).stack(grams), bank.names)


def _alpha(model: Any) -> Any:
    """The regularisation at which the weights were learned; "loo" settles it later."""
    return "learn" if isinstance(model.alpha, str) else float(model.alpha)


def _margins(
    model: Any, bank: Bank, signs: np.ndarray, design: RowDesign
) -> list[Criterion]:
    """One criterion for all classes, or one per class."""
    price = model.C
    if price in ("auto", "cv"):  # the same for all classes
        price = float(np.max(to_numpy(model.C_)))
    groups = np.hsplit(signs, signs.shape[1] if model.weights == "per_class" else 1)
    return [
        Margin(bank, from_numpy(group, bank.like), model.margin, price, design.weights)
        for group in groups
    ]


def _standardised(outputs: np.ndarray, design: RowDesign) -> np.ndarray:
    """Columns (n, t) of mean zero and unit variance; constant ones become zero."""
    centred = outputs - np.average(outputs, axis=0, weights=design.each)
    spread = np.sqrt(np.average(centred**2, axis=0, weights=design.each))
    return centred / np.where(spread > 0, spread, 1.0)
