"""The claims of Chen et al. (2008) about their results, and their figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kernelweave.inspection._figure import color, marker
from kernelweave.papers.figures import subplots
from kernelweave.papers.results import Results, all_hold

ORG, SKFE = "SVM_org", "SKFE"
HSIC, UHSIC, JOINT, UJOINT = "HSIC", "uHSIC", "SVM_joint", "uSVM_joint"
#: Dimensions of Figure 1; there are 6 and 10 classes.
DIMENSIONS = dict.fromkeys(("Satimage", "USPS"), tuple(range(1, 16)))
CLASSES = {"Satimage": 6, "USPS": 10}
#: A relative gap below this counts as closed.
CLOSED = 0.01
#: "Generally" means in at least this share of the cases.
GENERALLY = 0.8
#: Values of the printed grids of lambda (or xi) and C.
LAMBDAS = (1e-4, 1e-2, 1.0, 1e2, 1e4)
PRICES = (3.0, 11.0, 100.0, 1000.0)


def dimension_row(name: str, components: int) -> str:
    """The name of a row of Figure 1."""
    return f"{name}, {components}"


def setting_row(lam: float, C: float) -> str:
    """The name of a row of the map of convergence."""
    return f"lambda = {lam:g}, C = {C:g}"


def better(
    results: Results, pairs: Sequence[Sequence[str]], ties: bool = False
) -> tuple[bool, str]:
    """Whether the first of each pair has the smaller mean error on every data set.

    With ``ties``, it may be larger by up to two standard errors.
    """
    verb = "not worse" if ties else "better"

    def compared(first: str, second: str) -> tuple[bool, str]:
        rows = results.some_rows
        gaps = [results.difference(row, first, second, "error") for row in rows]
        won = [g <= 2 * np.nan_to_num(e) if ties else g < 0 for g, e in gaps]
        mean = float(np.mean([gap for gap, _ in gaps]))
        return all(won), (
            f"{first} {verb} than {second} on {sum(won)} of {len(won)} sets, "
            f"{mean:+.2f} points on average"
        )

    return all_hold(compared(*pair) for pair in pairs)


def best(results: Results, column: str, other_than: str) -> tuple[bool, str]:
    """Whether a column has the smallest error on all data sets but one."""

    def winner(row: str) -> str:
        columns = results.experiment.columns
        return min(columns, key=lambda c: results.mean(row, c, "error"))

    found = {row: winner(row) for row in results.some_rows}
    holds = all(name == column for row, name in found.items() if row != other_than)
    return holds, ", ".join(f"{row}: {name}" for row, name in found.items())


def sums_beat_kernels(results: Results, rows: Sequence[str]) -> tuple[bool, str]:
    """Whether learned sums beat every single kernel on these data sets."""

    def against_best(row: str, family: str) -> tuple[bool, str]:
        error = {
            name: results.mean(row, f"{family}_{name}", "error")
            for name in ("ker1", "ker2", "ker3", "ker4", "mkl")
        }
        gap = error.pop("mkl") - min(error.values())
        return gap < 0, f"{row}, {family}: {gap:+.1f} against the best"

    return all_hold(against_best(r, family) for r in rows for family in ("HSIC", "SVM"))


def _times(results: Results, column: str) -> float:
    """Time relative to HSIC, as the median over data sets."""
    rows = results.some_rows
    return float(np.median([results.mean(r, column, "times HSIC") for r in rows]))


def same_time(results: Results) -> tuple[bool, str]:
    """Whether uHSIC takes between half and twice the time of HSIC."""
    ratio = _times(results, UHSIC)
    return 0.5 <= ratio <= 2, f"uHSIC takes {ratio:.2f} times as long (median)"


def skfe_is_slower(results: Results) -> tuple[bool, str]:
    """Whether SKFE takes longer than HSIC."""
    ratio = _times(results, SKFE)
    return ratio > 1, f"{ratio:.1f} times as long (median)"


def joint_is_slowest(results: Results) -> tuple[bool, str]:
    """Whether the joint methods take longer than all others."""
    times = {name: _times(results, name) for name in (UHSIC, SKFE, JOINT, UJOINT)}
    found = ", ".join(f"{name} {ratio:.1f}" for name, ratio in times.items())
    slowest = min(times[JOINT], times[UJOINT]) > max(times[UHSIC], times[SKFE])
    return slowest, f"times HSIC, median: {found}"


def _errors(results: Results, name: str, column: str) -> list[float]:
    rows = [dimension_row(name, size) for size in DIMENSIONS[name]]
    return [results.mean(row, column, "error") for row in rows]


def _over_dimensions(results: Results) -> Iterator[tuple[str, str, list[float]]]:
    """Data set, column, and the errors over the dimensions."""
    for name in DIMENSIONS:
        for column in results.experiment.columns:
            yield name, column, _errors(results, name, column)


def errors_fall(results: Results) -> tuple[bool, str]:
    """Whether errors in k - 1 dimensions are below those in one dimension."""

    def fall(name: str, column: str, errors: list[float]) -> tuple[bool, str]:
        last = errors[DIMENSIONS[name].index(CLASSES[name] - 1)]
        return last < errors[0], f"{name}, {column}: {errors[0]:.0f} to {last:.0f}"

    return all_hold(fall(*entry) for entry in _over_dimensions(results))


def smallest_near_rank(results: Results) -> tuple[bool, str]:
    """Whether the smallest error is generally at k - 2 to k dimensions."""

    def near(name: str, errors: list[float]) -> tuple[bool, int]:
        k, at = CLASSES[name], DIMENSIONS[name][int(np.argmin(errors))]
        return k - 2 <= at <= k, at

    found = {f"{n}, {c}": near(n, e) for n, c, e in _over_dimensions(results)}
    hits = [is_near for is_near, _ in found.values()]
    text = f"{sum(hits)} of {len(hits)} curves; smallest at "
    text += "; ".join(f"{name}: {at}" for name, (_, at) in found.items())
    return bool(np.mean(hits) >= GENERALLY), text


def _curves(results: Results, measure: str) -> Iterator[tuple[str, np.ndarray]]:
    """Each row and column as text, with the values of all splits."""
    for row in results.some_rows:
        for column in results.experiment.columns:
            yield f"{row}, {column}", results.values(row, column, measure)


def bounds_meet(results: Results) -> tuple[bool, str]:
    """Whether the relative gap after the last round is small in every split."""
    return all_hold(
        (
            (bool(np.max(gaps) < CLOSED), f"{name}: {np.mean(gaps):.2g}")
            for name, gaps in _curves(results, "gap")
        ),
        "relative gap: ",
    )


def bounds_meet_everywhere(results: Results) -> tuple[bool, str]:
    """Whether the gap is closed in every split at every setting, and where it is."""
    met, texts = [], []
    for column in results.experiment.columns:
        closed = [
            row
            for row in results.some_rows
            if np.max(results.values(row, column, "gap")) < CLOSED
        ]
        met.append(len(closed) == len(results.rows))
        where = f" ({'; '.join(closed)})" if closed else ""
        texts.append(f"{column} at {len(closed)} of {len(results.rows)}{where}")
    return all(met), "bounds meet: " + ", ".join(texts)


def rounds_help(results: Results) -> tuple[bool, str]:
    """Whether the fourth round has a smaller error than the first."""
    return all_hold(
        (
            bool(np.mean(fourth) < np.mean(first)),
            f"{name}: {np.mean(first):.1f} to {np.mean(fourth):.1f}",
        )
        for (name, first), (_, fourth) in zip(
            _curves(results, "error 1"), _curves(results, "error 4"), strict=True
        )
    )


def rounds_settle(results: Results) -> tuple[bool, str]:
    """Whether the error changes by less than one point after the fourth round."""

    def settled(name: str, errors: np.ndarray) -> tuple[bool, str]:
        spread = float(np.mean(np.ptp(errors[:, 3:], axis=1)))
        return spread < 1, f"{name}: {spread:.1f} points"

    found = (settled(*curve) for curve in _curves(results, "errors"))
    return all_hold(found, "largest minus smallest error from then on: ")


def draw_dimensions(results: Results) -> Any:
    """Figure 1: error against dimension, one panel per data set."""
    figure, panels = subplots(2)
    for panel, (name, sizes) in zip(panels, DIMENSIONS.items(), strict=True):
        if dimension_row(name, sizes[0]) not in results.rows:
            continue
        for j, column in enumerate(results.experiment.columns):
            errors = _errors(results, name, column)
            panel.plot(sizes, errors, color=color(j), marker=marker(j), label=column)
        panel.set_title(name)
        panel.set_xlabel("dimension of the subspace")
        panel.set_ylabel("error in %")
    panels[0].legend(frameon=False, fontsize="small")
    return figure


def _panels(results: Results) -> tuple[Any, list[tuple[Any, str, str]]]:
    """A panel per row and column, with its row and column."""
    rows, columns = results.rows, list(results.experiment.columns)
    figure, panels = subplots(len(columns), height=2.8, lines=len(rows))
    cells = [(row, column) for row in rows for column in columns]
    for panel, cell in zip(panels, cells, strict=True):
        panel.set(title=", ".join(cell), xlabel="round")
    return figure, [(p, *cell) for p, cell in zip(panels, cells, strict=True)]


def draw_bounds(results: Results) -> Any:
    """Figure 2: both bounds over the rounds of the first split."""
    figure, panels = _panels(results)
    for panel, row, column in panels:
        for k, bound in enumerate(("upper", "lower")):
            values = results.values(row, column, bound)[0]
            at = np.arange(1, len(values) + 1)
            panel.plot(
                at, values, color=color(k), marker=marker(k), label=f"{bound} bound"
            )
        panel.axhline(1.0, color="0.6", lw=0.8)
        panel.set_yscale("symlog", linthresh=1.0)
        low, high = panel.get_ylim()
        panel.set_ylim(min(low, 0.0), max(high, 2.0))
        panel.set_ylabel("multiple of the value")
    panels[0][0].legend(frameon=False)
    return figure


def draw_convergence(results: Results) -> Any:
    """The gap after ten rounds over lambda and C, one panel per method."""
    columns = list(results.experiment.columns)
    figure, panels = subplots(len(columns), height=3.2)
    for panel, column in zip(panels, columns, strict=True):
        gaps = np.array(
            [
                [results.mean(setting_row(lam, C), column, "gap") for C in PRICES]
                for lam in LAMBDAS
            ]
        )
        shade = np.log10(np.clip(gaps, 1e-4, 1e2))
        panel.imshow(shade, vmin=-4, vmax=2, cmap="viridis", aspect="auto")
        for (i, j), gap in np.ndenumerate(gaps):
            text = f"{gap:.1g}" if gap < 10 else f"{gap:.0f}"
            light = "black" if shade[i, j] > 0 else "white"
            panel.text(j, i, text, ha="center", va="center", color=light)
        panel.set_xticks(range(len(PRICES)), [f"{C:g}" for C in PRICES])
        panel.set_yticks(range(len(LAMBDAS)), [f"{lam:g}" for lam in LAMBDAS])
        panel.set(title=f"{column}, Wine", xlabel="C", ylabel="lambda")
    return figure


def draw_rounds(results: Results) -> Any:
    """Figure 3: mean error over the rounds."""
    figure, panels = _panels(results)
    columns = list(results.experiment.columns)
    for panel, row, column in panels:
        errors = np.mean(results.values(row, column, "errors"), axis=0)
        at, j = np.arange(1, len(errors) + 1), columns.index(column)
        panel.plot(at, errors, color=color(j), marker=marker(j))
        panel.set_ylabel("error in %")
    return figure
