"""Cross-validate a model and its baselines on the same rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.utils import Bunch

from kernelweave._array import to_numpy
from kernelweave._text import listed, some
from kernelweave.evaluation.baselines import NO_VIEW, baselines_of
from kernelweave.evaluation.held_out import HeldOut, assign_folds, out_of_fold
from kernelweave.exceptions import require_count
from kernelweave.fits.gaussians import ClassHits
from kernelweave.fits.targets import StandardOutputs
from kernelweave.inspection._rows import (
    as_stack,
    by_class_of,
    design_for,
    log_losses,
    observed_views,
    rows_by_class,
    standard_outputs,
    taken_by,
    targets_of,
    views_of,
)
from kernelweave.learn.estimates import accuracy, doubt, ratio_of_means
from kernelweave.models.shared.base import KernelModel
from kernelweave.models.shared.inputs import (
    check_sample_weight,
    check_targets,
    has_marker,
)
from kernelweave.views.caches import without_caches
from kernelweave.views.columns import is_precomputed

#: The name of the model itself in the table.
THIS_MODEL = "this model"


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
    - *stacking of views*: logistic regression on held-out log probabilities (ridge
      regression on held-out predictions) of one such model for each view;
    - *no view*: the class proportions (the mean) of the training rows. The class that
      it predicts is the most frequent one of all rows, since a class may lead among the
      training rows only because the fold holds more of another.

    **Scores.** With :math:`u_i = 1` if row i was predicted correctly, 0 otherwise, and
    :math:`v_i = 1`, the accuracy is :math:`\sum_i u_i / \sum_i v_i`. With
    :math:`v_i = (y_i - \bar y)^2`, where :math:`\bar y` is the mean of the training
    rows, and :math:`u_i = v_i - (y_i - \hat y_i)^2`, the same ratio is :math:`R^2`.
    With several outputs, it is the mean over those that vary. With ``sample_weight``,
    both sums are weighted. The log loss is that of probabilities given one of the
    classes that are judged, as in ``view_ablation``: a class with a single row (or
    group) has no prediction, and knowing this would be an advantage. There is none if
    only one class is judged.

    **Leads.** The lead over another method is the same ratio with the difference
    between the two :math:`u_i`, row by row. A model with ``class_weight`` or ``priors``
    gives up accuracy on purpose, so its leads count classes as it does, like
    ``view_ablation``, and so does the choice of the most frequent class for *no view*:
    with ``class_weight="balanced"`` they are leads in balanced accuracy. On noise with
    5 rows of 24 in the rare class, leads in plain accuracy would call the balanced
    model worse than *no view* in 60 % of 200 draws; as it is, it is called worse in
    none of them, and better in 2.5 %.

    **Standard errors** are those of a ratio R of means,

    .. math::

        \sqrt{\frac{1}{m - 1} \sum_g \frac{d_g^2}{s_g}}, \quad
        d_g = \frac{\sum_{i \in g} w_i (u_i - R v_i)}{\sum_i w_i v_i}, \quad
        m = \frac{1}{\sum_g s_g^2},

    over the groups g (over rows, if there are no groups), where :math:`s_g` is the
    share of a group in the weight of all rows, and m the effective number of groups: as
    many of equal weight would say as much. If all rows are right, or all wrong, that
    would be zero; it is then computed as if there were two more rows, one of them
    right. The same is done for the share of a class in the balanced accuracy, and for
    the share of rows on which two methods differ if they never do (in a class, if the
    model weights classes): a lead of zero is not certain either.

    Standard errors include the variation due to which rows are tested. They leave out
    that due to the training rows, which the folds share, and no unbiased estimate
    includes it (Bengio and Grandvalet 2004). So intervals of two standard errors cover
    less than they seem to: with 40 rows and three views, the accuracy of the model on
    new rows was within two in 85 % of 60 draws on pure noise, in 95 % with one
    informative view and in 77 % with 10 groups of 4 rows; R^2 on pure noise in 82 %.
    With ``class_weight="balanced"``, which class a model of noise predicts for most
    rows is arbitrary, so its plain accuracy depends on the draw of the training rows:
    with 10 rare rows of 40, it was within two in only 63 % of 200 draws, the balanced
    accuracy in 92 %. A lead over *no view* exceeded two in 4 % of 150 draws for ridge
    regressions of noise, and one over *equal weights* in 5 % of 150 for discriminants.
    With weights from 0.1 to 10, a discriminant of noise was ahead of *no view* in 0 to
    1 % of 200 draws and behind it in 2.5 to 5 %.

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
        Whether to fit the baselines as well.
    random_state : int, RandomState instance or None, default=0
        Source of randomness for the folds.
    report : callable, default=None
        Called with a string that says what is being done.

    Returns
    -------
    result : Bunch
        ``table``: one record per method: ``method``, ``score`` (accuracy or R^2) and
        ``score_se``; for classifiers ``balanced_accuracy`` and ``log_loss``, each with
        its standard error, None without probabilities; ``lead`` and ``lead_se``, how
        far the model is ahead of the method; ``remark``, why a method could not be
        judged.

        ``held_out``: predictions and, for discriminants, projections of the model, with
        ``predicted``, ``probability``, ``coordinates`` and ``fold``, which is 0 for the
        only row of a class: it has no prediction.

        ``model``: the model fitted to all rows. ``score_name``; ``lead_name``, what
        leads are measured in; ``summary``, what the table says in words; ``remarks``,
        about classes that are too small and outputs that are constant.

    References
    ----------
    Bengio, Grandvalet. No unbiased estimator of the variance of k-fold
    cross-validation. Journal of Machine Learning Research 5, 2004.

    Examples
    --------
    >>> from kernelweave import MultipleKernelFDA
    >>> from kernelweave.datasets import fetch_views
    >>> from kernelweave.evaluation import evaluate
    >>> cancer = fetch_views("breast_cancer")
    >>> X, y = cancer.data[::8], cancer.target[::8]
    >>> result = evaluate(MultipleKernelFDA(cancer.views, norm=1, cv=None), X, y, cv=2)
    >>> [row["method"] for row in result.table[:3]]
    ['this model', 'best single view', 'equal weights']
    """
    _refuse(model, y)
    require_count(2, cv=cv)
    check_targets(model, X, y)
    classify, targets = bool(is_classifier(model)), targets_of(y, "evaluate")
    n, weights = len(targets), None
    if sample_weight is not None:
        weights = check_sample_weight(sample_weight, n, "evaluate")
    design = design_for(model, groups, n, "evaluate", "holds out groups", weights)
    groups = None if groups is None else to_numpy(groups)
    of_rows = {"groups": groups, "sample_weight": weights}
    fold, remarks = assign_folds(targets, cv, design.groups, classify, random_state)
    outputs = None
    if not classify:
        outputs = standard_outputs(targets, "evaluate", "R^2 is undefined", weights)
        remarks += _constant(outputs)
    say = report or (lambda text: None)
    say("fitting to all rows")
    fitted = without_caches(model)
    fitted.fit(X, targets, **taken_by(fitted, of_rows))
    axes = None
    if classify and hasattr(fitted, "transform"):
        axes = to_numpy(fitted.transform(X))
    pairwise, names = is_precomputed(fitted.views), views_of(fitted)[0]
    of_rows["has"] = observed_views(fitted, X)
    if pairwise:
        X = to_numpy(as_stack(X, fitted))
        X = X[:, :, None] if X.ndim == 2 else X

    def predicted(name: str, method: Any, axes: np.ndarray | None = None) -> HeldOut:
        return out_of_fold(
            method,
            X,
            targets,
            fold,
            units=design.groups,
            axes=axes,
            pairwise=pairwise,
            report=lambda i, k: say(f"{name}: fold {i} of {k}"),
            **taken_by(method, of_rows),
        )

    own = predicted(THIS_MODEL, model, axes)
    others = baselines_of(fitted, names) if baselines else {}
    held = {THIS_MODEL: own, **_held_out(others, predicted)}
    lead_name = by_class_of(model, "accuracy") if classify else "R2"
    in_leads = each = np.where(fold > 0, design.each, 0.0)
    if lead_name not in ("accuracy", "R2"):
        # A model that weights classes gives up accuracy on purpose.
        in_leads = np.where(fold > 0, rows_by_class(model, targets, weights), 0.0)
    judge = _Judge(targets, outputs, fold, design.units, each, in_leads)
    table = [judge.record(name, rows, own) for name, rows in held.items()]
    summary = summarise(table, classify, lead_name)
    if classify and (missed := missed_classes(own, each > 0)):
        summary = f"{summary} {missed}"
    return Bunch(
        table=table,
        held_out=own,
        model=fitted,
        score_name="accuracy" if classify else "R2",
        lead_name=lead_name,
        summary=summary,
        remarks=remarks,
    )


def missed_classes(held: HeldOut, judged: np.ndarray) -> str | None:
    """A sentence that names the classes of which no judged row (n,) was recognised."""
    classes = held.classes
    assert classes is not None and held.targets is not None
    codes = np.searchsorted(classes, held.targets[judged])
    right = held.predicted[judged] == held.targets[judged]
    remark = ClassHits.of(right, codes, len(classes)).remark(classes)
    return None if remark is None else f"{remark[0].upper()}{remark[1:]}."


def _constant(outputs: StandardOutputs) -> list[str]:
    """A remark on the outputs that do not vary, if there are any."""
    if outputs.varies.all():
        return []
    constant = some(str(j) for j in np.flatnonzero(~outputs.varies))
    return [f"Constant outputs are excluded from the score: {constant}."]


def _held_out(
    methods: dict[str, Any], predicted: Callable[[str, Any], HeldOut]
) -> dict[str, HeldOut | str]:
    """The predictions of each method, or the reason why there are none."""
    found: dict[str, HeldOut | str] = {}
    for name, method in methods.items():
        try:
            found[name] = predicted(name, method)
        except (ValueError, TypeError) as error:
            found[name] = " ".join(str(error).split())
    return found


def _refuse(model: Any, y: Any) -> None:
    """Refuse what is not a classifier or regressor of this package."""
    kind = type(model).__name__
    if not isinstance(model, KernelModel):
        advice = f"derive {kind} from {KernelModel.__module__}.KernelModel"
        if hasattr(model, "steps"):
            advice = (
                "instead of a Pipeline, pass its last step, with the earlier ones in "
                "the kernels of its views (kernelweave.kernels.Pipe)"
            )
        elif not hasattr(model, "kernel_weights_"):
            advice = "for example MultipleKernelFDA or MultipleKernelRidge"
        raise TypeError(
            f"evaluate needs an estimator of this package, got {kind}; {advice}"
        )
    if not is_classifier(model) and not is_regressor(model):
        raise TypeError(
            f"evaluate needs a model that predicts; {kind} only transforms. Use a "
            "classifier or regressor such as MultipleKernelFDA"
        )
    if model.unlabelled is not None and has_marker(np.ravel(y), model.unlabelled).any():
        raise ValueError(
            f"y marks rows without a label with {model.unlabelled!r}, and predictions "
            "for them cannot be judged; pass only rows with a label"
        )


@dataclass(frozen=True)
class _Judge:
    """Targets, and how predictions of them are scored.

    Attributes
    ----------
    y : ndarray of shape (n,) or (n, n_outputs)
        Targets.
    outputs : StandardOutputs or None
        The targets of a regression; None for classes.
    fold : ndarray of shape (n,)
        The fold of each row; 0 for rows without a prediction.
    units : ndarray of shape (n,)
        Which rows are judged together.
    weights, in_leads : ndarray of shape (n,)
        Weights of the rows in scores and in leads, which are the same array unless the
        model weights classes; 0 for rows without a prediction.
    """

    y: np.ndarray
    outputs: StandardOutputs | None
    fold: np.ndarray
    units: np.ndarray
    weights: np.ndarray
    in_leads: np.ndarray

    @property
    def classify(self) -> bool:
        """Whether the targets are classes."""
        return self.outputs is None

    @cached_property
    def sizes(self) -> np.ndarray:
        """The denominators v of the score, (n, q), of the q outputs that vary."""
        if self.outputs is None:
            return np.ones((len(self.y), 1))
        truth = self.outputs.target[:, self.outputs.varies]
        spread = np.empty_like(truth)
        for number in np.unique(self.fold):
            test = self.fold == number
            mean = np.average(truth[~test], axis=0, weights=self.weights[~test])
            spread[test] = (truth[test] - mean) ** 2
        return spread

    @cached_property
    def usual(self) -> Any:
        """The class with the largest weight in leads; of several, the most frequent.

        All rows count, not the training rows of a fold: these lack the rows of the
        fold, so a class that is rarer there could lead among them.
        """
        classes, codes = np.unique(self.y, return_inverse=True)
        each = self.in_leads, self.weights
        sums, frequent = (np.bincount(codes, own) for own in each)
        largest = sums >= np.max(sums) * (1 - 1e-9)  # up to rounding
        return classes[np.argmax(np.where(largest, frequent, -1.0))]

    def gains(self, rows: HeldOut) -> np.ndarray:
        """The numerators u of the score, (n, q)."""
        if self.outputs is None:
            return (rows.predicted == self.y).astype(float)[:, None]
        error = (self.y - rows.predicted).reshape(len(self.y), -1) / self.outputs.unit
        return self.sizes - error[:, self.outputs.varies] ** 2

    def record(self, name: str, rows: HeldOut | str, own: Any) -> dict[str, Any]:
        """One row of the table."""
        failed = isinstance(rows, str)
        found = {} if failed else self._figures(name, rows, own)
        record: dict[str, Any] = {"method": name}
        more = ["balanced_accuracy", "log_loss"] if self.classify else []
        for key in ("score", *more, "lead"):
            record[key], record[f"{key}_se"] = found.get(key, (None, None))
        return record | {"remark": rows if failed else ""}

    def _figures(self, name: str, rows: Any, own: Any) -> dict[str, Any]:
        """The figures of a method, each with its standard error."""
        rows_of = self.weights, self.units
        if name == NO_VIEW and self.classify:
            rows = replace(rows, predicted=np.full_like(self.y, self.usual))
        gains = self.gains(rows)
        if name == NO_VIEW and not self.classify:
            gains = np.zeros_like(gains)  # its errors are the sizes, up to rounding
        if self.classify:
            found = {"score": accuracy(gains[:, 0], *rows_of)}
            found["balanced_accuracy"] = accuracy(gains[:, 0], *rows_of, self.y)
        else:
            found = {"score": ratio_of_means(gains, self.sizes, *rows_of)}
        known, codes = np.unique(self.y, return_inverse=True)
        judged = np.isin(known, self.y[self.fold > 0])
        if rows.probability is not None and np.sum(judged) > 1:
            losses = log_losses(np.where(judged, rows.probability, 0.0), codes)
            found["log_loss"] = ratio_of_means(losses[:, None], self.sizes, *rows_of)
        if name != THIS_MODEL:
            found["lead"] = self._lead(self.gains(own) - gains)
        return found

    def _lead(self, ahead: np.ndarray) -> tuple[float, float]:
        """The lead and its standard error, from the differences of gains (n, q)."""
        each, units = self.in_leads, self.units
        lead, error = ratio_of_means(ahead, self.sizes, each, units)
        if not self.classify:
            return lead, error
        parts = np.zeros(len(self.y)) if each is self.weights else self.y
        unsure = 0.0
        for part in np.unique(parts[each > 0]):
            own = np.where(parts == part, each, 0.0)
            if not np.any(ahead[own > 0]):
                share = np.sum(own) / np.sum(each)
                unsure += share**2 * doubt(own, units)
        return lead, float(np.sqrt(error**2 + unsure))


#: How a sentence refers to each method.
IN_WORDS = {
    "best single view": "the best single view",
    "equal weights": "equal weights",
    "stacking of views": "a stack of the views",
    "no view": "predictions without any view",
}


def summarise(table: list[dict[str, Any]], classify: bool, lead_name: str) -> str:
    """The table in words, which claim no difference within two standard errors."""
    unit, form = (100.0, ".1f") if classify else (1.0, ".2f")
    score, error = (unit * table[0][key] for key in ("score", "score_se"))
    reached = f"reached an R² of {score:.2f}"
    if classify:
        reached = f"was right in {score:.1f} % of cases"
    summary = (
        f"On rows that it had not seen, the model {reached} (standard error "
        f"{error:{form}})."
    )
    ahead, behind = "It is ahead of", "It is behind"
    level = "There is no clear difference from"
    found: dict[str, list[str]] = {ahead: [], behind: [], level: []}
    for row in table[1:]:
        if row["lead"] is None:
            continue
        lead, error = unit * row["lead"], unit * row["lead_se"]
        words, size = level, f"{lead:+{form}}"
        if leads(row):
            words, size = ahead if lead > 0 else behind, f"by {abs(lead):{form}}"
        found[words].append(f"{IN_WORDS[row['method']]} ({size} ± {error:{form}})")
    for words, names in found.items():
        if names:
            summary += f" {words} {listed(names)}."
    if len(table) > 1 and classify:
        of = "" if lead_name == "accuracy" else f" of {lead_name}"
        summary += (
            f" Differences are in percentage points{of}, with their standard errors."
        )
    return summary


def leads(row: dict[str, Any]) -> bool:
    """Whether the lead in a row of the table exceeds two standard errors."""
    return row["lead"] is not None and abs(row["lead"]) > 2 * row["lead_se"]
