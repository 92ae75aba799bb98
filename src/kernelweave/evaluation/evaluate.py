"""Cross-validate a model beside its baselines, on the same rows."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.utils import Bunch

from kernelweave._array import is_array, to_numpy
from kernelweave.evaluation.baselines import baselines_of
from kernelweave.evaluation.held_out import HeldOut, assign_folds, out_of_fold
from kernelweave.views.columns import is_precomputed

#: The name of the model itself in the table.
MODEL = "learned weights"


def evaluate(
    model: Any,
    X: Any,
    y: Any,
    *,
    cv: int = 5,
    groups: Any = None,
    sample_weight: Any = None,
    baselines: bool = True,
    random_state: Any = 0,
    report: Any = None,
) -> Bunch:
    r"""Judge a model on rows it has not seen, against simpler models.

    The rows are divided into folds. For each fold, the model is fitted on all others,
    with all its choices, and predicts the rows of the fold. The same is done with

    - *best single view*: ``KernelFDA`` on the view with the smallest leave-one-out
      error on the training rows (``MultipleKernelRidge`` for a regression);
    - *equal weights*: the same on the mean of all kernels;
    - *stacking of views*: logistic regression (ridge regression) on held-out decision
      values (predictions) of one such model for each view;
    - *no view*: the class proportions (the mean) of the training rows.

    With :math:`s_i` the score of row i, 1 if it was predicted correctly, the accuracy
    is the mean of :math:`s_i`, and :math:`d_i`, the difference of two methods on row i,
    gives a paired difference whose standard error is that of a mean over rows (over
    groups, if there are any). For a regression :math:`s_i = 1 - (y_i - \hat y_i)^2 / v`
    with the variance v around the mean of the training rows, so that their mean is
    :math:`R^2`. The standard errors count the chance in which rows were drawn for
    testing; that of the training rows, which all folds share, they leave out.

    Parameters
    ----------
    model : estimator
        Classifier or regressor of this package, fitted or not.
    X : array-like, DataFrame or sparse array of shape (n, d), or kernels (n, n[, p])
        Rows.
    y : array-like of shape (n,) or (n, n_outputs)
        Targets.
    cv : int, default=5
        Number of folds; fewer if a class has fewer rows.
    groups : array-like of shape (n,), default=None
        Rows with the same value are held out together.
    sample_weight : array-like of shape (n,), default=None
        Weights of the rows, for fitting and for the scores.
    baselines : bool, default=True
        Whether to fit the baselines too.
    random_state : int, RandomState instance or None, default=0
        Source of randomness for the folds.
    report : callable, default=None
        Told what is being done, as a string.

    Returns
    -------
    result : Bunch
        ``table``: one record per method: ``method``, ``score`` (accuracy or R^2) and
        ``score_se``; for classifiers ``balanced_accuracy`` and ``log_loss`` with
        ``log_loss_se``, None without probabilities; ``lead`` and ``lead_se``, by how
        much the model's score is ahead of the method's, row by row; ``remark``, why a
        method could not be judged.

        ``held_out``: predictions and, for discriminants, projections of the model, with
        ``predicted``, ``probability``, ``coordinates`` and ``fold``.

        ``model``: the model fitted to all rows. ``score_name``; ``summary``, what the
        table says in words; ``remarks``, about classes that are too small.

    Examples
    --------
    >>> from kernelweave import MultipleKernelFDA
    >>> from kernelweave.datasets import load_breast_cancer_views
    >>> from kernelweave.evaluation import evaluate
    >>> cancer = load_breast_cancer_views()
    >>> X, y = cancer.data[::4], cancer.target[::4]
    >>> result = evaluate(MultipleKernelFDA(cancer.views, norm=1, cv=None), X, y, cv=3)
    >>> [row["method"] for row in result.table]
    ['learned weights', 'best single view', 'equal weights', 'stacking of views', \
'no view']
    """
    judge = _judge(model, y, groups, sample_weight)
    fold, remarks = assign_folds(
        judge.y, cv, judge.groups, judge.classify, random_state
    )
    say = report or (lambda text: None)
    say("fitting to all rows")
    fitted = _fitted(model, X, judge)
    pairwise = is_precomputed(fitted.views)
    held: dict[str, HeldOut | str] = {}
    methods = {MODEL: model}
    if baselines:
        views = [] if pairwise else [v[:3] for v in _view_list(fitted)]
        methods |= baselines_of(fitted, views)
    for name, method in methods.items():
        of_rows = judge.of_rows(method)
        try:
            held[name] = out_of_fold(
                method,
                X,
                judge.y,
                fold,
                whole=fitted if name == MODEL else None,
                pairwise=pairwise,
                report=lambda i, k, name=name: say(f"{name}: fold {i} of {k}"),
                **of_rows,
            )
        except ValueError as error:
            if name == MODEL:
                raise
            held[name] = " ".join(str(error).split())
    table = [judge.record(name, rows, held[MODEL]) for name, rows in held.items()]
    return Bunch(
        table=table,
        held_out=held[MODEL],
        model=fitted,
        score_name="accuracy" if judge.classify else "R2",
        summary=summarise(table, judge.classify),
        remarks=remarks,
    )


def _view_list(model: Any) -> list[Any]:
    """The views as (name, kernel, columns), also if the parameter is None."""
    if model.views is not None:
        return list(model.views)
    return []


def _fitted(model: Any, X: Any, judge: _Judge) -> Any:
    return clone(model).fit(X, judge.y, **judge.given(model))


@dataclass(frozen=True)
class _Judge:
    """Targets, and how predictions of them are scored."""

    y: np.ndarray
    classify: bool
    groups: np.ndarray | None
    weights: np.ndarray | None

    def of_rows(self, method: Any) -> dict[str, np.ndarray | None]:
        """What ``fit`` of a method takes for each row."""
        known = inspect.signature(method.fit).parameters
        own = hasattr(method, "views")
        return {
            "groups": self.groups if own and "groups" in known | _any(known) else None,
            "sample_weight": self.weights if own or "sample_weight" in known else None,
        }

    def given(self, method: Any) -> dict[str, np.ndarray]:
        return {k: v for k, v in self.of_rows(method).items() if v is not None}

    def scores(self, rows: HeldOut) -> np.ndarray:
        """The score of each row, (n,), whose mean is the accuracy or R^2."""
        if self.classify:
            return (rows.predicted == self.y).astype(float)
        truth = self.y.reshape(len(self.y), -1).astype(float)
        assert rows.fold is not None
        spread = np.empty_like(truth)
        for number in np.unique(rows.fold):
            train = rows.fold != number
            w = None if self.weights is None else self.weights[train]
            mean = np.average(truth[train], axis=0, weights=w)
            spread[~train] = (truth[~train] - mean) ** 2
        variance = np.average(spread, axis=0, weights=self.weights)
        error = (truth - rows.predicted.reshape(truth.shape)) ** 2
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.asarray(np.mean(1.0 - error / variance, axis=1))

    def log_losses(self, rows: HeldOut) -> np.ndarray | None:
        """The log loss of each row, (n,)."""
        if rows.probability is None or rows.classes is None:
            return None
        own = np.searchsorted(rows.classes, self.y)
        proba = np.clip(rows.probability, np.finfo(float).eps, None)
        proba = proba / proba.sum(axis=1, keepdims=True)
        return -np.asarray(np.log(proba[np.arange(len(own)), own]))

    def mean(self, values: np.ndarray, shown: np.ndarray) -> tuple[float, float]:
        """Weighted mean over the rows shown, and its standard error over groups."""
        weights = np.ones(len(values)) if self.weights is None else self.weights
        weights = np.where(shown, weights, 0.0)
        values = np.where(shown, values, 0.0)
        mean = float(np.average(values, weights=weights))
        units = np.arange(len(values)) if self.groups is None else self.groups
        codes = np.unique(units, return_inverse=True)[1]
        sums = np.bincount(codes, weights * (values - mean))
        used = np.bincount(codes, weights) > 0
        m = int(np.sum(used))
        inflate = m / max(m - 1, 1)
        return mean, float(np.sqrt(inflate * np.sum(sums**2)) / np.sum(weights))

    def record(self, name: str, rows: HeldOut | str, own: Any) -> dict[str, Any]:
        """One row of the table."""
        keys = ["score", "score_se"]
        if self.classify:
            keys += ["balanced_accuracy", "log_loss", "log_loss_se"]
        record: dict[str, Any] = {"method": name, **dict.fromkeys(keys)}
        record |= {"lead": None, "lead_se": None, "remark": ""}
        if isinstance(rows, str):
            return record | {"remark": rows}
        scores, shown = self.scores(rows), rows.shown
        record["score"], record["score_se"] = self.mean(scores, shown)
        if self.classify:
            shares = [
                self.mean(scores, shown & (self.y == label))[0]
                for label in np.unique(self.y[shown])
            ]
            record["balanced_accuracy"] = float(np.mean(shares))
            losses = self.log_losses(rows)
            if losses is not None:
                found = self.mean(losses, shown)
                record["log_loss"], record["log_loss_se"] = found
        if rows is not own:
            lead = self.mean(self.scores(own) - scores, shown)
            record["lead"], record["lead_se"] = lead
        return record


def _any(parameters: Any) -> dict[str, None]:
    """The name "groups", if there is a parameter for any keyword."""
    open_ended = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return {"groups": None} if open_ended else {}


def _judge(model: Any, y: Any, groups: Any, sample_weight: Any) -> _Judge:
    targets = to_numpy(y) if is_array(y) else np.asarray(y)
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    as_rows = []
    for name, values in (("groups", groups), ("sample_weight", sample_weight)):
        values = None if values is None else np.asarray(values)
        if values is not None and values.shape != (len(targets),):
            raise ValueError(
                f"{name} must have one value per row, {len(targets)}; got an array of "
                f"shape {values.shape}"
            )
        as_rows.append(values)
    return _Judge(targets, bool(is_classifier(model)), *as_rows)


def summarise(table: list[dict[str, Any]], classify: bool) -> str:
    """What the table says, in words that do not claim more than two standard errors."""
    own = table[0]
    told = (
        f"{100 * own['score']:.1f} % of the rows are predicted correctly by models that "
        f"have not seen them (standard error {100 * own['score_se']:.1f})."
        if classify
        else f"R2 is {own['score']:.2f} on rows that the models have not seen (standard "
        f"error {own['score_se']:.2f})."
    )
    unit, digits = (100.0, 1) if classify else (1.0, 2)
    ahead: list[str] = []
    behind: list[str] = []
    level: list[str] = []
    for row in table[1:]:
        if row["lead"] is None:
            continue
        lead, error = row["lead"], row["lead_se"]
        text = (
            f"{row['method']} ({unit * lead:+.{digits}f} ± {unit * error:.{digits}f})"
        )
        clear = abs(lead) > 2 * error and abs(lead) > 0
        (ahead if lead > 0 else behind).append(text) if clear else level.append(text)
    for names, words in (
        (ahead, "It is ahead of"),
        (level, "The difference is within two standard errors for"),
        (behind, "It is behind"),
    ):
        if names:
            told += f" {words} {', '.join(names)}."
    return told
