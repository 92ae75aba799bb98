"""The claims of Yan et al. (2009) about their figures, as tests of our results."""

from __future__ import annotations

import numpy as np

from kernelweave.papers.experiment import Claim
from kernelweave.papers.results import Results

__all__ = [
    "FIGURE_2_CLAIMS",
    "FIGURE_3_CLAIMS",
    "FIGURE_5_CLAIMS",
    "L1",
    "L2",
    "TIME_CLAIMS",
    "UNIFORM",
]

#: The columns of the figures.
UNIFORM, L1, L2 = "uniform", "l1", "l2"


def gap(results: Results, row: str, measure: str, first: str, second: str) -> str:
    """A difference and its standard error, as text."""
    mean, error = results.difference(row, first, second, measure)
    return f"{row}: {mean:+.3f} ± {error:.3f}"


def errors_fall(results: Results) -> tuple[bool, str]:
    """Whether both errors at 50 kernels are far below those at 5."""
    few, *_, many = results.experiment.rows
    found = {
        column: (
            results.mean(few, column, "error"),
            results.mean(many, column, "error"),
        )
        for column in (L1, L2)
    }
    text = ", ".join(f"{c} from {a:.3f} to {b:.3f}" for c, (a, b) in found.items())
    return all(b < a / 1.5 for a, b in found.values()), text


def l1_first(results: Results) -> tuple[bool, str]:
    """Whether l1 errs less than l2 with five kernels."""
    row = next(iter(results.experiment.rows))
    return results.difference(row, L1, L2, "error")[0] < 0, (
        "error of l1 minus l2, " + gap(results, row, "error", L1, L2)
    )


def l2_next(results: Results) -> tuple[bool, str]:
    """Whether l2 errs less than l1 with 10 and with 15 kernels."""
    rows = list(results.experiment.rows)[1:3]
    holds = all(results.difference(row, L1, L2, "error")[0] > 0 for row in rows)
    found = "; ".join(gap(results, row, "error", L1, L2) for row in rows)
    return holds, f"error of l1 minus l2, {found}"


def l2_grows(results: Results) -> tuple[bool, str]:
    """Whether the advantage of l2 is significant from 20 kernels on, and grows."""
    rows = list(results.experiment.rows)[3:]
    gaps = [results.difference(row, L1, L2, "error") for row in rows]
    clear = all(mean > 2 * error for mean, error in gaps)
    slope = np.polyfit(np.arange(len(gaps)), [mean for mean, _ in gaps], 1)[0]
    found = "; ".join(gap(results, row, "error", L1, L2) for row in (rows[0], rows[-1]))
    return bool(clear and slope > 0), f"error of l1 minus l2, {found}"


def sparse_when_many(results: Results) -> tuple[bool, str]:
    """Whether l1 uses all of 5 kernels but not all of 30, and l2 uses all of them."""
    used = {
        (row, column): results.mean(row, column, "used")
        for row in results.experiment.rows
        for column in (L1, L2)
    }
    few, many = results.experiment.rows
    holds = used[few, L1] > 0.95 and used[many, L1] < 0.95 and used[many, L2] > 0.95
    text = ", ".join(f"{c} uses {100 * v:.0f} % of {r}" for (r, c), v in used.items())
    return holds, text


def l1_resists_noise(results: Results) -> tuple[bool, str]:
    """Whether l1 is better when most kernels are random."""
    rows = list(results.experiment.rows)[1:4]
    holds = all(results.difference(row, L1, L2, "precision")[0] > 0 for row in rows)
    found = "; ".join(gap(results, row, "precision", L1, L2) for row in rows)
    return holds, f"precision of l1 minus l2, {found}"


def l2_without_noise(results: Results) -> tuple[bool, str]:
    """Whether l2 is better when most kernels are informative."""
    rows = list(results.experiment.rows)[-3:]
    holds = all(results.difference(row, L2, L1, "precision")[0] > 0 for row in rows)
    found = "; ".join(gap(results, row, "precision", L2, L1) for row in rows)
    return holds, f"precision of l2 minus l1, {found}"


def l2_beats_uniform(results: Results) -> tuple[bool, str]:
    """Whether l2 is nowhere worse than uniform weights beyond a standard error."""
    rows = list(results.experiment.rows)[1:]
    gaps = {row: results.difference(row, L2, UNIFORM, "precision") for row in rows}
    holds = all(mean > -error for mean, error in gaps.values())
    worst = min(gaps, key=lambda row: gaps[row][0])
    texts = [gap(results, row, "precision", L2, UNIFORM) for row in (worst, rows[-1])]
    return holds, "precision of l2 minus uniform, smallest " + ", last ".join(texts)


def tens_and_five(results: Results) -> tuple[bool, str]:
    """Whether cutting planes take over ten iterations for l1, and under six for l2."""
    names = [f"{norm}, cutting plane" for norm in (L1, L2)]
    rows = results.experiment.rows
    l1, l2 = ([results.mean(r, name, "iterations") for r in rows] for name in names)
    found = (
        f"l1 {min(l1):.1f} to {max(l1):.1f} iterations, "
        f"l2 {min(l2):.1f} to {max(l2):.1f}"
    )
    return min(l1) > 10 and max(l2) < 6, found


def l1_is_slow(results: Results) -> tuple[bool, str]:
    """Whether l1 takes over three times as long as l2, with Newton for comparison."""
    ratios = {
        solver: np.mean(
            [
                results.mean(row, f"{L1}, {solver}", "seconds")
                / results.mean(row, f"{L2}, {solver}", "seconds")
                for row in results.experiment.rows
            ]
        )
        for solver in ("cutting plane", "newton")
    }
    found = ", ".join(f"{ratio:.1f} with {name}" for name, ratio in ratios.items())
    return bool(ratios["cutting plane"] > 3), f"time of l1 over l2: {found}"


FIGURE_2_CLAIMS = (
    Claim("both errors fall as kernels are added", errors_fall),
    Claim("l1 is slightly better with 5 kernels", l1_first),
    Claim("l2 is slightly better with 10 and 15 kernels", l2_next),
    Claim("from 20 kernels on, l2 is clearly better, by a growing margin", l2_grows),
)
FIGURE_3_CLAIMS = (
    Claim(
        "with 5 kernels all weights are positive; with 30 kernels l1 sets some of "
        "them to zero, l2 none",
        sparse_when_many,
    ),
)
FIGURE_5_CLAIMS = (
    Claim("l1 is better where most kernels are noise", l1_resists_noise),
    Claim("l2 is better where few kernels are noise", l2_without_noise),
    Claim(
        "l2 is better than uniform weights at every level of noise", l2_beats_uniform
    ),
)
TIME_CLAIMS = (
    Claim(
        "cutting planes take a few tens of iterations for l1, and fewer than 5 for l2",
        tens_and_five,
    ),
    Claim("so l1 takes many times as long as l2 (259 s and 16 s)", l1_is_slow),
)
