"""The shares of the views, how far to trust them, and the loss without each view."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.model_selection import PredefinedSplit

from kernelweave._text import some
from kernelweave.evaluation.evaluate import leads
from kernelweave.inspection import view_ablation, view_pvalues, weight_intervals
from kernelweave.inspection._rows import observed_views, shares_of, taken_by
from kernelweave.inspection._trials import Trials
from kernelweave.inspection.ablation import by_chance, mean_and_error
from kernelweave.models.shared.base import caution_about_shares, weights_differ
from kernelweave.report import charts
from kernelweave.report.charts import Bar
from kernelweave.report.section import MOST_VIEWS, Case, Section, or_why
from kernelweave.views.caches import without_caches

#: With at most this many views, the page also has an order in which to drop them, for
#: which the number of fits grows with the square of the number of views.
MOST_ORDERED = 6
#: A view with a p-value of at most this has more weight than a useless one would get.
TELLING = 0.05


def shares(case: Case) -> Section:
    """Shares with intervals and p-values, and any reasons not to interpret them."""
    own = shares_of(case.model)
    if len(own) < 2:
        return {
            "why": "The model has a single view, which has all the weight.",
            "cautions": [],
        }
    case.how["report"]("intervals of the shares")
    intervals = _intervals(case)
    case.how["report"]("p-values of the views")
    pvalues = _pvalues(case)
    bounds, p = (part.get("of", {}) for part in (intervals, pvalues))
    rows: list[dict[str, Any]] = [
        {"low": None, "high": None, "selected": None, "p": p.get(view)}
        | bounds.get(view, {})
        | {"view": view, "share": share}
        for view, share in own.items()
    ]
    bounded = not intervals["why"]
    bars = [
        Bar(row["view"], row["share"], (row["low"], row["high"]) if bounded else ())
        for row in rows[:MOST_VIEWS]
    ]
    parts = {"intervals": intervals, "p-values": pvalues}
    reasons = [f"No {k}: {part['why']}." for k, part in parts.items() if part["why"]]
    if intervals["why"].replace("weight_intervals", "view_pvalues") == pvalues["why"]:
        reasons = reasons[:1]
    return {
        "why": "",
        "cautions": _cautions(case, rows),
        "rows": rows,
        "picture": charts.bars(
            bars,
            "Share of each view in the combined kernel",
            "share of the view" + (", 95 % interval" if bounded else ""),
            percent=True,
        ),
        "hidden": max(len(rows) - MOST_VIEWS, 0),
        "reasons": [reason.replace("..", ".") for reason in reasons],
        "bounded": bounded,
        "tested": not pvalues["why"],
        "grouped": case.how["groups"] is not None,
        "smallest": 1.0 / (case.n_decoys + 1),
    }


@or_why
def _intervals(case: Case) -> Section:
    """The record of each view from :func:`weight_intervals`."""
    rows = weight_intervals(*case.data, n_resamples=case.n_resamples, **case.drawn)
    return {"of": {row["view"]: row for row in rows}}


@or_why
def _pvalues(case: Case) -> Section:
    """The p-value of each view."""
    return {"of": view_pvalues(*case.data, n_decoys=case.n_decoys, **case.drawn)}


def _cautions(case: Case, rows: list[dict[str, Any]]) -> list[str]:
    """Why the shares should not be interpreted, or only with care."""
    model, result, n_decoys = case.model, case.result, case.n_decoys
    if not weights_differ(model):
        return [
            "All kernels have the same weight. The shares count the kernels of each "
            "view and say nothing about the data."
        ]
    found = []
    few = caution_about_shares(model)
    if few is not None:
        found.append(f"{few[0].upper()}{few[1:]}.")
    if not _predicts(result):
        found.append(
            "On rows that it had not seen, the model is not clearly better than "
            "predictions without any view. Do not interpret the weights."
        )
    tested = [row for row in rows if row["p"] is not None]
    clear = [row for row in tested if row["p"] <= TELLING]
    if tested and n_decoys < 1 / TELLING - 1:
        found.append(
            f"With n_decoys={n_decoys}, no p-value can be as small as {TELLING:g}; use "
            "n_decoys=19 or more."
        )
    elif tested and not clear:
        found.append(
            "No view has clearly more weight than a shuffled copy of itself would get. "
            "Do not interpret the weights."
        )
    elif len(tested) >= 1 / TELLING and len(clear) <= 2 * TELLING * len(tested):
        found.append(
            f"Only {len(clear)} of {len(tested)} views got more weight than a shuffled "
            f"copy would (p ≤ {TELLING:g}); about {TELLING * len(tested):.0f} would by "
            "chance. Do not interpret the weights."
        )
    return found


def _predicts(result: Any) -> bool:
    """Whether the model is clearly better than no view, in score or in log loss."""
    table = {row["method"]: row for row in result.table}
    own, none = result.table[0], table.get("no view")
    if none is None or none["lead"] is None:
        return True
    if none["lead"] > 0 and leads(none):
        return True
    if own.get("log_loss") is None or none.get("log_loss") is None:
        return False
    return bool(own["log_loss"] + 2 * own["log_loss_se"] < none["log_loss"])


@or_why
def without_each(case: Case) -> Section:
    """The held-out loss without each view, on the folds of the score."""
    model, X, y, fold = case.model, case.X, case.y, case.held.fold
    groups = case.how["groups"]
    template = without_caches(model)
    template.fit(X, y, **taken_by(template, {"groups": groups}))
    folds = PredefinedSplit(fold - 1)  # rows in no fold are never left out
    recommendation, recommended = "", None
    views = list(shares_of(model))
    if len(views) <= MOST_ORDERED:
        found = view_ablation(template, X, y, groups=groups, cv=folds)
        rows, loss = found.views, found.loss_name
        recommendation = found.recommendation.replace("+-", "±")
        recommended = found.recommended
    else:
        rows, loss = _rises(template, X, y, groups, folds, views[:MOST_VIEWS])
    rows = sorted(rows, key=lambda row: -row["loss_rise"])
    picture = charts.bars(
        [
            Bar.around(row["view"], row["loss_rise"], row["loss_rise_se"])
            for row in rows
        ],
        f"Rise in the held-out {loss} without each view",
        f"rise in the held-out {loss}, ± one standard error",
    )
    notes = [
        "This asks whether a view can be left out when the others are kept. For each "
        "view, the model was fitted again without it and judged on held-out rows, fold "
        "by fold. To the right of zero, predictions get worse "
        "without the view; with this number of folds, a rise of less than "
        f"{by_chance(int(np.max(fold))):.1f} standard errors may be chance."
    ]
    if groups is not None:
        notes.append("Groups are held out together.")
    if len(views) > MOST_VIEWS:
        notes.append(f"Only the {MOST_VIEWS} views with the largest shares are shown.")
    if case.how["sample_weight"] is not None:
        notes.append("The refits ignore sample_weight.")
    if observed_views(model, X) is not None:
        notes.append(
            "Rows that lack all remaining views are predicted without any view."
        )
    return {
        "recommendation": recommendation,
        "recommended": recommended,
        "picture": picture,
        "notes": notes,
    }


def two_questions(own: Section, without: Section) -> str:
    """Why p-values and ablation may point different ways, if they do on this page.

    ``own`` and ``without`` are what :func:`shares` and :func:`without_each` found.
    """
    recommended = without.get("recommended")
    tested = [row for row in own.get("rows", []) if row["p"] is not None]
    if recommended is None or not tested:
        return ""

    def named(rows: list[dict[str, Any]]) -> str:
        return some(f"{row['view']!r} (p = {row['p']:.3f})" for row in rows)

    related = [
        row for row in tested if row["p"] <= TELLING and row["view"] not in recommended
    ]
    unclear = [
        row for row in tested if row["p"] > TELLING and row["view"] in recommended
    ]
    reasons = []
    if related and recommended:
        reasons.append(
            f"{named(related)} may be left out, since the views that are kept predict "
            "as well without"
        )
    elif related:
        reasons.append(
            f"{named(related)} may be related to the target, but not closely enough to "
            "predict new rows better than no view does"
        )
    if unclear:
        reasons.append(
            f"{named(unclear)} may be worth keeping, since a view can improve "
            "predictions with no more weight than a shuffled copy would get by chance"
        )
    if not reasons:
        return ""
    return (
        "P-values and this section point different ways because they answer different "
        "questions, whether a view tells anything of the target and whether the others "
        f"can do without it: {'; '.join(reasons)}."
    )


def _rises(
    model: Any, X: Any, y: Any, groups: Any, folds: Any, views: list[str]
) -> tuple[list[dict[str, Any]], str]:
    """The rise in the loss without each of many views, as in ``view_ablation``."""
    trials = Trials(model, X, y, folds, None, None, None, groups)
    everything = frozenset(trials.names)
    own = [view for view in views if view in everything]
    trials.run([everything, *(everything - {view} for view in own)])
    rows = []
    for view in own:
        rest, whole = trials.result(everything - {view}), trials.result(everything)
        rise = rest.loss - whole.loss
        rows.append({"view": view, **mean_and_error("loss_rise", rise)})
    return rows, trials.loss_name
