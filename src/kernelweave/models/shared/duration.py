"""How long a fit to kernels between all rows will take, told before it begins.

The work is counted from the sizes of the problem, and divided by rates that are
measured on this machine. Counts of factorisations and passes are those of typical fits
(``benchmarks/durations.py`` compares predictions with processor time): a prediction
within a factor of three is all that is promised.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from kernelweave.exceptions import LongFitWarning
from kernelweave.learn.search import RACED_AT_LEAST, RACED_FROM, RACED_SHARE

#: Fits that take longer, in seconds, are announced.
LONG = 60.0


@dataclass(frozen=True)
class FitSize:
    """What determines the time of a fit.

    Attributes
    ----------
    n_rows, n_kernels : int
        n and p.
    n_columns : int
        Columns of all views together, from which kernels are computed.
    n_targets : int
        Columns k of the target.
    stored : bool
        Whether kernels are kept as matrices, or recomputed on every pass.
    n_norms : int
        Norms whose weights are learned; 0 for equal weights.
    n_judged : int
        Norms, that of equal weights included, whose best alpha is sought.
    by_paths : bool
        Whether alphas are sought by eigendecompositions, as for a score or for one
        alpha per output.
    n_folds : int
        Fits to some of the rows for ``cv_score_``.
    """

    n_rows: int
    n_kernels: int
    n_columns: int = 0
    n_targets: int = 1
    stored: bool = True
    n_norms: int = 1
    n_judged: int = 0
    by_paths: bool = False
    n_folds: int = 0


class Rates(NamedTuple):
    """What this machine does in a second."""

    flops: float  # of matrix products
    entries: float  # of kernels: an exponential, and its addition to a sum


#: A machine so slow that fits it would end within ``LONG`` are short everywhere.
SLOW = Rates(5e9, 1e8)

#: Factorisations for the weights of the first norm, and of each further one.
FIRST_STEPS, FURTHER_STEPS = 8.0, 3.5
#: Inverses for the best alpha of a norm.
INVERSES = 2.75
#: Operations of such an inverse, and of a path over all alphas, both per n^3.
INVERSE_FLOPS, PATH_FLOPS = 1.25, 17.0
#: Searches in folds start from what was found on all rows.
FOLD_SHARE = 0.65
#: Factorisations reach this share of the rate of products; thin products this one.
FACTOR_SHARE, THIN_SHARE = 0.6, 0.25
#: Time for an entry of a stored kernel and of one that is recomputed, relative to that
#: for an exponential. Centring takes further passes over stored kernels.
READ, RECOMPUTED, CENTRING_PASSES = 0.75, 2.4, 3.0

FACTORING, JUDGING, PASSING = "factorisations", "held-out errors", "passes over kernels"


def seconds_of(size: FitSize, rates: Rates) -> dict[str, float]:
    """Seconds that a fit takes, by what they are spent on."""
    whole = _search(size, rates)
    whole[PASSING] += _preparation(size, rates)
    if size.n_folds:
        rows = int(size.n_rows * (1.0 - 1.0 / size.n_folds))
        fold = _search(replace(size, n_rows=rows), rates)
        for cause, seconds in fold.items():
            whole[cause] += size.n_folds * FOLD_SHARE * seconds
        if size.stored:  # kernels are copied
            whole[PASSING] += size.n_folds * 2.0 * _pass(size, rates)
    return whole


def _search(size: FitSize, rates: Rates) -> dict[str, float]:
    """Seconds for weights and alpha, once the kernels are there.

    Of many rows a sample rules out norms, as a rule all but one.
    """
    if size.n_norms > 1 and size.n_rows >= RACED_FROM:
        rows = max(int(RACED_SHARE * size.n_rows), RACED_AT_LEAST)
        found = _search(replace(size, n_norms=1, n_judged=1), rates)
        for cause, seconds in _solve(replace(size, n_rows=rows), rates).items():
            found[cause] += seconds
        return found
    return _solve(size, rates)


def _solve(size: FitSize, rates: Rates) -> dict[str, float]:
    """Seconds for weights and alpha, if every norm is tried on all rows."""
    cube = float(size.n_rows) ** 3 / (FACTOR_SHARE * rates.flops)
    steps = FIRST_STEPS + FURTHER_STEPS * (size.n_norms - 1) if size.n_norms else 0.0
    each = PATH_FLOPS if size.by_paths else INVERSES * INVERSE_FLOPS
    combined = size.n_judged or 1
    return {
        FACTORING: steps * cube / 3.0,
        JUDGING: size.n_judged * each * cube,
        PASSING: (2.0 * steps + combined) * _pass(size, rates),
    }


def _pass(size: FitSize, rates: Rates) -> float:
    """Seconds for a sum of all kernels, or for the product of each with the targets."""
    n, p = float(size.n_rows), size.n_kernels
    products = n**2 * p * size.n_targets / (THIN_SHARE * rates.flops)
    if size.stored:
        return products + READ * n**2 * p / rates.entries
    return products + _computed(size, rates)


def _computed(size: FitSize, rates: Rates) -> float:
    """Seconds to compute all kernels once, each pair of rows once."""
    pairs = float(size.n_rows) ** 2 / 2.0
    exponentials = RECOMPUTED * pairs * size.n_kernels / rates.entries
    return exponentials + 2.0 * pairs * size.n_columns / rates.flops


def _preparation(size: FitSize, rates: Rates) -> float:
    """Seconds until kernels are centred and scaled."""
    passes = CENTRING_PASSES * _pass(size, rates) if size.stored else 0.0
    return passes + _computed(size, rates)


#: Rows and columns of the matrices by which rates are measured, and repetitions.
PRODUCT_ROWS, TILE_ROWS, REPEATS = 1024, 256, 4


def measure_rates(
    dtype: np.dtype, clock: Callable[[], float] = time.perf_counter
) -> Rates:
    """The rates of this machine at this moment, in a fifth of a second or so."""
    matrix = np.full((PRODUCT_ROWS, PRODUCT_ROWS), 0.5, dtype=dtype)
    tile, total = matrix[:TILE_ROWS, :TILE_ROWS].copy(), np.zeros((), dtype=dtype)

    def exponential() -> None:
        nonlocal total
        for _ in range(REPEATS):
            part = np.exp(-tile)
            part *= dtype.type(0.5)
            total = total + part

    product = _quickest(lambda: matrix @ matrix, clock)
    entries = REPEATS * TILE_ROWS**2 / _quickest(exponential, clock)
    return Rates(2.0 * PRODUCT_ROWS**3 / product, entries)


def _quickest(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """Seconds of the quickest of several runs: the first one warms up."""
    found = []
    for _ in range(REPEATS):
        start = clock()
        work()
        found.append(clock() - start)
    return max(min(found), 1e-9)


def warn_if_long(
    size: FitSize, owner: str, dtype: np.dtype, threads: int, advice: list[str]
) -> str | None:
    """Warn of a fit that will take longer than a minute, and say so for a log.

    Nothing is measured unless a slow machine would take that long.

    Parameters
    ----------
    size : FitSize
        The fit.
    owner : str
        Name of the estimator.
    dtype : numpy.dtype
        Precision of the kernels.
    threads : int
        Threads that compute kernels on the fly; products have as many already.
    advice : list of str
        What would be faster.

    Returns
    -------
    line : str or None
        The prediction; None if the fit is short.
    """
    if sum(seconds_of(size, SLOW).values()) <= LONG:
        return None
    rates = measure_rates(dtype)
    if not size.stored:
        rates = rates._replace(entries=rates.entries * threads)
    parts = seconds_of(size, rates)
    total = sum(parts.values())
    if total <= LONG:
        return None
    cause = max(parts, key=lambda name: parts[name])
    held = "stored" if size.stored else "computed again in every pass"
    text = (
        f"{owner}: this fit will take about {in_words(total)}, most of it for {cause}: "
        f"{size.n_kernels:,} kernels between {size.n_rows:,} rows, {held}"
    )
    if size.n_folds:
        without = sum(seconds_of(replace(size, n_folds=0), rates).values())
        advice = [*advice, f"cv=None (about {in_words(without)})"]
    faster = f". Faster: {', '.join(advice)}" if advice else ""
    warnings.warn(f"{text}{faster}", LongFitWarning, stacklevel=3)
    return f"about {in_words(total)} to go, most of it for {cause}"


def in_words(seconds: float) -> str:
    """A duration in its largest sensible unit."""
    for unit, size in (("day", 86_400.0), ("hour", 3600.0), ("minute", 60.0)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.0f} {unit}s"
    return f"{max(seconds, 2.0):.0f} seconds"
