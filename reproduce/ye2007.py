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
* "100 samples of each class" of USPS and Waveform: drawn at random, separately for each
  split, as the paper says; and, in rows of their own, the *first* 100 of USPS. For six
  classes the first rows give 97.8, a random choice gives 95.2, and the paper has 97.9.
* The classifier after projection: Gaussians of equal variance in the projected space;
  nearest centroids and nearest neighbours differ by at most 0.2 points.
* C = 1 as in Lanckriet et al., where the learned sum has the total trace of all ten
  kernels.
* Double cross-validation: for RKDA, over the ten widths and all lambda by leave-one-out
  in closed form; for SVM, over the ten widths and five values of C in five folds.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from sklearn.model_selection import GridSearchCV
from sklearn.preprocessing import minmax_scale
from sklearn.svm import SVC

from kernelweave.criteria import (
    BlockFisher,
    WithinFisher,
    binary_target,
    class_target,
)
from kernelweave.kernels import RBF, DenseBank
from kernelweave.models import KernelFDA, MultipleKernelFDA, MultipleKernelSVC
from kernelweave.protocols import Criterion
from kernelweave.solvers import solve
from kernelweave.weights import Simplex
from reproduce.experiment import (
    Columns,
    Finding,
    Split,
    first_rows,
    fit_seconds,
    partition,
    read_paper,
    table_rows,
)
from reproduce.figures import bars
from reproduce.results import Results

SIGMAS = np.logspace(-1, 2, 10)
LAMBDA = 1e-8
#: The ten kernels, on all columns.
GAUSSIANS = [RBF(gamma=float(1.0 / sigma**2)) for sigma in SIGMAS]
VIEWS = [("all", GAUSSIANS, slice(None))]
MOST_PER_CLASS = 100
#: The paper's C = 1 is for a sum with the total trace of all ten kernels, as in
#: Lanckriet et al.; the sum in this library has the trace of one kernel.
PRICE = float(len(SIGMAS))
SVM_FOLDS = 5
SVM_C = (0.1, 1.0, 10.0, 100.0, 1000.0)
#: Relative gap of the weights.
TOL = 1e-6
#: Accuracies closer than this, in percentage points, are called comparable.
COMPARABLE = 1.0


@functools.cache
def table(
    name: str, classes: int | None = None, scaled: bool = True, first: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """A table with columns in [0, 1]; if given, only the first ``classes``.

    Of each class, the first 100 rows or all rows.
    """
    X, y = table_rows(name)
    if classes is not None:
        X, y = first_rows(X, y, MOST_PER_CLASS if first else len(y), classes)
    return minmax_scale(X) if scaled else X, y


def three_to_two(
    data: tuple[np.ndarray, np.ndarray], rng: np.random.Generator
) -> Split:
    """A split with three training rows for each two test rows.

    From larger tables, 100 rows of each class are drawn first.
    """
    if np.max(np.bincount(data[1])) > MOST_PER_CLASS:
        data = first_rows(*data, MOST_PER_CLASS, rng=rng)
    return partition(data, rng, share=0.6)


# ------------------------------------------------------------------------ methods


def measured(model: Any, split: Split, before: float = 0.0) -> dict[str, float]:
    """Fit; return the test accuracy in percent and the CPU time in seconds.

    The weights of a model may have been learned ``before``, in so many seconds.
    """
    seconds = before + fit_seconds(model, split.train, split.y_train)
    accuracy = 100.0 * model.score(split.test, split.y_test)
    return {"accuracy": accuracy, "seconds": seconds}


def fisher(split: Split, lam: Any = "learn") -> dict[str, float]:
    """SDP_theta (16), (34); with lambda learned (40), (41)."""
    # kernels have trace m in this library, and trace one in the paper
    alpha: Any = lam if isinstance(lam, str) else lam * len(split.y_train)
    model = MultipleKernelFDA(VIEWS, norm=1, alpha=alpha, cv=None)
    return measured(model, split)


def grams(X: np.ndarray) -> np.ndarray:
    """The ten kernels between rows (m, d), (10, m, m)."""
    return np.stack([kernel(X) for kernel in GAUSSIANS])


def block_problem(X: np.ndarray, y: np.ndarray, lam: Any = "learn") -> BlockFisher:
    """The problem (37), and with lambda learned."""
    codes = np.unique(y, return_inverse=True)[1]
    target = class_target(codes, int(np.max(codes)) + 1)
    alpha: Any = lam if isinstance(lam, str) else lam * len(y)
    return BlockFisher(DenseBank.from_kernels(grams(X)), target, alpha)


def kim_problem(X: np.ndarray, y: np.ndarray) -> WithinFisher:
    """The problem (9) over (10): sums of the kernels as they are, but centred."""
    kernels = grams(X)
    kernels -= kernels.mean(axis=1, keepdims=True)
    kernels -= kernels.mean(axis=2, keepdims=True)
    codes = np.unique(y, return_inverse=True)[1]
    return WithinFisher(DenseBank(kernels), binary_target(codes), LAMBDA, codes)


def best_weights(problem: Criterion) -> np.ndarray:
    """The best convex weights, certified; that of the identity first if it has one."""
    return solve(problem, Simplex(), tol=TOL).weights


def block(split: Split, lam: Any = "learn") -> dict[str, float]:
    """SDP_theta in the approximate form (37), and with lambda learned."""
    problem = block_problem(split.train, split.y_train, lam)
    started = time.process_time()
    alpha, weights = problem.split(best_weights(problem))
    seconds = time.process_time() - started
    model = KernelFDA(VIEWS, alpha=alpha, kernel_weights=weights, cv=None)
    return measured(model, split, seconds)


def kim(split: Split) -> dict[str, float]:
    """SDP_Kim (9)."""
    problem = kim_problem(split.train, split.y_train)
    started = time.process_time()
    weights = best_weights(problem)
    seconds = time.process_time() - started
    # lambda is added to class covariances there, and to a sum over all rows here
    alpha = LAMBDA * len(split.y_train) / 2
    model = KernelFDA(VIEWS, alpha=alpha, kernel_weights=weights, scale=None, cv=None)
    return measured(model, split, seconds)


def margin(split: Split, C: Any = PRICE, **setting: Any) -> dict[str, float]:
    """SM1, SM2 and SM2_C: support vector machines with learned kernels."""
    return measured(MultipleKernelSVC(VIEWS, C=C, **setting), split)


def rkda_cv(split: Split) -> dict[str, float]:
    """Discriminant analysis with one kernel; sigma and lambda by cross-validation.

    Every row is a fold: leave-one-out has a closed form.
    """
    models = [KernelFDA([("all", k, slice(None))], cv=None) for k in GAUSSIANS]
    fitted = [model.fit(split.train, split.y_train) for model in models]
    best = min(fitted, key=lambda model: model.loo_error_)
    return {"accuracy": 100.0 * best.score(split.test, split.y_test)}


def svm_cv(split: Split) -> dict[str, float]:
    """A support vector machine; sigma and C by cross-validation."""
    # of equally good ones, the first width, and the smallest C
    grid = [{"gamma": [gamma], "C": SVM_C} for gamma in 1.0 / SIGMAS**2]
    return measured(GridSearchCV(SVC(), grid, cv=SVM_FOLDS), split)


THETA, LEARNED = "SDP_theta", "SDP_theta,lambda"
KIM, RKDA, SVM_CV = "SDP_Kim", "RKDA_CV", "SVM_CV"
BINARY: Columns = {
    THETA: functools.partial(fisher, lam=LAMBDA),
    LEARNED: fisher,
    KIM: kim,
    "SM1": margin,
    "SM2": functools.partial(margin, margin="l2"),
    "SM2_C": functools.partial(margin, margin="l2", C="learn"),
    RKDA: rkda_cv,
    SVM_CV: svm_cv,
}
MULTICLASS: Columns = {
    THETA: functools.partial(block, lam=LAMBDA),
    LEARNED: block,
    RKDA: rkda_cv,
    SVM_CV: svm_cv,
}
FORMS: Columns = {
    f"{THETA} exact": functools.partial(fisher, lam=LAMBDA),
    f"{THETA} approx": functools.partial(block, lam=LAMBDA),
    f"{LEARNED} exact": fisher,
    f"{LEARNED} approx": block,
}


# ------------------------------------------------------------------------- claims


def ahead(
    results: Results, others: Sequence[str], rows: Sequence[str] = ()
) -> Iterator[Finding]:
    """Whether learning lambda beats the others in each row by two standard errors."""
    gaps = {
        f"{row} over {other}": results.difference(row, LEARNED, other, "accuracy")
        for row in rows or results.experiment.rows
        for other in others
    }
    if not any(gap or error > 0 for gap, error in gaps.values()):
        yield False, "no difference on any split"
        return
    for name, gap in gaps.items():
        yield gap.mean > 2 * gap.error, f"{name} {gap:+.2f}"


def comparable(
    results: Results, others: Sequence[str], first: str = LEARNED
) -> Iterator[Finding]:
    """Whether ``first`` is within one point, or two standard errors, of the others."""
    worst, where, holds = 0.0, "", True
    for row in results.experiment.rows:
        for other in others:
            gap, error = results.difference(row, first, other, "accuracy")
            holds &= bool(abs(gap) <= max(COMPARABLE, 2 * error))
            if abs(gap) >= abs(worst):
                worst, where = gap, f"{row}, against {other}"
    yield holds, f"largest difference {worst:+.2f} ({where})"


def faster(
    results: Results, columns: Sequence[str], least: float, what: str
) -> Iterator[Finding]:
    """Whether the first method takes over ``least`` times as long as the second."""
    rows = results.experiment.rows
    slow, fast = (results.means(rows, column, "seconds") for column in columns)
    ratios = slow / fast
    found = ", ".join(f"{row} {x:.2f}" for row, x in zip(rows, ratios, strict=True))
    yield min(ratios) > least, f"{what}: {found}"


# ---------------------------------------------------------------------- the paper


BINARY_ROWS = {
    "Sonar": functools.partial(table, "sonar"),
    "Heart": functools.partial(table, "heart"),
    "Cancer": functools.partial(table, "breast_cancer_wisconsin"),
    "Ionosphere": functools.partial(table, "ionosphere"),
}
MULTICLASS_ROWS = {
    "Wine (3)": functools.partial(table, "wine"),
    **{
        f"USPS ({k})": functools.partial(table, "usps", k, scaled=False, first=False)
        for k in (3, 6, 8)
    },
    "Waveform (3)": functools.partial(table, "waveform", 3, scaled=False, first=False),
    **{
        f"USPS ({k}), first rows": functools.partial(table, "usps", k, scaled=False)
        for k in (3, 6, 8)
    },
}
FORMS_ROWS = {
    "Waveform (3)": functools.partial(table, "waveform", 3, scaled=False),
    "Wine (3)": MULTICLASS_ROWS["Wine (3)"],
    "USPS (3)": MULTICLASS_ROWS["USPS (3), first rows"],
}
four_to_one = functools.partial(partition, share=0.8)
draw_forms = functools.partial(
    bars,
    measures=("accuracy", "seconds"),
    labels=("accuracy in %", "CPU seconds"),
)

PAPER = read_paper(
    "ye2007",
    globals(),
    {
        "table1": (BINARY_ROWS, four_to_one, BINARY),
        "table2": (MULTICLASS_ROWS, three_to_two, MULTICLASS),
        "figure1": (FORMS_ROWS, three_to_two, FORMS, draw_forms),
    },
)
