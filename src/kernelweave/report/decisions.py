"""Which columns affect the decisions, and what each view says about single rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import numpy as np
from sklearn.inspection import permutation_importance
from sklearn.utils import check_random_state

from kernelweave._array import to_numpy
from kernelweave._text import counted
from kernelweave.evaluation.held_out import HeldOut
from kernelweave.inspection import contributions, feature_importance
from kernelweave.inspection._rows import (
    log_losses,
    loss_name,
    observed_views,
    probabilities,
    row_labels,
    shares_of,
)
from kernelweave.inspection.feature_importance import columns_of_view
from kernelweave.report import charts
from kernelweave.report.charts import Bar
from kernelweave.report.section import (
    MOST_COLUMNS,
    MOST_VIEWS,
    Case,
    Section,
    or_why,
)

#: The most columns that are shuffled one by one, and how often each is.
MOST_SHUFFLED, SHUFFLES = 200, 5
#: Fewer held-out rows than this say nothing about a column.
FEWEST_ROWS = 10


def _shuffled(case: Case) -> tuple[np.ndarray, np.ndarray, str]:
    """Rise in the held-out loss if a column is shuffled, its spread, and the loss."""
    n_columns = case.model.n_features_in_
    if n_columns > MOST_SHUFFLED:
        raise ValueError(
            f"with {n_columns} columns, shuffling each would take too long for this "
            "page; use sklearn.inspection.permutation_importance"
        )
    test = np.flatnonzero(case.held.fold == 1)
    has = observed_views(case.model, case.X)
    if has is not None:  # shuffling gaps would leave rows that have half a view
        test = test[has[test].all(axis=1)]
    if len(test) < FEWEST_ROWS:
        raise ValueError(
            f"the first fold has {counted(len(test), 'held-out row')} with every view, "
            "too few to shuffle columns among them"
        )
    found = permutation_importance(
        case.held.part,
        case.rows(test),
        case.y[test],
        scoring=partial(_minus_loss, unit=case.unit),
        n_repeats=SHUFFLES,
        random_state=check_random_state(case.how["random_state"]),
    )
    loss = loss_name(case.model, len(case.unit))
    return found.importances_mean, found.importances_std, loss


def _minus_loss(model: Any, X: Any, y: np.ndarray, unit: np.ndarray) -> float:
    """Minus the mean log loss, error rate or squared error."""
    if hasattr(model, "predict_proba"):
        classes = np.union1d(model.classes_, y)
        proba = probabilities(model, X, classes)
        return -float(np.mean(log_losses(proba, np.searchsorted(classes, y))))
    predicted = to_numpy(model.predict(X))
    if hasattr(model, "classes_"):
        return -float(np.mean(predicted != y))
    return -float(np.mean(((predicted - y) / unit) ** 2))


@or_why
def columns(case: Case) -> Section:
    """The most important columns of each view."""
    views = list(shares_of(case.model))
    shuffled = cache(partial(_shuffled, case))
    parts = []
    for view in views[:MOST_VIEWS]:
        made = _by_gradient(case, view)
        if made["why"]:
            other = _by_shuffling(shuffled, case.model, view)
            made = other if not other["why"] else made
        parts.append({"view": view, **made})
    reasons = {part["why"] for part in parts}
    if len(reasons) == 1 and parts[0]["why"]:
        return {"why": parts[0]["why"]}
    return {"parts": parts, "hidden": max(len(views) - MOST_VIEWS, 0)}


@or_why
def _by_gradient(case: Case, view: str) -> Section:
    best: dict[str, float] = {}
    several = len(case.unit) > 1
    # a column may matter to several classes or outputs
    for row in feature_importance(case.model, view, X=case.X):
        unit = case.unit[row["output"] if several else 0]
        name, value = str(row["feature"]), float(row["importance"] / unit)
        best[name] = max(value, best.get(name, 0.0))
    text = (
        "Change of the decision value per standard deviation of the column: the root "
        "mean square over the training rows."
    )
    if several:
        text += " The largest for any output, in standard deviations of that output."
    bars = [Bar(name, value) for name, value in best.items()]
    return _ranked(bars, view, text, "change of the decision value")


@or_why
def _by_shuffling(shuffled: Callable[[], Any], model: Any, view: str) -> Section:
    mean, spread, loss = shuffled()
    names = columns_of_view(model, view)
    bars = [
        Bar.around(str(name), float(mean[j]), float(spread[j]))
        for j, name in names.items()
    ]
    text = f"Rise in the {loss} on held-out rows if the column is shuffled, ± the "
    text += f"standard deviation over {SHUFFLES} shuffles."
    return _ranked(bars, view, text, f"rise in the {loss}")


def _ranked(bars: list[Bar], view: str, text: str, axis: str) -> Section:
    ranked = sorted(bars, key=lambda bar: -bar.value)
    if len(ranked) > MOST_COLUMNS:
        text += f" The {MOST_COLUMNS} largest of {len(ranked)} columns are shown."
    title = f"Most important columns of the view {view}"
    return {"text": text, "picture": charts.bars(ranked[:MOST_COLUMNS], title, axis)}


@or_why
def rows(case: Case) -> Section:
    """Contributions of the views to the decisions for some rows of the first fold."""
    held, test = case.held, np.flatnonzero(case.held.fold == 1)
    chosen = telling(held, test, case.unit)
    found = contributions(case.held.part, case.rows(np.array(list(chosen))))
    labels = row_labels(case.X)
    records = []
    for k, (row, why) in enumerate(chosen.items()):
        parts, constant, unit = found.parts[k], found.intercept[k], found.unit
        if found.outputs is not None:
            c, which = 0, f", target {found.outputs[0]}"  # the first of several
            if held.classes is not None:
                guess = held.predicted[row]
                c, which = int(np.flatnonzero(found.outputs == guess)[0]), f" {guess}"
            parts, constant, unit = parts[:, c], constant[c], unit + which
        bars = [Bar(view, float(v)) for view, v in zip(found.views, parts, strict=True)]
        bars.sort(key=lambda bar: -abs(bar.value))
        total = float(np.sum(parts) + constant)
        records.append(
            {
                "name": str(labels[row]),
                "reason": why,
                "truth": _said(case.y[row]),
                "predicted": _said(held.predicted[row]),
                "sum": f"The contributions of all views and the constant "
                f"{charts.number(float(constant))} add up to "
                f"{charts.number(total)}.",
                "picture": charts.bars(
                    bars[:MOST_VIEWS],
                    f"Contribution of each view to the decision for row {labels[row]}",
                    unit,
                ),
            }
        )
    return {"records": records}


def telling(held: HeldOut, test: np.ndarray, unit: np.ndarray) -> dict[int, str]:
    """At most three rows among ``test`` that are worth a look, and why.

    The distances of several outputs from the truth are added in the given units.
    """
    assert held.targets is not None
    truth, guess = held.targets[test], held.predicted[test]
    if held.classes is None:
        miss = (np.abs(truth - guess).reshape(len(test), -1) / unit).sum(axis=1)
        found = {test[np.argmin(miss)]: "the closest to the truth"}
        found.setdefault(test[np.argmax(miss)], "the furthest from the truth")
        return found
    right, found = guess == truth, {}
    which, margin = "the first one", np.zeros(len(test))
    if held.probability is not None:
        proba = np.sort(held.probability[test], axis=1)
        which, margin = "the most certain one", proba[:, -1] - proba[:, -2]
    if right.any():
        found[test[np.argmax(np.where(right, margin, -1))]] = f"{which} that is correct"
    if not right.all():
        found[test[np.argmax(np.where(right, -1, margin))]] = f"{which} that is wrong"
    if held.probability is not None:
        found.setdefault(test[np.argmin(margin)], "the least certain one")
    return found


def _said(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return ", ".join(_said(v) for v in value)
    return f"{value:.4g}" if isinstance(value, float | np.floating) else str(value)
