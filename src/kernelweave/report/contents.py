"""What goes on the page: every number from rows that the model has not seen, or marked."""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import numpy as np
import scipy
import sklearn
from sklearn.base import clone, is_classifier
from sklearn.calibration import calibration_curve
from sklearn.metrics import confusion_matrix, roc_auc_score, roc_curve

from kernelweave._array import to_numpy
from kernelweave.evaluation.evaluate import evaluate
from kernelweave.evaluation.held_out import HeldOut, take_rows
from kernelweave.inspection import (
    contributions,
    feature_importance,
    view_ablation,
    view_pvalues,
    weight_intervals,
)
from kernelweave.report import charts
from kernelweave.report.charts import Bar
from kernelweave.views.columns import is_precomputed

#: Views, columns, classes and rows beyond these numbers are left out of the pictures.
MOST_VIEWS, MOST_COLUMNS, MOST_CLASSES, MOST_ROWS = 30, 10, 8, 3
#: Sets of views that an ablation may fit on every fold.
MOST_ABLATED = 8

Section = dict[str, Any]


def collect(
    model: Any,
    X: Any,
    y: Any,
    *,
    groups: Any,
    sample_weight: Any,
    cv: int,
    n_resamples: int,
    n_decoys: int,
    random_state: Any,
    report: Callable[[str], object] | None,
) -> dict[str, Any]:
    """Everything that the template needs; a part that fails says why."""
    say = report or (lambda text: None)
    started = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        say("cross-validation")
        result = evaluate(
            model,
            X,
            y,
            cv=cv,
            groups=groups,
            sample_weight=sample_weight,
            random_state=random_state,
            report=say,
        )
        say("intervals of the shares")
        shares = _shares(model, X, y, n_resamples, n_decoys, random_state, say)
        say("what is lost without each view")
        ablation = _ablation(model, X, y, cv, random_state)
        say("columns and contributions")
        contents = {
            "classify": bool(is_classifier(model)),
            "evaluation": _evaluation(result),
            "shares": shares,
            "ablation": ablation,
            "pictures": _pictures(result.held_out),
            "columns": _columns(model, X),
            "rows": _rows(model, X, y, result.held_out, groups, sample_weight),
            "gaps": _gaps(model, X),
            "treatment": getattr(model, "column_summary_", None),
            "certificate": _certificate(model),
        }
    contents["learned"] = _learned(model, X, y, contents)
    found = dict.fromkeys(" ".join(str(w.message).split()) for w in caught)
    contents["card"] = _card(model, X, y, cv, random_state, started)
    contents["warnings"] = list(found)
    return contents


def _or_why(make: Callable[[], Section]) -> Section:
    """A section, or the reason for which there is none."""
    try:
        return {"why": "", **make()}
    except (ValueError, TypeError, MemoryError, ArithmeticError) as error:
        return {"why": " ".join(str(error).split())}


def shares_of(model: Any) -> dict[str, float]:
    """The share of each view, the largest first; empty if the model has none."""
    shares = getattr(model, "view_shares_", None) or {}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _learned(model: Any, X: Any, y: Any, contents: dict[str, Any]) -> list[str]:
    """The first paragraph, in plain words."""
    n = len(np.asarray(y))
    kind = type(model).__name__
    if contents["classify"]:
        classes, counts = np.unique(np.asarray(y), return_counts=True)
        listed = [f"{c} ({k})" for c, k in zip(classes, counts, strict=True)]
        aim = f"to tell {len(classes)} classes apart: {_some(listed)}"
    else:
        aim = "to predict a number"
    shares = shares_of(model)
    told = [f"{kind} learned from {n} rows in {max(len(shares), 1)} views {aim}."]
    told.append(contents["evaluation"]["summary"])
    if len(shares) > 1:
        top = [f"{v} ({100 * s:.0f} %)" for v, s in shares.items() if s >= 0.01]
        told.append(
            f"The weights went to {_some(top, 5)}"
            + (
                f"; {len(shares) - len(top)} of {len(shares)} views have less than 1 %."
                if len(top) < len(shares)
                else "."
            )
        )
    if contents["shares"].get("caution"):
        told.append(contents["shares"]["caution"])
    return told


def _evaluation(result: Any) -> Section:
    rows = [row for row in result.table if row["score"] is not None]
    name = "accuracy" if result.score_name == "accuracy" else "R²"
    picture = charts.bars(
        [
            Bar(
                row["method"],
                row["score"],
                row["score"] - row["score_se"],
                row["score"] + row["score_se"],
            )
            for row in rows
        ],
        f"{name} of the model and of simpler ones on held-out rows",
        f"{name} on held-out rows, ± one standard error",
        percent=result.score_name == "accuracy",
    )
    return {
        "table": result.table,
        "summary": result.summary,
        "picture": picture,
        "score_name": name,
        "remarks": result.remarks,
    }


def _shares(
    model: Any,
    X: Any,
    y: Any,
    n_resamples: int,
    n_decoys: int,
    random_state: Any,
    say: Callable[[str], object],
) -> Section:
    shares = shares_of(model)
    if len(shares) < 2:
        return {"why": "The model has a single view, which has all of the weight."}
    caution = ""

    def make() -> Section:
        nonlocal caution
        intervals = {
            row["view"]: row
            for row in weight_intervals(
                model, X, y, n_resamples=n_resamples, random_state=random_state
            )
        }
        say("p-values of the views")
        pvalues = view_pvalues(
            model, X, y, n_decoys=n_decoys, random_state=random_state
        )
        rows = [{**intervals[v], "p": pvalues[v]} for v in shares if v in intervals]
        clear = [row["view"] for row in rows if row["p"] <= 0.05]
        if not clear:
            caution = (
                "No view has more weight than a shuffled copy of it would get. Do not "
                "interpret the weights."
            )
        elif len(rows) > 20 and len(clear) <= 0.1 * len(rows):
            caution = (
                f"Only {len(clear)} of {len(rows)} views have more weight than a "
                f"shuffled copy would get (p ≤ 0.05), and about {0.05 * len(rows):.0f} "
                "would by chance. Do not interpret the weights of the others."
            )
        return {"rows": rows}

    found = _or_why(make)
    drawn = found.get("rows") or [{"view": v, "share": s} for v, s in shares.items()]
    found["rows"] = drawn
    found["caution"] = caution
    found["picture"] = charts.bars(
        [
            Bar(row["view"], row["share"], row.get("low"), row.get("high"))
            for row in drawn[:MOST_VIEWS]
        ],
        "Share of each view",
        "share of the view" + (", 95 % interval" if not found["why"] else ""),
        percent=True,
    )
    found["hidden"] = max(len(drawn) - MOST_VIEWS, 0)
    return found


def _ablation(model: Any, X: Any, y: Any, cv: int, random_state: Any) -> Section:
    def make() -> Section:
        v = len(shares_of(model))
        if v > MOST_ABLATED:
            raise ValueError(
                f"With {v} views this takes about {v * v // 2} fits on every fold; call "
                "kernelweave.inspection.view_ablation for it."
            )
        template = clone(model)
        if "cv" in template.get_params():
            template.set_params(cv=None)  # folds inside folds answer no question here
        template.fit(X, y)
        found = view_ablation(template, X, y, cv=cv, random_state=random_state)
        rows = sorted(found.views, key=lambda row: -row["loss_rise"])
        picture = charts.bars(
            [
                Bar(
                    row["view"],
                    row["loss_rise"],
                    row["loss_rise"] - row["loss_rise_se"],
                    row["loss_rise"] + row["loss_rise_se"],
                )
                for row in rows
            ],
            "Rise of the held-out loss without each view",
            f"rise of the held-out {found.loss_name} without the view, ± one standard "
            "error",
        )
        return {"rows": rows, "found": found, "picture": picture}

    return _or_why(make)


def _pictures(held: HeldOut) -> list[Section]:
    """Pictures of held-out rows: title, sentence, drawing or table."""
    shown = held.shown
    if held.targets is None:
        return []
    if held.classes is None:
        truth = np.asarray(held.targets, dtype=float).reshape(len(shown), -1)[:, 0]
        guess = np.asarray(held.predicted, dtype=float).reshape(len(shown), -1)[:, 0]
        drawing = charts.scatter(
            np.column_stack([guess, truth])[shown],
            np.zeros(int(shown.sum()), dtype=int),
            ["held-out rows"],
            "True values against held-out predictions",
        )
        text = "Right: larger prediction; up: larger true value."
        return [{"title": "Predicted and true values", "text": text, "svg": drawing}]
    names = [str(c) for c in held.classes]
    codes = np.searchsorted(held.classes, held.labels)[shown]
    found: list[Section] = []
    if held.coordinates is not None:
        points = held.coordinates[shown][:, :2]
        two = "the first two axes" if points.shape[1] == 2 else "the only axis"
        found.append(
            {
                "title": "Projection",
                "text": f"Held-out rows along {two} of the discriminant; {held.how}.",
                "svg": charts.scatter(
                    points, codes, names, "Projection of held-out rows"
                ),
            }
        )
    guessed = np.searchsorted(held.classes, held.predicted)[shown]
    counts = confusion_matrix(codes, guessed, labels=np.arange(len(names)))
    found.append(
        {
            "title": "Confusion matrix",
            "text": "How often held-out rows of each class (down) were taken for each "
            "class (across).",
            "names": names,
            "counts": counts.tolist(),
        }
    )
    if held.probability is not None:
        found += _curves(held.probability[shown], codes, names)
    return found


def _curves(proba: np.ndarray, codes: np.ndarray, names: list[str]) -> list[Section]:
    """ROC and calibration curves, of each class against the rest."""
    which = [1] if len(names) == 2 else range(min(len(names), MOST_CLASSES))
    which = [c for c in which if 0 < np.sum(codes == c) < len(codes)]
    roc, calibration, areas = [], [], []
    for c in which:
        truth = codes == c
        false, true, _ = roc_curve(truth, proba[:, c])
        roc.append((names[c], false, true))
        areas.append(f"{names[c]} {roc_auc_score(truth, proba[:, c]):.3f}")
        real, said = calibration_curve(
            truth, proba[:, c], n_bins=min(8, max(2, len(truth) // 25)),
            strategy="quantile",
        )  # fmt: skip
        calibration.append((names[c], said, real))
    return [
        {
            "title": "ROC curve",
            "text": f"Area under the curve on held-out rows: {_some(areas)}.",
            "svg": charts.lines(
                roc, "ROC curve", ("false positive rate", "true positive rate")
            ),
        },
        {
            "title": "Calibration",
            "text": "On the diagonal, probabilities of held-out rows mean what they say.",
            "svg": charts.lines(
                calibration,
                "Calibration curve",
                ("predicted probability", "share of rows of the class"),
            ),
        },
    ]


def _columns(model: Any, X: Any) -> list[Section]:
    """The most important columns of each view."""
    found = []
    for view in list(shares_of(model))[:MOST_VIEWS]:

        def make(view: str = view) -> Section:
            records = feature_importance(model, view)
            best: dict[str, dict[str, Any]] = {}
            for row in records:  # a column counts as for the class it matters most to
                key = str(row["feature"])
                if key not in best or row["importance"] > best[key]["importance"]:
                    best[key] = row
            rows = sorted(best.values(), key=lambda row: -row["importance"])
            picture = charts.bars(
                [Bar(str(r["feature"]), r["importance"]) for r in rows[:MOST_COLUMNS]],
                f"Most important columns of the view {view}",
                "change of the decision value per standard deviation",
            )
            return {"picture": picture, "n": len(rows)}

        found.append({"view": view, **_or_why(make)})
    return found


def _rows(
    model: Any, X: Any, y: Any, held: HeldOut, groups: Any, sample_weight: Any
) -> Section:
    """Contributions to the decisions on some rows of the first fold, held out."""

    def make() -> Section:
        assert held.fold is not None
        test, train = np.flatnonzero(held.fold == 1), np.flatnonzero(held.fold != 1)
        pairwise = is_precomputed(model.views)
        part = clone(model)
        if "cv" in part.get_params():
            part.set_params(cv=None)
        given = {"groups": groups, "sample_weight": sample_weight}
        given = {k: np.asarray(v)[train] for k, v in given.items() if v is not None}
        targets = np.asarray(y)
        part.fit(take_rows(X, train, train, pairwise), targets[train], **given)
        new = take_rows(X, test, train, pairwise)
        parts = contributions(part, new)
        chosen = _telling(held, test)
        names = getattr(X, "index", None)
        records = []
        for i, why in chosen:
            if parts.parts.ndim == 3:
                c = int(np.searchsorted(part.classes_, held.predicted[test[i]]))
                values, constant = parts.parts[i, :, c], parts.intercept[..., c]
            else:
                values, constant = parts.parts[i], parts.intercept
            constant = np.ravel(np.asarray(constant))
            name = test[i] if names is None else names[test[i]]
            bars = [
                Bar(view, float(v)) for view, v in zip(parts.views, values, strict=True)
            ]
            bars.sort(key=lambda bar: -abs(bar.value))
            records.append(
                {
                    "name": str(name),
                    "why": why,
                    "truth": str(targets[test[i]]),
                    "predicted": str(held.predicted[test[i]]),
                    "picture": charts.bars(
                        bars[:MOST_VIEWS],
                        f"Contributions of the views to the decision on row {name}",
                        f"part in the decision value ({parts.unit}); the constant is "
                        f"{float(constant[i] if len(constant) > 1 else constant[0]):.3g}",
                    ),
                }
            )
        return {"records": records}

    return _or_why(make)


def _telling(held: HeldOut, test: np.ndarray) -> list[tuple[int, str]]:
    """Rows worth a look, by their number within ``test``: at most three."""
    targets = held.targets
    assert targets is not None
    if held.probability is None or held.classes is None:
        return [
            (i, "one of the held-out rows") for i in range(min(MOST_ROWS, len(test)))
        ]
    proba = np.sort(held.probability[test], axis=1)
    margin = proba[:, -1] - proba[:, -2]
    right = held.predicted[test] == targets[test]
    found: dict[int, str] = {}
    if right.any():
        found[int(np.argmax(np.where(right, margin, -1)))] = "clear and correct"
    found.setdefault(int(np.argmin(margin)), "the least certain")
    if not right.all():
        found.setdefault(
            int(np.argmax(np.where(right, -1, margin))), "certain and wrong"
        )
    return list(found.items())


def _gaps(model: Any, X: Any) -> Section:
    """Which views rows lack: every pattern that occurs, the most frequent first."""
    seen = getattr(getattr(model, "kernel_map_", None), "observed", None)
    if seen is None or np.all(seen):
        return {"why": "No row lacks a view."}
    names = list(dict.fromkeys(model.kernel_map_.view_names))
    first = [model.kernel_map_.view_names.index(name) for name in names]
    patterns, counts = np.unique(np.asarray(seen)[:, first], axis=0, return_counts=True)
    order = np.argsort(-counts)
    return {
        "why": "",
        "views": names,
        "patterns": [
            {"count": int(counts[i]), "has": patterns[i].astype(bool).tolist()}
            for i in order[:20]
        ],
    }


def _certificate(model: Any) -> Section:
    certificate = getattr(model, "certificate_", None)
    if certificate is None:
        return {"why": "The weights of this model are not learned, so none is needed."}
    return {
        "why": "",
        "status": certificate.status,
        "problem": certificate.problem,
        "numbers": [
            ("value", f"{certificate.value:.10g}"),
            ("lower bound", f"{certificate.lower_bound:.10g}"),
            ("relative gap", f"{certificate.gap:.1e}"),
        ],
        "remarks": list(certificate.remarks),
        "converged": bool(certificate.converged),
    }


def _card(
    model: Any, X: Any, y: Any, cv: int, random_state: Any, started: float
) -> list[tuple[str, str]]:
    """The model card, as pairs of what and value."""
    import kernelweave

    parameters = {k: v for k, v in model.get_params(deep=False).items() if k != "views"}
    defaults = type(model)().get_params(deep=False)
    changed = {k: v for k, v in parameters.items() if repr(defaults[k]) != repr(v)}
    shape = getattr(X, "shape", (len(X),))
    versions = f"kernelweave {kernelweave.__version__}, scikit-learn "
    versions += f"{sklearn.__version__}, NumPy {np.__version__}, SciPy "
    versions += f"{scipy.__version__}, Python {platform.python_version()}"
    card = [
        ("model", type(model).__name__),
        ("settings", ", ".join(f"{k}={v!r}" for k, v in changed.items()) or "defaults"),
        ("data", " x ".join(map(str, shape)) + f", targets {np.asarray(y).dtype}"),
        ("versions", versions),
        ("folds", f"{cv}, random_state={random_state!r}"),
        ("time for this page", f"{time.perf_counter() - started:.1f} s"),
        ("written", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
    ]
    for name, words in (("norm_", "norm"), ("alpha_", "alpha")):
        value = getattr(model, name, None)
        if value is not None:
            numbers = np.ravel(to_numpy(np.asarray(value)))
            card.insert(2, (words, ", ".join(f"{v:.4g}" for v in numbers[:5])))
    return card


def _some(items: list[str], most: int = 10) -> str:
    more = f" and {len(items) - most} more" if len(items) > most else ""
    return ", ".join(items[:most]) + more
