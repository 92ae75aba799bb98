"""Ye, Chen, Ji (2007): learning kernels and regularisation in discriminant analysis.

Protocol (Section 5): 30 random partitions, 4:1 for two classes and 3:2 for more; ten
Gaussian kernels ``exp(-|x - z|^2 / sigma^2)``, sigma logarithmically spaced in
[0.1, 100]; lambda = 1e-8 and C = 1 unless they are learned.

What the paper leaves open, and our reading, with accuracies of SDP_theta,lambda
(``docs/papers/ye2007.md`` has all of them):

* Scaling of the columns: each to [0, 1], except for the pixels of USPS and the
  amplitudes of Waveform, which are not scaled. Heart and Wine need scaling (83.5 and
  98.5 with, 67 and 74 without; the paper has 81.5 and 98.7). Sonar is closer to the
  paper with scaling (87.3, against 86.1 without; no reading reaches the paper's 90.2),
  Waveform without (83.8, against 82.1 with; the paper has 83.1).
* "100 samples of each class" of USPS: the *first* 100 of the training set. For six
  classes these give 97.8, a random choice gives 95.2, and the paper has 97.9.
* The classifier after projection: Gaussians of equal variance in the projected space;
  nearest centroids and nearest neighbours differ by at most 0.2 points.
* C = 1 as in Lanckriet et al., where the learned sum has the total trace of all ten
  kernels.
* Double cross-validation: for RKDA, over the ten widths and all lambda by leaving one
  row out, in closed form; for SVM, over the ten widths and five values of C in five
  folds.
"""

from __future__ import annotations

import functools
import time
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

from kernelweave.datasets import fetch_table, load_wine
from kernelweave.kernels import RBF
from kernelweave.models import KernelFDA, MultipleKernelFDA, MultipleKernelSVC
from kernelweave.papers.experiment import (
    Claim,
    Columns,
    Experiment,
    Measure,
    Paper,
    Published,
    Split,
)
from kernelweave.papers.figures import bars
from kernelweave.papers.results import Results

__all__ = ["PAPER"]

SIGMAS = np.logspace(-1, 2, 10)
LAMBDA = 1e-8
PER_CLASS = 100
#: The paper's C = 1 is for a sum with the total trace of all ten kernels, as in
#: Lanckriet et al.; the sum in this library has the trace of one kernel.
PRICE = float(len(SIGMAS))
FOLDS = 5
C_GRID = (0.1, 1.0, 10.0, 100.0, 1000.0)
#: Accuracies closer than this, in percentage points, are called comparable.
COMPARABLE = 1.0

ACCURACY = Measure("accuracy", digits=2)
SECONDS = Measure("seconds", digits=3, better="lower")


# ------------------------------------------------------------------- data, splits


@functools.cache
def table(
    name: str, classes: int | None = None, scaled: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """A table with columns in [0, 1]; if given, the first rows of some ``classes``."""
    bunch = load_wine(as_frame=False) if name == "wine" else None
    bunch = bunch or fetch_table(name, as_frame=False)
    X, y = bunch.data, bunch.target
    if classes is not None:
        first = [np.flatnonzero(y == c)[:PER_CLASS] for c in range(classes)]
        X, y = X[np.concatenate(first)], y[np.concatenate(first)]
    if not scaled:
        return X, y
    low, span = X.min(axis=0), np.ptp(X, axis=0)
    return (X - low) / np.where(span > 0, span, 1.0), y


def four_to_one(data: tuple[np.ndarray, np.ndarray], rng: np.random.Generator) -> Split:
    """A partition for two classes."""
    return Split.draw(*data, share=0.8, rng=rng)


def three_to_two(
    data: tuple[np.ndarray, np.ndarray], rng: np.random.Generator
) -> Split:
    """A partition for more than two classes."""
    return Split.draw(*data, share=0.6, rng=rng)


# ------------------------------------------------------------------------ methods


def gaussians(split: Split) -> list[tuple[str, list[RBF], slice]]:
    """The ten kernels on all columns."""
    kernels = [RBF(gamma=float(1.0 / sigma**2)) for sigma in SIGMAS]
    return [("all", kernels, slice(0, split.train.shape[1]))]


def measured(model: Any, split: Split) -> dict[str, float]:
    """Fit; return the test accuracy in percent and the CPU time in seconds."""
    started = time.process_time()
    model.fit(split.train, split.y_train)
    seconds = time.process_time() - started
    accuracy = 100.0 * model.score(split.test, split.y_test)
    return {"accuracy": accuracy, "seconds": seconds}


def fisher(
    split: Split, learn: bool = True, scatter: str = "total", formulation: str = "exact"
) -> dict[str, float]:
    """SDP_theta (16), (34), (37); with lambda learned (40), (41); and SDP_Kim (9)."""
    # kernels have trace m in this library, and trace one in the paper
    alpha = "learn" if learn else LAMBDA * len(split.y_train)
    model = MultipleKernelFDA(
        gaussians(split), norm=1, alpha=alpha, scatter=scatter, formulation=formulation
    )
    return measured(model, split)


def margin(split: Split, loss: str = "l1", C: float | str = PRICE) -> dict[str, float]:
    """SM1, SM2 and SM2_C: support vector machines with learned kernels."""
    return measured(MultipleKernelSVC(gaussians(split), margin=loss, C=C), split)


def rkda_cv(split: Split) -> dict[str, float]:
    """Discriminant analysis with one kernel; sigma and lambda by cross-validation.

    Every row is a fold: leaving one out has a closed form.
    """
    started = time.process_time()
    name, kernels, columns = gaussians(split)[0]
    models = [KernelFDA([(name, kernel, columns)]) for kernel in kernels]
    fitted = [model.fit(split.train, split.y_train) for model in models]
    best = min(fitted, key=lambda model: model.loo_error_)
    seconds = time.process_time() - started
    accuracy = 100.0 * best.score(split.test, split.y_test)
    return {"accuracy": accuracy, "seconds": seconds}


def svm_cv(split: Split) -> dict[str, float]:
    """A support vector machine; sigma and C by cross-validation."""
    started = time.process_time()
    searches = []
    for gamma in 1.0 / SIGMAS**2:
        machine = SVC(kernel="precomputed")
        search = GridSearchCV(machine, {"C": C_GRID}, cv=FOLDS)
        search.fit(rbf_kernel(split.train, gamma=gamma), split.y_train)
        searches.append((search.best_score_, gamma, search))
    _, gamma, best = max(searches, key=lambda entry: entry[0])
    seconds = time.process_time() - started
    cross = rbf_kernel(split.test, split.train, gamma=gamma)
    accuracy = 100.0 * best.score(cross, split.y_test)
    return {"accuracy": accuracy, "seconds": seconds}


THETA, LEARNED = "SDP_theta", "SDP_theta,lambda"
KIM, RKDA, SVM = "SDP_Kim", "RKDA_CV", "SVM_CV"
BINARY: Columns = {
    THETA: functools.partial(fisher, learn=False),
    LEARNED: fisher,
    KIM: functools.partial(fisher, learn=False, scatter="within"),
    "SM1": margin,
    "SM2": functools.partial(margin, loss="l2"),
    "SM2_C": functools.partial(margin, loss="l2", C="learn"),
    RKDA: rkda_cv,
    SVM: svm_cv,
}
MULTICLASS: Columns = {
    THETA: functools.partial(fisher, learn=False, formulation="block"),
    LEARNED: functools.partial(fisher, formulation="block"),
    RKDA: rkda_cv,
    SVM: svm_cv,
}
FORMS: Columns = {
    f"{THETA} exact": functools.partial(fisher, learn=False),
    f"{THETA} approx": functools.partial(fisher, learn=False, formulation="block"),
    f"{LEARNED} exact": fisher,
    f"{LEARNED} approx": functools.partial(fisher, formulation="block"),
}


# --------------------------------------------------- published results and claims


def accuracies(
    columns: Columns, rows: dict[str, tuple[float | None, ...]]
) -> dict[tuple[str, str], dict[str, Published]]:
    """The cells of a printed table; None stands for a dash."""
    return {
        (row, column): {"accuracy": Published(value)}
        for row, values in rows.items()
        for column, value in zip(columns, values, strict=True)
        if value is not None
    }


TABLE_1: dict[str, tuple[float | None, ...]] = {
    "Sonar": (85.60, 90.16, 88.46, 89.75, 89.59, 89.84, 88.86, 89.27),
    "Heart": (76.85, 81.54, 81.98, 82.59, 82.71, 82.53, 76.54, 82.22),
    "Cancer": (96.05, 96.00, None, 97.08, 97.15, 97.01, 95.30, 96.62),
    "Ionosphere": (89.90, 95.10, 89.14, 95.28, 94.81, 95.19, 93.62, 93.52),
}
TABLE_2: dict[str, tuple[float | None, ...]] = {
    "Wine (3)": (96.97, 98.66, 97.69, 98.30),
    "USPS (3)": (94.41, 99.41, 99.13, 99.33),
    "USPS (6)": (87.14, 97.93, 98.08, 97.62),
    "USPS (8)": (78.35, 96.93, 96.03, 95.96),
    "Waveform (3)": (81.95, 83.08, 83.05, 83.41),
}


def ahead(
    results: Results, others: tuple[str, ...], rows: tuple[str, ...]
) -> tuple[bool, str]:
    """Whether learning lambda beats the others in every row by two standard errors."""
    gaps = {
        f"{row} over {other}": results.difference(row, LEARNED, other, "accuracy")
        for row in rows
        for other in others
    }
    if not any(gap or error for gap, error in gaps.values()):
        return False, "no difference on any split"
    holds = all(gap > 2 * error for gap, error in gaps.values())
    # adding zero avoids printing -0.00
    texts = [f"{k} {round(g, 2) + 0.0:+.2f} ± {e:.2f}" for k, (g, e) in gaps.items()]
    return holds, "; ".join(texts)


def comparable(
    results: Results, others: tuple[str, ...], first: str = LEARNED
) -> tuple[bool, str]:
    """Whether ``first`` is within one point, or two standard errors, of the others."""
    worst, where, holds = 0.0, "", True
    for row in results.experiment.rows:
        for other in others:
            gap, error = results.difference(row, first, other, "accuracy")
            holds &= bool(abs(gap) <= max(COMPARABLE, 2 * error))
            if abs(gap) >= abs(worst):
                worst, where = gap, f"{row}, against {other}"
    return holds, f"largest difference {worst:+.2f} ({where})"


def block_is_fast(results: Results) -> tuple[bool, str]:
    """Whether the approximate form takes less than half the time of the exact one."""
    ratios = {
        row: results.mean(row, f"{LEARNED} exact", "seconds")
        / results.mean(row, f"{LEARNED} approx", "seconds")
        for row in results.experiment.rows
    }
    found = ", ".join(f"{row} {ratio:.2f}" for row, ratio in ratios.items())
    return min(ratios.values()) > 2, (
        f"time of the exact form over that of the approximate: {found}"
    )


def learning_is_fast(results: Results) -> tuple[bool, str]:
    """Whether learning lambda saves time in the approximate form."""
    ratios = {
        row: results.mean(row, f"{THETA} approx", "seconds")
        / results.mean(row, f"{LEARNED} approx", "seconds")
        for row in results.experiment.rows
    }
    found = ", ".join(f"{row} {ratio:.2f}" for row, ratio in ratios.items())
    return min(ratios.values()) > 1.1, (
        f"time at fixed lambda over that at learned lambda: {found}"
    )


def draw_forms(results: Results) -> Any:
    """Figure 1: accuracy and time of the exact and approximate forms."""
    return bars(results, ("accuracy", "seconds"), ("accuracy in %", "CPU seconds"))


PAPER = Paper(
    key="ye2007",
    reference="Ye, Chen, Ji: Discriminant kernel and regularization parameter learning "
    "via semidefinite programming. ICML 2007.",
    experiments=(
        Experiment(
            key="table1",
            title="Table 1: two classes, accuracy in percent",
            rows={
                "Sonar": functools.partial(table, "sonar"),
                "Heart": functools.partial(table, "heart"),
                "Cancer": functools.partial(table, "breast_cancer_wisconsin"),
                "Ionosphere": functools.partial(table, "ionosphere"),
            },
            split=four_to_one,
            columns=BINARY,
            measures=(ACCURACY,),
            splits=30,
            quick=3,
            published=accuracies(BINARY, TABLE_1),
            claims=(
                Claim(
                    "learning lambda is better than lambda = 1e-8, and than the form "
                    "of Kim et al., on Sonar, Heart and Ionosphere",
                    functools.partial(
                        ahead,
                        others=(THETA, KIM),
                        rows=("Sonar", "Heart", "Ionosphere"),
                    ),
                ),
                Claim(
                    "it is better than RKDA with cross-validation on all four sets",
                    functools.partial(ahead, others=(RKDA,), rows=tuple(TABLE_1)),
                ),
                Claim(
                    "it is comparable to SM1, SM2, SM2_C and SVM_CV",
                    functools.partial(comparable, others=("SM1", "SM2", "SM2_C", SVM)),
                ),
            ),
        ),
        Experiment(
            key="table2",
            version=2,
            title="Table 2: several classes, accuracy in percent",
            rows={
                "Wine (3)": functools.partial(table, "wine"),
                "USPS (3)": functools.partial(table, "usps", 3, scaled=False),
                "USPS (6)": functools.partial(table, "usps", 6, scaled=False),
                "USPS (8)": functools.partial(table, "usps", 8, scaled=False),
                "Waveform (3)": functools.partial(table, "waveform", 3, scaled=False),
            },
            split=three_to_two,
            columns=MULTICLASS,
            measures=(ACCURACY,),
            splits=30,
            quick=2,
            published=accuracies(MULTICLASS, TABLE_2),
            claims=(
                Claim(
                    "learning lambda is better than lambda = 1e-8 on all five sets",
                    functools.partial(ahead, others=(THETA,), rows=tuple(TABLE_2)),
                ),
                Claim(
                    "it is comparable to RKDA_CV and SVM_CV",
                    functools.partial(comparable, others=(RKDA, SVM)),
                ),
            ),
        ),
        Experiment(
            key="figure1",
            version=2,
            title="Figure 1: the exact form (34) and the approximate form (37)",
            rows={
                "Waveform (3)": functools.partial(table, "waveform", 3, scaled=False),
                "Wine (3)": functools.partial(table, "wine"),
                "USPS (3)": functools.partial(table, "usps", 3, scaled=False),
            },
            split=three_to_two,
            columns=FORMS,
            measures=(ACCURACY, SECONDS),
            splits=30,
            quick=5,
            claims=(
                Claim(
                    "both forms are comparable in accuracy",
                    functools.partial(
                        comparable,
                        first=f"{LEARNED} exact",
                        others=(f"{LEARNED} approx",),
                    ),
                ),
                Claim("the approximate form is much faster", block_is_fast),
                Claim(
                    "with lambda learned the approximate form is faster still",
                    learning_is_fast,
                ),
            ),
            draw=draw_forms,
        ),
    ),
)
