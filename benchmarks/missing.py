"""Accuracy as more and more rows lack views, on real multi-view data sets."""

from __future__ import annotations

import pathlib
import warnings

import numpy as np
from harness import Section
from sklearn.model_selection import StratifiedShuffleSplit
from study import first_classes, side_by_side, views

from kernelweave import KernelFDA, MixtureKDA, MultipleKernelFDA

PICTURE = (
    pathlib.Path(__file__).parent.parent / "docs" / "_static" / "missing_views.svg"
)
SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
SETS = {
    "msrc_v5": views("msrc_v5"),
    "mfeat (300 rows)": views("mfeat", rows=300),
    "leaves (25 species)": first_classes("leaves100", 25),
}
METHODS = {
    "mixture, available": lambda v: MixtureKDA(v, cv=None, missing="available"),
    "mixture, equal weights": lambda v: MixtureKDA(
        v, cv=None, missing="available", weights="uniform"
    ),
    "mixture, zeros": lambda v: MixtureKDA(v, cv=None, missing="zero"),
    "l1 MK-FDA, zeros": lambda v: MultipleKernelFDA(v, norm=1, missing="zero"),
    "mean-kernel KDA, zeros": lambda v: KernelFDA(v, missing="zero"),
    "mean-kernel KDA, available": lambda v: KernelFDA(v, missing="available"),
}
DESIGNS = ("training rows", "training and test rows")


def run(quick: bool = False) -> Section:
    """Mean accuracy for each data set, design, method and fraction of missing rows."""
    n_splits = 1 if quick else 5
    section = Section(
        "Rows that lack views",
        "Each view is removed from a fraction of the rows, drawn independently for "
        "each view; no row loses all of its views. One Gaussian kernel of median "
        f"width per view; mean accuracy in percent over {n_splits} stratified 60/40 "
        "splits. 'available' trains each expert on the rows that have its view (for "
        "the mean kernel: averages over the kernels that both rows of a pair have); "
        "'zeros' fills centred kernels with zeros. There are no requirements on "
        "these numbers.",
        ["set", "missing in", "method", *(f"{100 * s:.0f} %" for s in SHARES)],
    )
    curves = {}
    for name, load in SETS.items():
        try:
            blocks, y = load()
        except FileNotFoundError as error:
            section.remarks.append(f"{name}: left out. {error}")
            continue
        curves[name] = found = _accuracies(blocks, y, n_splits)
        for d, design in enumerate(DESIGNS):
            for m, method in enumerate(METHODS):
                cells = [f"{a:.1f}" for a in 100 * found[d, m].mean(axis=1)]
                section.rows.append([name, design, method, *cells])
        remark = f"{name}: {len(y)} rows, {len(blocks)} views"
        if n_splits > 1:
            error = 100 * found.std(axis=3, ddof=1).mean() / n_splits**0.5
            remark += f"; the standard error of a cell is about {error:.1f} points"
        section.remarks.append(f"{remark}.")
    if curves and not quick:
        _draw(curves)
        section.remarks.append(
            f"![Accuracy against the share of missing rows](_static/{PICTURE.name})"
        )
    return section


def _accuracies(blocks: dict, y: np.ndarray, n_splits: int) -> np.ndarray:
    """Accuracies (design, method, share, split)."""
    found = np.empty((len(DESIGNS), len(METHODS), len(SHARES), n_splits))
    X, views = side_by_side(blocks, "rbf")
    slices = [columns for _, _, columns in views]
    splitter = StratifiedShuffleSplit(n_splits, test_size=0.4, random_state=11)
    for split, (train, test) in enumerate(splitter.split(y, y)):
        for s, share in enumerate(SHARES):
            rng = np.random.default_rng(1000 * split + s)
            holes = _with_gaps(X, slices, share, rng)
            for m, make in enumerate(METHODS.values()):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    model = make(views).fit(holes[train], y[train])
                    found[0, m, s, split] = model.score(X[test], y[test])
                    found[1, m, s, split] = model.score(holes[test], y[test])
    return found


def _with_gaps(
    X: np.ndarray, slices: list, share: float, rng: np.random.Generator
) -> np.ndarray:
    X = X.copy()
    lacks = rng.random((len(X), len(slices))) < share
    lacks[np.arange(len(X)), rng.integers(len(slices), size=len(X))] = False
    for v, columns in enumerate(slices):
        X[lacks[:, v], columns] = np.nan
    return X


def _draw(curves: dict[str, np.ndarray]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    colors = ("#0072B2", "#56B4E9", "#009E73", "#D55E00", "#8C8C8C", "#333333")
    styles = ("-", "-", "--", "--", "--", ":")
    figure, axes = plt.subplots(
        len(DESIGNS),
        len(curves),
        figsize=(10, 6),
        layout="constrained",
        sharex=True,
        sharey="row",
    )
    axes = np.asarray(axes).reshape(len(DESIGNS), len(curves))
    for column, (name, found) in enumerate(curves.items()):
        for row, design in enumerate(DESIGNS):
            ax = axes[row, column]
            for m, method in enumerate(METHODS):
                ax.plot(
                    100 * np.array(SHARES),
                    100 * found[row, m].mean(axis=1),
                    styles[m],
                    color=colors[m],
                    label=method,
                )
            ax.set_title(f"{name}: {design}", fontsize=9, loc="left")
            ax.spines[["top", "right"]].set_visible(False)
        axes[-1, column].set_xlabel("rows that lack a view (%)")
    for ax in axes[:, 0]:
        ax.set_ylabel("accuracy (%)")
    axes[0, 0].legend(frameon=False, fontsize=7, loc="lower left")
    plt.rcParams["svg.hashsalt"] = "kernelweave"
    figure.savefig(PICTURE, metadata={"Date": None})
    plt.close(figure)
