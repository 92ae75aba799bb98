"""Scores that hold on new rows: folds in which everything is learned anew.

Leave-one-out errors at the final weights are too good, since the weights were learned
on the rows left out. Here everything is learned again without the rows of a fold. The
kernels are there already: with ``G = P K P`` of all rows, the kernel of the rows s of a
fold is ``P_s K_ss P_s = P_s G_ss P_s``, and that of its held-out rows follows likewise,
so a fold costs a fit of four fifths of the rows, about half as much. Only the
parameters of the kernels, such as widths, which never see a label, are those of all
rows.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
)

from kernelweave._array import (
    Array,
    empty,
    from_numpy,
    namespace,
    take,
    to_numpy,
    units_of,
)
from kernelweave._memory import require_memory
from kernelweave.exceptions import MemoryRefusedError
from kernelweave.fits.rows import RowDesign
from kernelweave.kernels.banks.dense import DenseBank, take_square
from kernelweave.kernels.maps.kernel_map import Centering, add, center_in_place
from kernelweave.models.shared.inputs import Rule, whole
from kernelweave.models.shared.learner import Fitted, FoldScore
from kernelweave.protocols import Bank

#: Temperatures that are considered; 1 leaves the probabilities as they are.
TEMPERATURES = (1.0, 50.0)
#: Relative gap of the weights of a fold.
FOLD_TOLERANCE = 1e-4
#: Said of a model whose folds do not fit into memory.
NO_SCORE = "there is no cv_score_: {}"


def _is_splitter(value: Any) -> bool:
    return hasattr(value, "split") and not isinstance(value, str)


#: What ``cv`` may be.
FOLDS = Rule(
    "None, an int >= 2 or a splitter of scikit-learn",
    lambda v: v is None or _is_splitter(v) or whole(2).allows(v),
)


@dataclass(frozen=True)
class Fold:
    """A fit to the rows ``train``, and what it projects the rows ``test`` to."""

    train: np.ndarray
    test: np.ndarray
    fitted: Fitted
    projected: Array  # (m, k)


Fit = Callable[[DenseBank, np.ndarray, RowDesign], Fitted]


def choose_splits(
    cv: Any, targets: np.ndarray, design: RowDesign, classify: bool
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The rows to learn from and those held out, for each fold.

    A whole number of folds is stratified by class and keeps groups together; there are
    fewer folds than asked for if a class has fewer rows, or if there are fewer groups.
    """
    rows, groups = np.zeros((len(targets), 1)), design.groups
    if not isinstance(cv, int | np.integer):
        return [
            (np.asarray(a), np.asarray(b)) for a, b in cv.split(rows, targets, groups)
        ]
    n_folds = min(int(cv), len(design.members))
    if classify:
        units = np.unique(np.stack([targets, _units(design)]), axis=1)[0]
        counts = np.bincount(units.astype(int))
        n_folds = max(2, min([n_folds, *counts[counts > 1]]))
    kinds: dict[tuple[bool, bool], Any] = {
        (True, False): StratifiedKFold(n_folds, shuffle=True, random_state=0),
        (True, True): StratifiedGroupKFold(n_folds, shuffle=True, random_state=0),
        (False, False): KFold(n_folds, shuffle=True, random_state=0),
        (False, True): GroupKFold(n_folds, shuffle=True, random_state=0),
    }
    splitter = kinds[classify, groups is not None]
    with warnings.catch_warnings():  # classes with fewer rows than folds are expected
        warnings.simplefilter("ignore", UserWarning)
        return list(splitter.split(rows, targets if classify else None, groups))


def _units(design: RowDesign) -> np.ndarray:
    return np.arange(design.n_rows) if design.groups is None else design.groups


def learn_folds(
    bank: Bank,
    targets: np.ndarray,
    design: RowDesign,
    splits: Iterable[tuple[np.ndarray, np.ndarray]],
    fit: Fit,
) -> Iterator[Fold]:
    """Fit to the rows of each fold, and project those held out.

    Parameters
    ----------
    bank : Bank
        Centred kernels of all n rows, multiplied by the roots of the row weights.
    targets : ndarray of shape (n,) or (n, t)
        Classes or outputs.
    design : RowDesign
        Weights and groups of the rows.
    splits : iterable of (train, test)
        Indices of rows.
    fit : callable
        Learns from a bank, targets and a design.
    """
    for train, test in splits:
        part = design.restrict(train)
        fold = _FoldKernels(bank, train, test, design, part)
        fitted = fit(fold.bank, targets[train], part)
        projected = fold.cross(fitted.choice.weights) @ fitted.dual_coef
        yield Fold(train, test, fitted, projected)


class _FoldKernels:
    """Kernels of the rows ``train``, centred and scaled anew, and those of ``test``."""

    def __init__(
        self,
        whole: Bank,
        train: np.ndarray,
        test: np.ndarray,
        design: RowDesign,
        part: RowDesign,
    ) -> None:
        n, p, like = len(train), whole.n_kernels, whole.like
        require_memory(
            p * n * n * namespace(like).finfo(like.dtype).bits // 8,
            f"{p} kernels of the {n} rows of a fold",
            "use cv=None",
            like,
        )
        self.whole, self.train, self.test, self.design = whole, train, test, design
        stack = empty((p, n, n), like)
        shares = None
        if part.weights is not None:
            shares = from_numpy(part.weights / part.total, like)
        self.centerings: list[Centering] = []
        self.active: list[int] = []
        for i in range(p):
            slot = stack[len(self.active), :, :]
            slot[...] = self._unweighted(
                take_square(whole.kernel(i), train), train, train
            )
            centering = center_in_place(slot, shares=shares)
            if shares is not None:
                root = part.root(slot)
                slot *= root
                slot *= root.T
            self.centerings.append(centering)
            self.active += [i] if centering.scale > 0 else []
        names = [whole.names[i] for i in self.active]
        self.bank = DenseBank(stack[: len(self.active), :, :], names)

    def _unweighted(self, gram: Array, rows: np.ndarray, columns: np.ndarray) -> Array:
        """Without the roots of the weights by which the kernels were multiplied."""
        if self.design.weights is None:
            return gram
        root = self.design.root(gram)
        return gram / (take(root, rows) @ take(root, columns).T)

    def cross(self, weights: np.ndarray) -> Array:
        """``sum_i w_i G_i`` between held-out rows and those of the fold, (m, n)."""
        total = None
        for weight, i in zip(weights, self.active, strict=True):
            if weight != 0:
                block = take(take(self.whole.kernel(i), self.test), self.train, axis=1)
                block = self._unweighted(block, self.test, self.train)
                total = add(total, self.centerings[i](block) * float(weight))
        assert total is not None
        return total


def score_classes(
    folds: Iterable[Fold], codes: np.ndarray, k: int, design: RowDesign
) -> FoldScore:
    """Accuracy on held-out rows, and the temperature with the smallest log loss.

    Classes that a fold has not seen cannot be predicted: their rows count as errors,
    and say nothing about the temperature.
    """
    right = np.zeros(len(codes), dtype=bool)
    tested = np.zeros(len(codes), dtype=bool)
    scores = np.full((len(codes), k), -np.inf)
    for fold in folds:
        fitted = fold.fitted
        assert fitted.classes is not None and fitted.gaussians is not None
        log_joint = to_numpy(fitted.gaussians.log_joint(fold.projected))
        scores[np.ix_(fold.test, fitted.classes)] = log_joint
        best = fitted.classes[np.argmax(log_joint, axis=1)]
        right[fold.test] = best == codes[fold.test]
        tested[fold.test] = True
    weights = design.each * tested
    score = float(np.average(right, weights=weights))
    error = _standard_error(right - score, weights, design)
    own = scores[np.arange(len(codes)), codes]
    known = tested & np.isfinite(own)
    temperature = _best_temperature(scores[known], codes[known], design.each[known])
    return FoldScore(score, error, temperature)


def _standard_error(
    deviation: np.ndarray, weights: np.ndarray, design: RowDesign
) -> float:
    """Of a weighted mean, from deviations (n,) that are independent between groups."""
    sums = np.bincount(_units(design), weights * deviation)
    return float(np.sqrt(np.sum(sums**2)) / np.sum(weights))


def _best_temperature(
    scores: np.ndarray, codes: np.ndarray, weights: np.ndarray
) -> float:
    """T >= 1 with the smallest log loss of ``scores / T`` (n, k)."""
    if len(codes) == 0:
        return 1.0
    rows = np.arange(len(codes))

    def log_loss(log_t: float) -> float:
        log_proba = log_softmax(scores / np.exp(log_t), axis=1)
        return -float(np.average(log_proba[rows, codes], weights=weights))

    low, high = np.log(TEMPERATURES)
    best = minimize_scalar(log_loss, bounds=(low, high), method="bounded")
    return float(np.exp(best.x)) if best.fun < log_loss(low) else 1.0


def score_outputs(
    folds: Iterable[Fold], outputs: np.ndarray, design: RowDesign
) -> FoldScore:
    """R^2 on held-out rows, averaged over the outputs (n, t).

    The variance to explain is that around the mean of the rows learned from. The
    standard error is that of a ratio of means.
    """
    unit = units_of(np.max(np.abs(outputs), axis=0), 64)  # squares must not overflow
    wrong, spread = np.zeros((2, *outputs.shape))
    weights = np.zeros(len(outputs))
    for fold in folds:
        assert fold.fitted.intercept is not None
        predicted = to_numpy(fold.projected) + to_numpy(fold.fitted.intercept)[None, :]
        truth = outputs[fold.test] / unit
        w = design.each[fold.train]
        mean = np.average(outputs[fold.train] / unit, axis=0, weights=w)
        wrong[fold.test] = (truth - predicted / unit) ** 2
        spread[fold.test] = (truth - mean) ** 2
        weights[fold.test] = design.each[fold.test]
    total = np.average(spread, axis=0, weights=weights)
    varies = total > 0
    if not np.any(varies):
        return FoldScore(0.0, 0.0)
    ratio = np.average(wrong, axis=0, weights=weights)[varies] / total[varies]
    deviation = np.mean(
        (wrong[:, varies] - ratio * spread[:, varies]) / total[varies], axis=1
    )
    error = _standard_error(deviation, weights, design)
    return FoldScore(float(np.mean(1.0 - ratio)), error)


def with_class_score(
    fitted: Fitted, bank: Bank, codes: np.ndarray, design: RowDesign, cv: Any, fit: Fit
) -> Fitted:
    """The fit with its accuracy on folds, which also set the temperature.

    ``codes`` (n,) are classes 0 .. k - 1; ``cv`` is a number of folds or a splitter.
    """
    k = int(np.max(codes)) + 1
    splits = choose_splits(cv, codes, design, classify=True)
    folds = learn_folds(bank, codes, design, splits, fit)
    try:
        found = score_classes(folds, codes, k, design)
    except MemoryRefusedError as error:
        return replace(fitted, folds=NO_SCORE.format(error))
    assert fitted.gaussians is not None
    gaussians = replace(fitted.gaussians, temperature=found.temperature)
    return replace(fitted, folds=found, gaussians=gaussians)


def with_output_score(
    fitted: Fitted,
    bank: Bank,
    outputs: np.ndarray,
    design: RowDesign,
    cv: Any,
    fit: Fit,
) -> Fitted:
    """The fit with its R^2 on folds, for outputs (n, t)."""
    splits = choose_splits(cv, outputs, design, classify=False)
    folds = learn_folds(bank, outputs, design, splits, fit)
    try:
        return replace(fitted, folds=score_outputs(folds, outputs, design))
    except MemoryRefusedError as error:
        return replace(fitted, folds=NO_SCORE.format(error))
