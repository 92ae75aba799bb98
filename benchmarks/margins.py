"""Learning the kernel of a support vector machine, against one machine and others."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Section, Timing, alternate
from peer_methods import (
    SVM,
    Fitted,
    Task,
    easy_komd,
    easy_svc,
    estimator,
    mklpy,
    rmkl,
)
from problems import Split, cancer, digits_halves
from sklearn.svm import SVC

from kernelweave import Simplex, solve
from kernelweave.criteria import Margin
from kernelweave.kernels import DenseBank
from kernelweave.weights import Uniform

TOL = 1e-5
#: CPU seconds allowed for another package, and for a cone solver.
PEER_LIMIT_S, CONE_LIMIT_S = 60.0, 150.0
MARGINS: list[tuple[str, float]] = [("l1", 1.0), ("l1", 10.0), ("l2", 1.0)]
OURS = "kernelweave MultipleKernelSVC"
BARE = "kernelweave solve"


def run(quick: bool = False) -> Section:
    """Three comparisons in one table."""
    section = Section(
        "Learning the kernel of a support vector machine",
        "Digits below 5 against the rest, p = 10 Gaussians (widths 0.1 to 100 on "
        "standardised pixels), relative gap 1e-5. One machine: `solve` with equal "
        "weights, on the mean kernel, by libsvm and a polish of its solution. MKLpy "
        "and the estimator start from precomputed kernels and end with a classifier "
        "(C = 10; RMKL and GRAM take 100 of their own steps). The estimator also "
        "copies the kernels and checks that they are finite, symmetric and positive "
        "semidefinite, which costs one factorisation per kernel; `solve` only "
        "centres and learns. SOCP: on breast cancer, the quadratically constrained "
        'program through cvxpy and Clarabel (`method="qcqp"`), compared with '
        "`solve`.",
        ["comparison", "n", "method", "CPU s", "wall s", "ratio", "test accuracy %"],
    )
    n = 300 if quick else 1000
    split = digits_halves(n, 10)
    _one_machine(section, split)
    _peers(section, split)
    _cone(section, cancer(60 if quick else 240, 10))
    return section


def _one_machine(section: Section, split: Split) -> None:
    bank = DenseBank.from_kernels(split.train)
    mean = DenseBank(np.mean(bank.stack, axis=0)[None])
    signs = _signs(split)
    for margin, C in MARGINS:

        def learn(margin: Any = margin, C: float = C) -> Any:
            return solve(Margin(bank, signs, margin, C), Simplex(), tol=TOL)

        def fit(margin: Any = margin, C: float = C) -> Any:
            return solve(Margin(mean, signs, margin, C), Uniform(), tol=TOL)

        timings = alternate({"weights learned": learn, "one machine": fit})
        learned, one = timings["weights learned"], timings["one machine"]
        ratio, what = learned.cpu_s / one.cpu_s, f"{margin}, C = {C:g}"
        steps = f"weights learned, {learned.result.n_iter} steps"
        _row(section, what, len(signs), steps, learned, ratio)
        _row(section, what, len(signs), "one machine", one, ratio)
        section.check(
            f"learning the kernel, {margin} margin, C = {C:g}, n = {len(signs)}",
            f"{ratio:.1f} machines",
            "at most 6",
            ratio <= 6.0,
        )


def _peers(section: Section, split: Split) -> None:
    tasks = {OURS: estimator(SVM)(split), BARE: _bare(split)}
    for name, make in PEERS.items():
        tasks[name] = mklpy(make)(split)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # other packages warn about their own inputs
        timings = alternate(tasks, repeats=5, budget_s=4.0, limit_s=PEER_LIMIT_S)
    for name, timing in timings.items():
        accuracy = ""
        if timing.stopped_at is None:
            found = np.asarray(timing.result(split.test))
            accuracy = f"{100 * np.mean(found == split.y_test):.1f}"
        _row(section, "others", len(split.train[0]), name, timing, None, accuracy)
        if name.startswith("kernelweave"):
            continue
        easy = "EasyMKL" in name
        for own in (OURS, BARE):
            ratio = timings[own].cpu_s / timing.cpu_s
            section.check(
                f"{own} against {name}, n = {len(split.train[0])}",
                f"{ratio:.2g}x its time",
                "at most 2x" if easy else "less than 1x",
                ratio <= 2.0 if easy else ratio < 1.0,
            )


def _cone(section: Section, split: Split) -> None:
    bank = DenseBank.from_kernels(split.train)
    criterion = Margin(bank, _signs(split), "l1", 1.0)

    timings = alternate(
        {
            "solve": lambda: solve(criterion, Simplex(), tol=TOL),
            "SOCP": lambda: solve(criterion, Simplex(), method="qcqp", tol=TOL),
        },
        repeats=3,
        budget_s=20.0,
        limit_s=CONE_LIMIT_S,
    )
    ratio = timings["SOCP"].cpu_s / timings["solve"].cpu_s
    for name, timing in timings.items():
        _row(section, "cone program", bank.n_samples, name, timing, ratio)
    section.check(
        f"faster than the SOCP through cvxpy, n = {bank.n_samples}",
        f"{'> ' if timings['SOCP'].stopped_at else ''}{ratio:.0f}x",
        "100x",
        ratio >= 100.0,
    )


def _bare(split: Split) -> Task:
    """Centring, weights and functions, without the checks of the estimator."""

    def task() -> Fitted:
        bank = DenseBank.from_kernels(split.train)
        criterion = Margin(bank, _signs(split), "l1", 10.0)
        solution = solve(criterion, Simplex(), tol=TOL)
        intercept = criterion.intercept(solution.weights, solution.coef)
        return lambda test: _predict(split, test, solution, intercept)

    return task


def _predict(
    split: Split, test: np.ndarray, solution: Any, intercept: np.ndarray
) -> np.ndarray:
    """Class codes (m,); y'a = 0, so the columns of test kernels need no centring."""
    n = len(split.y_train)
    values, coef = intercept[0], solution.coef[:, 0]
    for w, K, new in zip(solution.weights, split.train, test, strict=True):
        scale = w * n / (np.trace(K) - n * K.mean())
        values = values + scale * (new - K.mean(axis=0)) @ coef
    return (values > 0).astype(int)


def _signs(split: Split) -> np.ndarray:
    return np.where(split.y_train == 1, 1.0, -1.0)[:, None]


def _row(
    section: Section,
    what: str,
    n: int,
    name: str,
    timing: Timing,
    ratio: float | None,
    accuracy: str = "",
) -> None:
    wall = "" if timing.stopped_at else timing.wall_s
    shown = "" if ratio is None else f"{ratio:.1f}"
    section.rows.append([what, n, name, timing.shown(), wall, shown, accuracy])


def _gram() -> Any:
    from MKLpy.algorithms import GRAM

    return GRAM(learner=SVC(C=10.0), max_iter=100)


PEERS: dict[str, Callable[[], Any]] = {
    "MKLpy EasyMKL": easy_komd,
    "MKLpy EasyMKL with SVC": easy_svc,
    "MKLpy RMKL": rmkl,
    "MKLpy GRAM": _gram,
}
