"""The one loop over folds: learn without the rows of each, and judge these rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.model_selection import (
    GroupKFold,
    KFold,
    StratifiedGroupKFold,
    StratifiedKFold,
)

from kernelweave._array import Array, to_numpy, units_of
from kernelweave._text import with_names
from kernelweave.exceptions import MemoryRefusedError
from kernelweave.fits.calibration import Calibration, calibrate
from kernelweave.fits.design import RowDesign
from kernelweave.fits.gaussians import ClassHits, units_per_class
from kernelweave.fits.targets import StandardOutputs
from kernelweave.learn.estimates import accuracy, mean_over_folds, ratio_of_means
from kernelweave.learn.measure import Measure
from kernelweave.learn.sample import Sample
from kernelweave.learn.search import STOPPED, Learned, Options

#: Remark on a model whose folds do not fit into memory, were stopped, or failed.
NO_SCORE = "there is no cv_score_: {}"


#: Why there is none if no fold counts.
TOO_FEW = "too few rows or groups to learn {} without those of a fold"


#: The smallest temperature of held-out rows, relative to that of their fold. A fold
#: may doubt its few rows more than the rows held out give reason to.
COOLEST = 1e-2


class StoppedError(Exception):
    """Raised if no further folds are wanted, or one of them cannot be learned."""


@dataclass(frozen=True)
class FoldScore:
    """The score to expect on new rows, from folds in which everything is learned again.

    Attributes
    ----------
    score : float
        Accuracy, R^2 or the requested measure, on held-out rows; NaN if undefined.
    standard_error : float
        Its standard error.
    calibration : Calibration or None
        The temperature relative to that of rows left out one by one, and the share of
        exceptions, with the smallest held-out log loss. None if no held-out row has a
        class that its fold has seen.
    hits : ClassHits or None
        How many held-out rows of each class are right.
    remark : str or None
        Why there is no score.
    """

    score: float = float("nan")
    standard_error: float = float("nan")
    calibration: Calibration | None = None
    hits: ClassHits | None = None
    remark: str | None = None


@dataclass(frozen=True)
class Fold:
    """What was learned from the rows ``train``, and the projections of those ``test``.

    Attributes
    ----------
    train, test : ndarray of int
        Row numbers.
    learned : Learned
        From the rows ``train``.
    projected : array of shape (m, k)
        Of the rows ``test``.
    """

    train: np.ndarray
    test: np.ndarray
    learned: Learned
    projected: Array


@dataclass(frozen=True)
class FoldClasses:
    """What a fit without the rows ``test`` predicts for them."""

    test: np.ndarray  # (m,)
    classes: np.ndarray  # (r,), codes of the classes that the fit has seen
    has_evidence: bool  # whether it predicts more than the class shares
    scores: np.ndarray  # (m, r), without given priors and before exceptions
    log_joint: np.ndarray  # (m, r)


def choose_splits(
    cv: Any,
    targets: np.ndarray,
    design: RowDesign,
    classify: bool,
    random_state: Any = 0,
    every_class: bool = False,
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The rows to learn from and those held out, for each fold.

    A whole number of folds is stratified by class and keeps groups together; which rows
    are in a fold depends on the ranks of the design, not on their order. There are
    fewer folds than requested if every class has fewer rows, or if there are fewer
    groups; a class with fewer rows than folds is held out in some of them only. With
    ``every_class``, one class with fewer rows is enough for fewer folds, so that each
    fold holds out a row of it: the balanced accuracy of others would leave it out.
    """
    if not isinstance(cv, int | np.integer):
        return _splits_as_passed(cv, targets, design)
    n_folds = min(int(cv), len(design.members))
    if classify:
        counts = units_per_class(targets, design)
        if np.max(counts) < 2:
            return []  # no class can be both learned and held out
        limit = np.min(counts[counts > 1]) if every_class else np.max(counts)
        n_folds = max(2, min(n_folds, int(limit)))
    kinds: dict[tuple[bool, bool], Any] = {
        (True, False): StratifiedKFold,
        (True, True): StratifiedGroupKFold,
        (False, False): KFold,
        (False, True): GroupKFold,
    }
    kind = kinds[classify, design.groups is not None]
    splitter = kind(n_folds, shuffle=True, random_state=random_state)
    order = np.argsort(design.places)  # (n,), by contents
    labels = targets[order] if classify else None
    groups = None if design.groups is None else design.places_of_units[order]
    with warnings.catch_warnings():  # classes with fewer rows than folds are expected
        few = "The (least populated class in y|number of unique classes) "
        warnings.filterwarnings("ignore", few)
        splits = list(splitter.split(order, labels, groups))
    return [(np.sort(order[train]), np.sort(order[test])) for train, test in splits]


def _splits_as_passed(
    cv: Any, targets: np.ndarray, design: RowDesign
) -> list[tuple[np.ndarray, np.ndarray]]:
    """The splits of a scikit-learn splitter, or an iterable of them, by row number.

    A splitter divides the rows that count. An iterable was made for the rows of X, of
    which those of weight 0 are left out of its splits.
    """
    n = len(targets)
    kept = np.ones(n, dtype=bool)
    if hasattr(cv, "split"):
        what = "rows of positive weight"
        pairs = list(cv.split(np.zeros((n, 1)), targets, design.groups))
    else:
        what, pairs = "rows in X", list(cv)
        kept = kept if design.kept is None else design.kept
    if not pairs:
        raise ValueError(
            "cv holds no splits. A generator can be read only once, by one fit: pass a "
            "list of pairs (train, test)"
        )
    number = np.cumsum(kept) - 1  # (N,), of the rows that count
    splits = []
    for i, pair in enumerate(pairs):
        try:
            train, test = pair
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"cv: split {i} must be a pair (train, test) of row numbers; got "
                f"{type(pair).__name__} {pair!r:.60}"
            ) from error
        train = _row_numbers(train, len(kept), i, what)
        test = _row_numbers(test, len(kept), i, what)
        both = np.intersect1d(train, test)
        if len(both):
            raise ValueError(
                f"cv: split {i} has {with_names('row', map(str, both))} in both its "
                "training and its test rows, and a score of rows that were learned "
                "from is not held out. Remove them from one of the two"
            )
        splits.append((number[train[kept[train]]], number[test[kept[test]]]))
    return splits


def _row_numbers(rows: Any, n: int, split: int, what: str) -> np.ndarray:
    """Numbers from 0 of rows given by number, where -1 is the last, or by a mask (n,).

    The number of the ``split``, and ``what`` the n rows are, are for messages.
    """
    rows = np.asarray(rows)
    if rows.dtype == bool and rows.shape == (n,):
        return np.flatnonzero(rows)
    if rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
        raise ValueError(
            f"cv: split {split} must give rows by number, or by a mask of {n} {what}; "
            f"got an array of {rows.dtype} of shape {rows.shape}"
        )
    rows = rows.astype(np.int64)
    beyond = rows[(rows < -n) | (rows >= n)]
    if len(beyond):
        raise ValueError(
            f"cv: split {split} names row {beyond[0]}, counted from 0, but there are "
            f"{n} {what}. Make the splits for these rows"
        )
    return rows % n


def on_folds(
    learn: Callable[[Sample, Options], Learned],
    sample: Sample,
    splits: list[tuple[np.ndarray, np.ndarray]],
    options: Options,
    report: Callable[[int, int], object],
) -> Iterator[Fold]:
    """Learn from the rows of each fold, and project those held out.

    Leave-one-out errors at the final weights are too good, since the weights were
    learned on the rows left out. Here everything is learned again without the rows of
    a fold, which costs a fit of four fifths of the rows, about half as much as that of
    all. Only the parameters of the kernels, such as widths, which never see a label,
    are those of all rows; so is a scale other than trace n after centring. Searches
    start from what was found on all rows (:meth:`Options.for_folds`), which saves half
    of their steps. Folds whose rows have no kernel that varies, or none with a weight,
    are left out.

    Parameters
    ----------
    learn : callable
        Learns from a sample.
    sample : Sample
        All rows.
    splits : list of (train, test)
        Row numbers.
    options : Options
        For the folds.
    report : callable
        Called after each fold with its number, and with how many there are; true if
        the others are not wanted.
    """
    # new memory for every fold would cost a pass over it
    space = sample.bank.space_of_fold(max((len(s[0]) for s in splits), default=0))
    for i, (train, test) in enumerate(splits, start=1):
        fold = sample.fold(train, test, space)
        if fold is not None:
            part, cross = fold
            learned = learn(part, options)
            projected = cross(learned.choice.weights) @ learned.dual_coef
            yield Fold(train, test, learned, projected)
        end_fold(report, i, len(splits))


def predicted_classes(fold: Fold) -> FoldClasses:
    """What the discriminant of a fold predicts for its test rows."""
    classes, gaussians = fold.learned.classes, fold.learned.gaussians
    assert classes is not None and gaussians is not None
    scores = to_numpy(gaussians.scores(fold.projected))
    log_joint = to_numpy(gaussians.log_joint(fold.projected))
    return FoldClasses(fold.test, classes, gaussians.slope > 0, scores, log_joint)


def cross_validate(
    learn: Callable[[Sample, Options], Learned],
    sample: Sample,
    options: Options,
    learned: Learned,
) -> FoldScore | None:
    """The score of folds, after what was ``learned`` from all rows; None without."""
    classify = learned.gaussians is not None
    again = options.for_folds(learned.choice)

    def judged(splits: list[tuple[np.ndarray, np.ndarray]]) -> Iterator[Any]:
        folds = on_folds(learn, sample, splits, again, options.progress.fold)
        return map(predicted_classes, folds) if classify else folds

    return score_on_folds(options, sample.targets, sample.design, classify, judged)


def end_fold(report: Callable[[int, int], object], number: int, n_folds: int) -> None:
    """Report a finished fold; raise StoppedError if the others are not wanted."""
    if report(number, n_folds) and number < n_folds:
        raise StoppedError(f"{STOPPED} after fold {number} of {n_folds}")


def score_classes(
    folds: Iterable[FoldClasses],
    codes: np.ndarray,
    design: RowDesign,
    measure: Measure | None = None,
) -> FoldScore:
    """Accuracy on held-out rows, and the calibration with the smallest log loss.

    The temperature is relative to that of each fold, which sees its own rows left out
    one by one: folds whose scores differ in size do not rule each other.

    Classes that a fold has not seen cannot be predicted: their rows count as errors,
    and say nothing about the temperature. Nor do those of a fold whose fit found no
    evidence, and predicts the class shares. A measure other than the accuracy is
    averaged over the folds, without those where it is undefined.
    """
    measured, tested, scores, k = [], [], [], int(np.max(codes)) + 1
    right: list[np.ndarray] = []
    for fold in folds:
        # Given priors are not the shares of these rows, which calibrate probabilities.
        fold_scores = np.full((len(fold.test), k), -np.inf)
        if fold.has_evidence:
            fold_scores[:, fold.classes] = fold.scores
        if measure is not None:
            measured.append(_class_measure(measure, fold, codes, k, design))
        best = fold.classes[np.argmax(fold.log_joint, axis=1)]
        right.append(best == codes[fold.test])
        tested.append(fold.test)
        scores.append(fold_scores)
    if not tested:
        return FoldScore()
    rows, scored, correct = map(np.concatenate, (tested, scores, right))
    weights = design.each[rows]
    score, error = accuracy(correct, weights, design.units[rows])
    known = np.isfinite(scored[np.arange(len(rows)), codes[rows]])
    calibration = None
    if np.any(known):
        calibration = calibrate(
            scored[known], codes[rows][known], design.restrict(rows[known]), COOLEST
        )
    if measure is not None:
        score, error = mean_over_folds(np.array(measured))
    hits = ClassHits.of(correct, codes[rows], k)
    return FoldScore(score, error, calibration, hits)


def _class_measure(
    measure: Measure, fold: FoldClasses, codes: np.ndarray, k: int, design: RowDesign
) -> float:
    """The measure on the held-out rows of a fold; NaN if it needs a class they lack."""
    truth = codes[fold.test]
    scores = np.full((len(truth), k), -np.inf)
    scores[:, fold.classes] = fold.log_joint
    try:
        return measure(scores, truth, design.restrict(fold.test).weights)
    except ValueError:
        if len(np.unique(truth)) == k:
            raise
        return float("nan")


def score_outputs(
    folds: Iterable[Fold],
    outputs: np.ndarray,
    design: RowDesign,
    measure: Measure | None = None,
) -> FoldScore:
    """R^2 on held-out rows, averaged over the outputs (n, t) that vary.

    The variance to explain is that around the mean of the rows learned from. The
    standard error is that of a ratio of means. Any other requested measure is averaged
    over the folds instead.
    """
    measured, tested, errors, spreads = [], [], [], []
    unit = units_of(np.max(np.abs(outputs), axis=0), 64)  # squares must not overflow
    for fold in folds:
        assert fold.learned.intercept is not None
        predicted = to_numpy(fold.projected) + to_numpy(fold.learned.intercept)[None, :]
        truth = outputs[fold.test]
        if measure is not None:
            of_rows = design.restrict(fold.test).weights
            measured.append(measure(predicted, truth, of_rows))
            continue
        w = design.each[fold.train]
        mean = np.average(outputs[fold.train] / unit, axis=0, weights=w)
        errors.append((truth / unit - predicted / unit) ** 2)
        spreads.append((truth / unit - mean) ** 2)
        tested.append(fold.test)
    if measure is not None:
        return FoldScore(*mean_over_folds(np.array(measured)))
    if not tested:
        return FoldScore()
    rows, wrong, spread = map(np.concatenate, (tested, errors, spreads))
    varies = StandardOutputs.of(outputs, design.weights).varies
    if not np.any(varies):
        return FoldScore(0.0, 0.0)
    gained, spread = (spread - wrong)[:, varies], spread[:, varies]
    weights, units = design.each[rows], design.units[rows]
    return FoldScore(*ratio_of_means(gained, spread, weights, units))


def score_on_folds(
    options: Options,
    targets: np.ndarray,
    design: RowDesign,
    classify: bool,
    judge: Callable[[list[tuple[np.ndarray, np.ndarray]]], Iterable[Any]],
) -> FoldScore | None:
    """The score on rows held out, or a remark on why there is none; None without folds.

    Parameters
    ----------
    options : Options
        What the folds are, and whether a callback has asked to stop. Its measure
        replaces the accuracy or R^2.
    targets : ndarray of shape (n,) or (n, t)
        Classes 0 .. k - 1, or outputs.
    design : RowDesign
        Weights and groups of the rows.
    classify : bool
        Whether the targets are classes.
    judge : callable
        ``judge(splits)`` learns from the rows of each split: a :class:`FoldClasses` for
        each or, for outputs, a :class:`Fold`.
    """
    if options.cv is None:
        return None
    if options.stopped:
        return FoldScore(remark=NO_SCORE.format(f"{STOPPED} before the folds"))
    measure = options.measure
    splits = choose_splits(
        options.cv,
        targets,
        design,
        classify,
        options.random_state,
        every_class=measure is not None,
    )
    # leaving out one group after another takes two groups, and two classes
    needed = [design.units, targets] if classify else [design.units]
    splits = [
        (train, test)
        for train, test in splits
        if len(test) and all(len(np.unique(values[train])) > 1 for values in needed)
    ]
    score = score_classes if classify else score_outputs
    try:
        result = score(judge(splits), targets, design, measure)
    except (MemoryRefusedError, StoppedError) as error:
        return FoldScore(remark=NO_SCORE.format(error))
    if not np.isnan(result.score):
        return result
    why = TOO_FEW.format("two classes" if classify else "anything")
    if splits and measure is not None:
        why = f"{measure.scoring!r} is undefined on every fold"
    return replace(result, remark=NO_SCORE.format(why))
