"""What the commands print and write."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import kernelweave
from kernelweave.inspection import (
    KernelWeightsDisplay,
    ProjectionDisplay,
    to_csv,
    weights_table,
)

__all__ = [
    "MARK_KEY",
    "prepare_folder",
    "print_certificate",
    "print_table",
    "print_weights",
    "shown_warnings",
    "write_results",
]

#: Every file that a command may write, with what is in it.
CONTENTS = {
    "certificate.json": "value, lower bound and gap of the weights",
    "weights.csv": "weight of every kernel",
    "predictions.csv": "predicted classes with probabilities",
    "weights.png": "picture of the weights",
    "projection.png": "picture of the classes",
}
#: The file by which a folder is known to be ours, and its key that says so.
MARK_FILE, MARK_KEY = "certificate.json", "kernelweave_version"


def prepare_folder(name: str, mark: str = MARK_FILE) -> Path:
    """Make the folder for the results; one with other people's files is refused.

    Parameters
    ----------
    name : str
        The folder. It may exist if it is empty or an earlier run wrote to it.
    mark : str, default="certificate.json"
        The file by which an earlier run is known.

    Returns
    -------
    folder : Path
        The folder, which now exists.
    """
    folder = Path(name)
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{name!r} is a file; name a folder with --out")
    if folder.is_dir() and any(folder.iterdir()) and not _is_ours(folder / mark):
        raise ValueError(
            f"the folder {name!r} holds files that kernelweave did not write; name "
            "another one with --out"
        )
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _is_ours(mark: Path) -> bool:
    try:
        content = json.loads(mark.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(content, dict) and MARK_KEY in content


@contextmanager
def shown_warnings() -> Iterator[None]:
    """Print each warning once, as one line on standard error."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    for message in dict.fromkeys(" ".join(str(w.message).split()) for w in caught):
        print(f"warning: {message}", file=sys.stderr)


def print_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table, the first column to the left and the others to the right."""
    try:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text
    except ImportError:
        _print_plain_table(headers, rows)
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=True, show_edge=False)
    for j, header in enumerate(headers):
        table.add_column(header, justify="right" if j else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))  # a Text, since names may look like markup
    width = None if sys.stdout.isatty() else 160
    Console(file=sys.stdout, width=width, highlight=False).print(table)


def _print_plain_table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    columns = list(zip(headers, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    for row in [headers, ["-" * width for width in widths], *rows]:
        cells = [
            cell.rjust(width) if j else cell.ljust(width)
            for j, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  " + "  ".join(cells))


def print_weights(model: Any) -> None:
    """Print the weight of each view, the heaviest first."""
    table = weights_table(model)
    total = sum(row["weight"] for row in table)
    lines = []
    for view, weight in sorted(model.view_weights_.items(), key=lambda item: -item[1]):
        kernels = [row for row in table if row["view"] == view]
        used = [row for row in kernels if row["weight"] > 0]
        heaviest = max(kernels, key=lambda row: row["weight"])["kernel"]
        heaviest = heaviest.rpartition(" > ")[2]  # without the steps before it
        lines.append(
            (
                view,
                f"{weight:.4f}",
                f"{100 * weight / total:.1f} %",
                f"{len(used)} of {len(kernels)}",
                heaviest if used else "-",
            )
        )
    print_table(("view", "weight", "share", "kernels used", "heaviest kernel"), lines)


def print_certificate(model: Any) -> None:
    """Print how good the weights are, and what was chosen on the way."""
    certificate = model.certificate_
    print(f"  status       {certificate.status}")
    print(f"  value        {certificate.value:.10g}")
    print(f"  lower bound  {certificate.lower_bound:.10g}")
    print(f"  gap          {certificate.gap:.1e} relative")
    for remark in certificate.remarks:
        print(f"  note         {remark}")
    print(f"  problem      {certificate.problem}")
    print(f"  chosen       norm {model.norm_:.4g}, alpha {model.alpha_:.4g}")


def write_results(
    folder: Path, model: Any, X: Any, y: Any, identity: dict[str, Sequence[Any]]
) -> None:
    """Write tables and pictures, and say where they are.

    Parameters
    ----------
    folder : Path
        From :func:`prepare_folder`.
    model : estimator
        Fitted classifier.
    X : array-like of shape (m, d)
        Rows to predict and to draw.
    y : array-like of shape (m,) or None
        Their classes, if known.
    identity : dict
        The first columns of the table of predictions.
    """
    for name in CONTENTS:
        (folder / name).unlink(missing_ok=True)
    _write_certificate(folder / MARK_FILE, model)
    to_csv(weights_table(model), folder / "weights.csv")
    to_csv(_predictions(model, X, identity), folder / "predictions.csv")
    drawn = _write_pictures(folder, model, X, y)
    print(f"\nWritten to {folder}:")
    for name, content in CONTENTS.items():
        if (folder / name).exists():
            print(f"  {folder / name}  ({content})")
    if not drawn:
        print(
            "  no pictures: matplotlib is not installed "
            "(pip install 'kernelweave[plot]')"
        )


def _write_certificate(path: Path, model: Any) -> None:
    certificate = dataclasses.asdict(model.certificate_)
    content = {
        MARK_KEY: kernelweave.__version__,
        **certificate,
        "norm": model.norm_,
        "alpha": model.alpha_,
        "view_weights": model.view_weights_,
        "loo_score": model.loo_score_,
    }
    # JSON knows neither NaN nor infinity.
    for key, value in content.items():
        if isinstance(value, float) and not math.isfinite(value):
            content[key] = "inf" if value > 0 else None
    text = json.dumps(content, indent=2, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def _predictions(
    model: Any, X: Any, identity: dict[str, Sequence[Any]]
) -> list[dict[str, Any]]:
    probability = np.asarray(model.predict_proba(X))
    columns = dict(identity)
    columns["predicted"] = model.predict(X)
    for label, column in zip(model.classes_, probability.T, strict=True):
        columns[f"probability_{label}"] = [f"{value:.6f}" for value in column]
    return [
        dict(zip(columns, row, strict=True))
        for row in zip(*columns.values(), strict=True)
    ]


def _write_pictures(folder: Path, model: Any, X: Any, y: Any) -> bool:
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")  # no screen is needed to write files
    from matplotlib import pyplot

    for name, display in (
        ("weights.png", KernelWeightsDisplay.from_estimator(model)),
        ("projection.png", ProjectionDisplay.from_estimator(model, X, y)),
    ):
        display.figure_.savefig(folder / name, dpi=150)
        pyplot.close(display.figure_)
    return True
