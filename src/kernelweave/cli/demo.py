"""``kernelweave demo``: three views of handwritten digits among ten of pure noise."""

from __future__ import annotations

import argparse
import time
import warnings
from typing import Any

import numpy as np
from scipy.stats import sem
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import kernelweave
from kernelweave.cli.folder import new_results
from kernelweave.cli.output import (
    certificate_of,
    print_certificate,
    print_table,
    shown_warnings,
    write_results,
)
from kernelweave.cli.progress import progress
from kernelweave.datasets import fetch_views
from kernelweave.evaluation.held_out import new_rows
from kernelweave.exceptions import KernelWarning
from kernelweave.inspection import weight_intervals
from kernelweave.learn.estimates import accuracy
from kernelweave.models import KernelFDA, MultipleKernelFDA
from kernelweave.report import write_report

#: Number of noise views, and of columns in each.
N_NOISE, N_EACH = 10, 64
#: Number of digits to learn from, and to test on.
N_TRAIN, N_TEST = 200, 1000
#: The report.
PAGE = "report.html"


def run_demo(options: argparse.Namespace) -> dict[str, Any]:
    """Learn view weights on bundled data, compare models, print and write results.

    Parameters
    ----------
    options : argparse.Namespace
        The command-line options; see ``kernelweave demo --help``.
    """
    with new_results(options.out) as draft, progress(options) as say:
        digits = fetch_views("digits", as_frame=False)
        X, y, views = _with_noise(digits)
        train, test = train_test_split(
            np.arange(len(y)),
            train_size=N_TRAIN,
            test_size=N_TEST,
            stratify=y,
            random_state=0,
        )
        _print_question(digits)
        methods, right, lines = _methods(views), {}, []
        for name, method in methods.items():
            say(name)
            right[name], line = _tried(method, X, y, train, test)
            lines.append((name, *line))
        model = next(iter(methods.values()))
        say("intervals of the shares")
        _print_shares(model, X[train], y[train])
        print(f"\nAccuracy on the same {len(test)} digits that no model has seen:\n")
        print_table(("model", "accuracy", "±", "seconds"), lines)
        _print_leads(right)
        _print_without_a_view(model, X[test], y[test], digits.views)
        print_certificate(model)
        how = f"{len(test)} digits that the model has not seen"
        rows = new_rows(model, X[test], y[test], how)
        settings: Any = {"cv": 3, "n_resamples": 10, "n_decoys": 19, "report": say}
        title = "Handwritten digits: which of 13 views matter?"
        try:
            with draft.file(PAGE, "report on the training digits") as path:
                write_report(model, X[train], y[train], path, title=title, **settings)
        except ImportError as error:
            draft.remarks.append(f"no report: {error}")
        # last, since it lists the files of the folder
        write_results(draft, model, rows, [("row", test), ("digit", y[test])])
    if PAGE in draft.written:
        print(f"\nOpen the report in a browser:\n  {(draft.folder / PAGE).resolve()}")
    return {
        "accuracy": {name: float(np.mean(ok)) for name, ok in right.items()},
        **certificate_of(model),
        "out": str(draft.folder),
        "files": list(draft.written),
    }


def _print_question(digits: Any) -> None:
    names = [str(view[0]) for view in digits.views]
    print(
        f"kernelweave {kernelweave.__version__}: which of {len(names) + N_NOISE} views "
        "tell handwritten digits apart?\n\n"
        f"Data: scans of digits (from scikit-learn), {N_TRAIN} to learn from and "
        f"{N_TEST} to test on.\nViews: three of the scans ({', '.join(names)}) and "
        f"{N_NOISE} of {N_EACH} columns of\npure noise, made for this demonstration. "
        "The models do not know which is which.\n"
    )


def _tried(
    method: Any, X: np.ndarray, y: np.ndarray, train: np.ndarray, test: np.ndarray
) -> tuple[np.ndarray, list[str]]:
    """Which test rows are right, (m,); accuracy, standard error and seconds as text."""
    started = time.perf_counter()
    with shown_warnings():
        method.fit(X[train], y[train])
    took = time.perf_counter() - started
    right = method.predict(X[test]) == y[test]
    share, error = accuracy(right)
    return right, [f"{100 * share:.1f} %", f"{100 * error:.1f}", f"{took:.1f}"]


def _methods(views: list[Any]) -> dict[str, Any]:
    """The models that are compared; the first one learns weights."""
    return {
        "learned weights (MultipleKernelFDA)": MultipleKernelFDA(
            views, cv=None, missing="zero"
        ),
        "equal weights (KernelFDA)": KernelFDA(views, cv=None),
        "one SVM on all columns (SVC, tuned)": GridSearchCV(
            make_pipeline(StandardScaler(), SVC()), {"svc__C": [1, 10, 100]}, cv=3
        ),
    }


def _print_leads(right: dict[str, np.ndarray]) -> None:
    """How far learned weights, which come first, are ahead on the same digits."""
    learned, *others = right
    print()
    for name in others:
        lead = right[learned].astype(float) - right[name]
        print(
            f"  Learned weights are {100 * lead.mean():+.1f} ± {100 * sem(lead):.1f} "
            f"points ahead of {name.partition(' (')[0]}."
        )


def _with_noise(digits: Any) -> tuple[np.ndarray, np.ndarray, list[Any]]:
    """Columns, classes and views of the digits, with views of noise after them."""
    n, d = digits.data.shape
    noise = np.random.default_rng(0).standard_normal((n, N_NOISE * N_EACH))
    more = [
        (f"noise {i + 1}", "auto", slice(d + i * N_EACH, d + (i + 1) * N_EACH))
        for i in range(N_NOISE)
    ]
    X = np.hstack([digits.data, noise])  # (1797, 754)
    return X, digits.target, [*digits.views, *more]


def _print_shares(model: Any, X: np.ndarray, y: np.ndarray) -> None:
    with shown_warnings():
        found = weight_intervals(model, X, y, n_resamples=20, random_state=0)
    lines = [
        (
            row["view"],
            f"{100 * row['share']:.0f} %",
            f"{100 * row['low']:.0f} to {100 * row['high']:.0f} %",
        )
        for row in sorted(found, key=lambda row: -row["share"])
    ]
    print("Share of each view in the learned weights, with 95 % intervals:\n")
    print_table(("view", "share", "interval"), lines)


def _print_without_a_view(
    model: Any, X: np.ndarray, y: np.ndarray, views: list[Any]
) -> None:
    name, _, columns = views[0]
    lacking = X.copy()
    lacking[:, columns] = np.nan
    with warnings.catch_warnings():  # it is left out on purpose
        warnings.simplefilter("ignore", KernelWarning)
        predicted = model.predict(lacking)
        chance = float(model.predict_proba(lacking[:1]).max())
    share, error = accuracy(predicted == y)
    print(
        f"\nWithout the view {name!r}, the same model is right on {100 * share:.1f} % "
        f"± {100 * error:.1f} of them.\n  The first one is a {y[0]}; without that view "
        f"it is taken for a {predicted[0]}, with probability "
        f"{chance:.2f}."
    )
