"""The claims of Zhao et al. (2009) about their results, and their figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kernelweave.inspection._figure import color, marker, pyplot
from kernelweave.papers.results import Results

__all__ = [
    "draw_lacking",
    "few_kernels",
    "learning_pays",
    "like_the_best_kernel",
    "mapk_is_frequent",
    "order_of_sparsity",
    "pos_loses_more",
    "pri_beats_pos",
    "pri_is_best",
    "pri_loses_least",
]

PRI, POS, KDA, SVM = "MPKDA-Pri", "MPKDA-Pos", "KDA_QCQP", "SVM_SILP"
BEST, PRIOR = "Max Single", "Pri with a prior"
PRINTED = "Pos, printed weights"
UNIFORM, MEAN = "Pri, equal weights", "mean kernel"
MAPK = "mapk_signaling_pathway"
#: The groups of genes, in the order of the kernels.
PATHWAYS = (
    "apoptosis",
    "b_cell_receptor_signaling_pathway",
    "cell_cycle",
    "chronic_myeloid_leukemia",
    "erbb_signaling_pathway",
    "focal_adhesion",
    "jak_stat_signaling_pathway",
    MAPK,
    "mtor_signaling_pathway",
    "p53_signaling_pathway",
    "pathways_in_cancer",
    "t_cell_receptor_signaling_pathway",
    "tgf_beta_signaling_pathway",
    "vegf_signaling_pathway",
    "wnt_signaling_pathway",
)
#: Kernels with a weight above this count as selected.
SELECTED = 1e-3
#: Accuracies closer than this are called similar.
SIMILAR = 0.02
#: The data sets of Figure 1.
PANELS = ("Prostate", "ALL, fusion")


def lacking(name: str, percent: int) -> str:
    """The name of a row of Figure 1."""
    return f"{name}, {percent} %"


def against(
    results: Results, column: str, other: str
) -> tuple[float, float, dict[str, float]]:
    """Mean difference in accuracy over all rows, its error, and that of every row."""
    each = {
        row: results.difference(row, column, other, "accuracy")
        for row in _rows(results)
    }
    gap = float(np.mean([mean for mean, _ in each.values()]))
    error = float(np.sqrt(np.sum([e**2 for _, e in each.values()]))) / len(each)
    return gap, error, {row: mean for row, (mean, _) in each.items()}


def _rows(results: Results) -> list[str]:
    if not results.rows:
        raise KeyError("any data set")
    return results.rows


def _shown(gap: float, error: float, other: str) -> str:
    return f"{gap:+.3f} ± {error:.3f} against {other}"


def pri_is_best(results: Results) -> tuple[bool, str]:
    """Whether prior projections have the highest mean accuracy of the four methods."""
    gaps = {other: against(results, PRI, other) for other in (POS, KDA, SVM)}
    found = ", ".join(_shown(g, e, other) for other, (g, e, _) in gaps.items())
    return all(gap > 0 for gap, _, _ in gaps.values()), found


def pri_beats_pos(results: Results) -> tuple[bool, str]:
    """Whether prior projections beat posterior ones by two standard errors."""
    gap, error, _ = against(results, PRI, POS)
    printed, other, _ = against(results, PRI, PRINTED)
    found = f"{_shown(gap, error, POS)}; {_shown(printed, other, PRINTED)}"
    return bool(gap > 2 * error), found


def like_the_best_kernel(results: Results) -> tuple[bool, str]:
    """Whether prior projections match the kernel that is best on the test rows."""
    gap, error, each = against(results, PRI, BEST)
    rows = ", ".join(f"{row} {mean:+.2f}" for row, mean in each.items())
    return abs(gap) <= max(SIMILAR, 2 * error), f"{_shown(gap, error, BEST)} ({rows})"


def learning_pays(results: Results) -> tuple[bool, str]:
    """Whether learned weights beat equal ones."""
    gap, error, _ = against(results, PRI, UNIFORM)
    prior, other, _ = against(results, PRIOR, UNIFORM)
    found = f"{_shown(gap, error, 'equal weights')}; with a Dirichlet prior "
    return bool(gap > 2 * error), f"{found}{prior:+.3f} ± {other:.3f}"


def _selected(results: Results, column: str) -> float:
    return float(np.mean([results.mean(r, column, "kernels") for r in _rows(results)]))


def few_kernels(results: Results) -> tuple[bool, str]:
    """Whether a class has at most five kernels in most splits."""
    numbers = [results.values(row, PRI, "kernels") for row in _rows(results)]
    share = float(np.mean(np.concatenate(numbers) <= 5))
    mean = _selected(results, PRI)
    return share > 0.5, f"{mean:.1f} on average; {100 * share:.0f} percent of splits"


def order_of_sparsity(results: Results) -> tuple[bool, str]:
    """Whether the numbers of kernels are in the order of the paper."""
    kda, pri, svm = (_selected(results, column) for column in (KDA, PRI, SVM))
    return kda < pri < svm, f"{kda:.1f}, {pri:.1f} and {svm:.1f} kernels"


def mapk_is_frequent(results: Results) -> tuple[bool, str]:
    """Whether the pathway is selected more often than the average one."""
    at = PATHWAYS.index(MAPK)
    more, found = [], []
    for column in (PRI, KDA, SVM):
        rows = [row for row in _rows(results) if not row.startswith("TOX")]
        if not rows:
            raise KeyError("sets with pathways")
        weights = np.concatenate([results.values(r, column, "weights") for r in rows])
        shares = np.mean(weights > SELECTED, axis=0)
        more.append(shares[at] > np.mean(shares))
        found.append(
            f"{column} in {100 * shares[at]:.0f} percent of splits, the average "
            f"pathway in {100 * np.mean(shares):.0f}"
        )
    return bool(np.all(more)), "; ".join(found)


def _losses(results: Results, column: str) -> tuple[float, float]:
    """Mean loss in accuracy from the fewest to the most missing rows, and its error."""
    drops = []
    for name in PANELS:
        rows = [row for row in results.rows if row.startswith(f"{name}, ")]
        if len(rows) < 2:
            raise KeyError(name)
        first = results.values(rows[0], column, "accuracy")
        drops.append(first - results.values(rows[-1], column, "accuracy"))
    lost = np.concatenate(drops)
    error = float(np.std(lost, ddof=1) / np.sqrt(len(lost)))
    return float(np.mean(lost)), error


def pri_loses_least(results: Results) -> tuple[bool, str]:
    """Whether prior projections lose less accuracy than the three others."""
    losses = {column: _losses(results, column) for column in (PRI, POS, KDA, SVM)}
    found = ", ".join(f"{c} {v:.3f} ± {e:.3f}" for c, (v, e) in losses.items())
    least = min(losses, key=lambda column: losses[column][0])
    return least == PRI, f"accuracy lost: {found}"


def pos_loses_more(results: Results) -> tuple[bool, str]:
    """Whether posterior projections lose more than prior ones."""
    pri, pos = _losses(results, PRI)[0], _losses(results, POS)[0]
    return pos > pri, f"{pos:.3f} against {pri:.3f}"


def draw_lacking(results: Results, percentages: Sequence[int]) -> Any:
    """Figure 1: accuracy against the percentage of missing rows, a panel per set."""
    plt = pyplot("draw_lacking")
    figure, panels = plt.subplots(
        1, len(PANELS), figsize=(9, 3.6), sharex=True, layout="constrained"
    )
    for panel, name in zip(panels, PANELS, strict=True):
        at = [p for p in percentages if lacking(name, p) in results.rows]
        rows = [lacking(name, percent) for percent in at]
        for j, column in enumerate(results.experiment.columns):
            means = [results.mean(row, column, "accuracy") for row in rows]
            panel.plot(at, means, color=color(j), marker=marker(j), label=column, ms=4)
        panel.set_title(name)
        panel.set_xlabel("training rows lacking, %")
    panels[0].set_ylabel("accuracy")
    figure.legend(
        *panels[0].get_legend_handles_labels(),
        loc="outside lower center",
        ncols=len(results.experiment.columns),
        frameon=False,
        fontsize="small",
    )
    return figure
