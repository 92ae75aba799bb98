"""The contents of the page, from the score on held-out rows to the model card."""

from __future__ import annotations

import inspect
import re
import time
import warnings
from datetime import UTC, datetime
from typing import Any

import numpy as np
from sklearn.base import is_classifier

from kernelweave._text import counted, some
from kernelweave.inspection._rows import (
    chosen_in_words,
    observed_views,
    shares_of,
    views_of,
    weight_in_words,
)
from kernelweave.models.shared.base import weights_differ
from kernelweave.persistence import library_versions
from kernelweave.report.decisions import columns, rows
from kernelweave.report.predictions import pictures, scores
from kernelweave.report.section import Case, Section, or_why
from kernelweave.report.views import shares, two_questions, without_each

#: Patterns of missing views, and warnings, that the page lists.
MOST_PATTERNS, MOST_WARNINGS = 20, 20


def collect(case: Case) -> dict[str, Any]:
    """Everything that the template needs; a section that fails says why."""
    model, say, started = case.model, case.how["report"], time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        contents: dict[str, Any] = {
            "classify": bool(is_classifier(model)),
            "evaluation": scores(case.result),
            "shares": shares(case),
        }
        # here, not inside the sections, which would catch an error of the callback
        say("what is lost without each view")
        contents["without"] = without_each(case)
        contents["two_questions"] = two_questions(
            contents["shares"], contents["without"]
        )
        say("columns and single rows")
        contents |= {
            "pictures": pictures(case.held, model),
            "columns": columns(case),
            "rows": rows(case),
        }
    return contents | {
        "gaps": _gaps(model, case.X),
        "treatment": [] if model._precomputed else model.column_summary_,
        "certificate": _certificate(model),
        "learned": _learned(model, case.y, contents),
        "card": _card(case, started),
        "warnings": _warnings([str(w.message) for w in caught]),
        "references": _references(model),
    }


def _learned(model: Any, y: np.ndarray, contents: dict[str, Any]) -> str:
    """The first paragraph, in plain words."""
    if contents["classify"]:
        classes, counts = np.unique(y, return_counts=True)
        listed = [f"{c} ({k})" for c, k in zip(classes, counts, strict=True)]
        aim = f"to distinguish {len(classes)} classes: {some(listed, 10)}"
    elif y.ndim == 2 and y.shape[1] > 1:
        aim = f"to predict {y.shape[1]} numbers"
    else:
        aim = "to predict a number"
    own = shares_of(model)
    sentences = [
        f"{type(model).__name__} learned from {counted(len(y), 'row')} in "
        f"{counted(max(len(own), 1), 'view')} {aim}.",
        contents["evaluation"]["summary"],
    ]
    cautions = contents["shares"]["cautions"]
    if len(own) > 1 and weights_differ(model):
        sentences.append(weight_in_words(model))
    return " ".join(sentences + cautions[:1])


@or_why
def _gaps(model: Any, X: Any) -> Section:
    """Which views rows lack: the patterns that occur, the most frequent first."""
    seen = observed_views(model, X)
    if seen is None:
        return {"why": "No row lacks a view."}
    patterns, counts = np.unique(seen, axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return {
        "views": views_of(model)[0],
        "lacking": np.sum(~seen, axis=0).tolist(),
        "patterns": [
            {"count": int(counts[i]), "has": patterns[i].tolist()}
            for i in order[:MOST_PATTERNS]
        ],
        "hidden": max(len(order) - MOST_PATTERNS, 0),
        "policy": model._at_fit["missing"],
    }


@or_why
def _certificate(model: Any) -> Section:
    certificate = getattr(model, "certificate_", None)
    if certificate is None:
        return {
            "why": "The weights of this model are not learned, so there is no optimum "
            "to certify."
        }
    return {"found": certificate}


def _card(case: Case, started: float) -> list[tuple[str, str]]:
    """The model card, as pairs of a name and a value."""
    model, y, fold, seed = case.model, case.y, case.held.fold, case.how["random_state"]
    parameters = {k: v for k, v in model.get_params(deep=False).items() if k != "views"}
    defaults = type(model)().get_params(deep=False)
    changed = {k: v for k, v in parameters.items() if repr(defaults[k]) != repr(v)}
    shape = " by ".join(str(size) for size in getattr(case.X, "shape", (len(y),)))
    seeds = f"{seed!r} for folds, halves and shuffles"
    if parameters.get("random_state") is not None:
        seeds += f"; {parameters['random_state']!r} for the model"
    what = f"{len(np.unique(y))} classes" if is_classifier(model) else "numbers"
    what += f" ({'text' if y.dtype.kind in 'OTU' else y.dtype})"
    return [
        ("model", type(model).__name__),
        (
            "settings",
            some((f"{k}={v!r}" for k, v in changed.items()), 10) or "defaults",
        ),
        ("chosen by the fit", "; ".join(chosen_in_words(model)) or "nothing"),
        ("shape of the data", f"{shape}; target: {what}"),
        ("views", some(list(shares_of(model)), 20)),
        (
            "folds",
            f"{int(fold.max())}; {counted(int(np.sum(fold > 0)), 'row')} predicted",
        ),
        ("seeds", seeds),
        ("versions", ", ".join(f"{k} {v}" for k, v in library_versions().items())),
        ("time for this page", f"{time.perf_counter() - started:.1f} s"),
        ("written", datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")),
    ]


def _warnings(messages: list[str]) -> list[str]:
    """Warnings, each listed once; those that differ only in numbers count as one."""
    found: dict[str, str] = {}
    for message in messages:
        text = " ".join(message.split())
        found.setdefault(re.sub(r"\d+", "#", text), text)
    texts = list(found.values())
    more = len(texts) - MOST_WARNINGS
    return texts[:MOST_WARNINGS] + ([f"{more} more"] if more > 0 else [])


def _references(model: Any) -> list[str]:
    """The papers that the documentation of the estimator refers to."""
    text = inspect.getdoc(type(model)) or ""
    _, found, after = text.partition("References\n----------\n")
    section = re.split(r"\n\w+\n-{4,}\n", after)[0]
    papers = section.split("\n\n") if found else []
    return [" ".join(paper.split()) for paper in papers if paper.strip()]
