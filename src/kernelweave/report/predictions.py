"""The score compared with the baselines, and pictures of held-out rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.calibration import calibration_curve
from sklearn.metrics import confusion_matrix, roc_auc_score, roc_curve

from kernelweave._text import counted, some
from kernelweave.evaluation.held_out import HeldOut
from kernelweave.report import charts
from kernelweave.report.charts import Bar
from kernelweave.report.section import MOST_CLASSES, Section, or_why

#: The baselines, in words.
BASELINES = {
    "best single view": "only the view with the smallest leave-one-out error",
    "equal weights": "all kernels with the same weight",
    "stacking of views": "a regression on the outputs of one model per view",
    "no view": "the most frequent class, or the mean of the training rows",
}
#: For each class by name: which rows belong to it (m,), and its probability (m,).
Classes = dict[str, tuple[np.ndarray, np.ndarray]]
#: Marks on the axes of probabilities.
QUARTERS = (0.0, 0.25, 0.5, 0.75, 1.0)


def scores(result: Any) -> Section:
    """The table of :func:`kernelweave.evaluation.evaluate`, and a picture of it."""
    percent = result.score_name == "accuracy"
    name = "accuracy" if percent else "R²"
    picture = charts.bars(
        [
            Bar.around(row["method"], row["score"], row["score_se"])
            for row in result.table
            if row["score"] is not None
        ],
        f"{name} of the model and of its baselines on held-out rows",
        f"{name} on held-out rows, ± one standard error",
        percent=percent,
    )
    present = [row["method"] for row in result.table]
    return {
        **result,
        "picture": picture,
        "score_name": name,
        "lead_name": result.lead_name if percent else name,
        "baselines": {k: v for k, v in BASELINES.items() if k in present},
    }


def pictures(held: HeldOut, model: Any) -> list[Section]:
    """Pictures of held-out rows: title, sentence, drawing or table, or why not."""
    shown = held.shown
    if held.classes is None:
        return [
            {"title": "Predicted and true values", **_agreement(held)},
            {
                "title": "Projection, confusion matrix, ROC curve, calibration",
                "why": "These are for classes; this model predicts numbers.",
            },
        ]
    kind, classes = type(model).__name__, held.classes
    names = [str(c) for c in classes]
    codes = np.searchsorted(classes, held.labels)[shown]
    projection: Section = {"why": f"{kind} has no projection."}
    if held.coordinates is not None:
        projection = _projection(held.coordinates[shown], codes, names)
    guessed = np.searchsorted(classes, held.predicted)[shown]
    counts = confusion_matrix(codes, guessed, labels=np.arange(len(names)))
    found: list[Section] = [
        {"title": "Projection", **projection},
        {
            "title": "Confusion matrix",
            "why": "",
            "text": "Rows are true classes, columns are predicted classes.",
            "names": names,
            "counts": counts.tolist(),
        },
    ]
    if held.probability is None:
        why = f"{kind} predicts classes without probabilities."
        return [*found, {"title": "ROC curve and calibration", "why": why}]
    return found + _of_probabilities(held.probability[shown], codes, names)


def _of_probabilities(
    proba: np.ndarray, codes: np.ndarray, names: list[str]
) -> list[Section]:
    """ROC curve and calibration of each class."""
    about = f"The positive class is {names[1]}. "
    if len(names) > 2:
        about = "Each class against all others. "
    if len(names) > MOST_CLASSES:
        about = f"Only the first {MOST_CLASSES} classes are drawn. {about}"
    shown = range(len(names))[:MOST_CLASSES] if len(names) > 2 else [1]
    classes = {names[c]: (codes == c, proba[:, c]) for c in shown}
    classes = {name: own for name, own in classes.items() if 0 < own[0].mean() < 1}
    if not classes:
        why = f"All held-out rows are of the class {names[codes[0]]}."
        return [{"title": "ROC curve and calibration", "why": why}]
    return [
        {"title": "ROC curve", **_roc(classes, about)},
        {"title": "Calibration", **_calibration(classes, about, len(codes))},
    ]


@or_why
def _agreement(held: HeldOut) -> Section:
    truth, guess = (
        np.asarray(values, dtype=float).reshape(len(held.shown), -1)[held.shown]
        for values in (held.targets, held.predicted)
    )
    text = "On the diagonal, a held-out prediction equals the true value."
    if truth.shape[1] > 1:
        text += f" The first of {truth.shape[1]} targets is shown."
    drawn = guess[:, 0], truth[:, 0]
    drawing = charts.plot(
        [("held-out rows", *drawn)],
        "True values against held-out predictions",
        ("predicted", "true"),
        charts.round_ticks(float(np.min(drawn)), float(np.max(drawn))),
    )
    return {"text": text, "svg": drawing}


@or_why
def _projection(points: np.ndarray, codes: np.ndarray, names: list[str]) -> Section:
    """Rows along the first two axes; a single one is spread by class."""
    axes = ("discriminant axis 1", "discriminant axis 2")
    text = "Held-out rows along the first two axes of the discriminant."
    if points.shape[1] == 1:
        spread = np.random.default_rng(0).uniform(-0.35, 0.35, len(points))
        points = np.column_stack([points[:, 0], codes + spread])
        axes = ("discriminant axis", "class")
        text = "Held-out rows along the axis of the discriminant, one band per class."
    series = [(name, *points[codes == c, :2].T) for c, name in enumerate(names)]
    drawing = charts.plot(series, "Projection of held-out rows", axes)
    return {"text": text, "svg": drawing}


@or_why
def _roc(classes: Classes, about: str) -> Section:
    curves = [(name, *roc_curve(*own)[:2]) for name, own in classes.items()]
    areas = [f"{name} {roc_auc_score(*own):.3f}" for name, own in classes.items()]
    if len(areas) == 1:
        areas = [areas[0].rpartition(" ")[2]]  # without the name
    axes = ("false positive rate", "true positive rate")
    title = "ROC curve of held-out rows"
    return {
        "text": f"{about}Area under the curve: {some(areas, 10)}.",
        "svg": charts.plot(curves, title, axes, QUARTERS, joined=True),
    }


@or_why
def _calibration(classes: Classes, about: str, n: int) -> Section:
    n_bins = min(8, max(2, n // 25))
    curves = []
    for name, own in classes.items():
        real, said = calibration_curve(*own, n_bins=n_bins, strategy="quantile")
        curves.append((name, said, real))
    axes = ("predicted probability", "observed frequency")
    title = "Calibration curve of held-out rows"
    return {
        "text": f"{about}On the diagonal, predicted probabilities equal observed "
        f"frequencies. Each point stands for about {counted(n // n_bins, 'row')}.",
        "svg": charts.plot(curves, title, axes, QUARTERS, joined=True),
    }
