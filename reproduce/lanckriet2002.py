"""Lanckriet et al. (2002): the kernel matrix with the largest margin.

Protocol (Section 6): 30 random partitions, 60 percent of the rows labelled; a
polynomial kernel of degree 2 (K1), a Gaussian (K2) and a linear one (K3), normalised,
and their best combination K* (Eq. 12) of trace ``sum_i trace(K_i)`` over all rows.
Table 1 has the hard margin on the labelled rows and the number of errors on the others.

What the paper leaves open, and our reading (``docs/papers/lanckriet2002.md`` has the
numbers):

* Features are not scaled. Scaled columns give margins several times too large.
* "Normalised" is ``k(x, z) / sqrt(k(x, x) k(z, z))``, before any centring.
* "Margin" is the distance between the classes, ``2 / norm(w)``; the text has half of
  that.
* Weights of K* may be negative as long as K* is positive semidefinite over all rows.
  With weights >= 0 (our last column), K* of Sonar and Heart reduces to K2.
* A dash means that no classifier was found. ``separated`` is the share of splits in
  which we find one, and a linear program on the explicit features of K1 and K3 shows in
  how many splits one exists.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linprog
from sklearn.preprocessing import PolynomialFeatures, normalize, scale

from kernelweave.kernels import RBF, Linear, Polynomial
from kernelweave.models import TransductiveKernelSVC
from kernelweave.models.shared.margin import NoMarginError
from reproduce.experiment import (
    Columns,
    Finding,
    Split,
    partition,
    read_paper,
    table_rows,
)
from reproduce.results import Results

#: Share of the rows that have labels.
LABELLED = 0.6
#: Relative gap of the squared inverse margin: the margin is accurate to four digits.
GAP = 1e-4


# ------------------------------------------------------------------- data, splits


@dataclass(frozen=True)
class Transduction:
    """Kernels over all rows, and which of them have labels.

    Attributes
    ----------
    kernels : ndarray of shape (3, n, n)
        K1, K2, K3 with ones on the diagonal.
    signs : ndarray of shape (n,)
        +1 and -1.
    labelled : ndarray of bool, shape (n,)
        The training rows; the others are test rows.
    """

    kernels: np.ndarray
    signs: np.ndarray
    labelled: np.ndarray


@functools.cache
def rows_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """An unscaled table (n, d), and its signs (n,)."""
    X, y = table_rows(name)
    return X, np.where(y == 1, 1.0, -1.0)


@functools.cache
def kernels_of(name: str, sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """K1, K2, K3 (3, n, n) of a table, and its signs (n,)."""
    X, signs = rows_of(name)
    return three_kernels(X, sigma), signs


def three_kernels(X: np.ndarray, sigma: float) -> np.ndarray:
    """``(1 + x'z)^2``, ``exp(-|x - z|^2 / (2 sigma))`` and ``x'z``, normalised."""
    functions = (
        Polynomial(degree=2, gamma=1.0, coef0=1.0),
        RBF(gamma=0.5 / sigma),
        Linear(),
    )
    stack = np.stack([function(X, X) for function in functions])
    size = np.sqrt(np.diagonal(stack, axis1=1, axis2=2))  # (3, n)
    # a zero row has no direction: its linear kernel is zero
    size = np.where(size > 0.0, size, 1.0)
    return stack / size[:, :, None] / size[:, None, :]


def label(
    data: tuple[np.ndarray, np.ndarray], rng: np.random.Generator
) -> Transduction:
    """Label 60 percent of the rows, chosen at random."""
    kernels, signs = data
    labelled = np.zeros(len(signs), dtype=bool)
    labelled[rng.permutation(len(signs))[: round(LABELLED * len(signs))]] = True
    return Transduction(kernels, signs, labelled)


# ------------------------------------------------------------------------ methods


def largest_margin(
    split: Transduction, kernels: Sequence[int], signed: bool = False
) -> dict[str, float | list[float]]:
    """The hard margin of the best combination of some kernels (Eq. 12).

    The trace of the combination is the sum of the traces of the kernels. Rows that no
    combination separates have no margin and no errors.
    """
    model = TransductiveKernelSVC(
        "precomputed",
        margin="hard",
        signed=signed,
        centre=False,
        scale=None,
        tol=GAP,
        psd="trust",
    )
    stack = len(kernels) * np.moveaxis(split.kernels[list(kernels)], 0, -1)
    classes = np.where(split.signs > 0, 1, 0)
    try:
        model.fit(stack, np.where(split.labelled, classes, -1))
    except NoMarginError:
        return {"separated": 0.0}
    return {
        "separated": 100.0,
        "margin": float(2.0 / np.sqrt(model.certificate_.value)),
        "errors": float(np.sum(model.transduction_ != classes)),
        "gap": model.certificate_.gap,
        "weights": model.kernel_weights_.tolist(),
    }


def separable(split: Split, degree: int) -> dict[str, float]:
    """Whether the explicit features of K1 (degree 2) or K3 (degree 1) separate.

    The answer is invariant under invertible maps of the features, so columns are
    centred and scaled to unit variance, which conditions the linear program.
    """
    features = monomials(split.train) if degree == 2 else normalize(split.train)
    features = scale(features)
    rows = split.y_train[:, None] * np.column_stack([features, np.ones(len(features))])
    answer = linprog(
        np.zeros(rows.shape[1]),
        A_ub=-rows,
        b_ub=-np.ones(len(rows)),
        bounds=(None, None),
    )
    return {"separable": 100.0 * (answer.status == 0)}


def monomials(X: np.ndarray) -> np.ndarray:
    """Columns and their products: with a constant, the features of ``(1 + x'z)^2``.

    Normalising divides them by ``1 + x'x``, which is one of their linear combinations,
    so an intercept afterwards changes nothing.
    """
    return PolynomialFeatures(include_bias=False).fit_transform(scale(X))


STAR, POSITIVE = "K*", "K*, weights >= 0"
SINGLE = ("K1", "K2", "K3")
MARGINS: Columns = {
    **{
        name: functools.partial(largest_margin, kernels=(i,))
        for i, name in enumerate(SINGLE)
    },
    STAR: functools.partial(largest_margin, kernels=(0, 1, 2), signed=True),
    POSITIVE: functools.partial(largest_margin, kernels=(0, 1, 2)),
}


#: Degrees of the kernels with few explicit features; a Gaussian always separates.
EXPLICIT: Columns = {
    "K1": functools.partial(separable, degree=2),
    "K3": functools.partial(separable, degree=1),
}


# ------------------------------------------------------------------------- claims


def always_separates(results: Results) -> Iterator[Finding]:
    """Whether K* separates the labelled rows of every split."""
    for row in results.experiment.rows:
        share = results.mean(row, STAR, "separated")
        yield share == 100, f"{row}: {share:.0f} percent of splits separated"


def separating(results: Results, row: str) -> list[str]:
    """The single kernels that separate every split of a row."""
    return [c for c in SINGLE if results.mean(row, c, "separated") == 100]


def widest(results: Results) -> Iterator[Finding]:
    """Whether K* has the largest margin in every split."""
    ratios, least = {}, np.inf
    for row in results.experiment.rows:
        star = results.values(row, STAR, "margin")
        others = [results.values(row, c, "margin") for c in separating(results, row)]
        best = np.max(others, axis=0)
        least = min(least, float(np.min(star / best)))
        ratios[row] = float(np.mean(star) / np.mean(best))
    found = ", ".join(f"{row} {ratio:.2f}" for row, ratio in ratios.items())
    yield (
        least > 1,
        f"margin of K* over the largest of the three: {found}; at equal trace divide "
        "by 1.73",
    )


def fewest_errors(results: Results) -> Iterator[Finding]:
    """Whether K* makes fewer errors than every single kernel that separates."""
    for row in results.experiment.rows:
        for column in separating(results, row):
            gap = results.difference(row, STAR, column, "errors")
            yield gap.mean < 0, f"{row}: {gap:+.1f} against {column}"


def heart_improves(results: Results) -> Iterator[Finding]:
    """Whether K* is better than K2 on Heart, in margin and errors."""
    wider, _ = results.difference("Heart", STAR, "K2", "margin")
    fewer = results.difference("Heart", STAR, "K2", "errors")
    found = f"margin {wider:+.3f}, errors {fewer:+.1f} against K2"
    yield wider > 0 and fewer.mean < -2 * fewer.error, found


def needs_negative_weights(results: Results) -> Iterator[Finding]:
    """Whether weights of any sign make fewer errors than weights >= 0."""
    for row in results.experiment.rows:
        gap = results.difference(row, STAR, POSITIVE, "errors")
        weights = np.mean(results.values(row, STAR, "weights"), axis=0)
        shown = ", ".join(f"{weight:.2f}" for weight in weights)
        found = f"{row}: {gap:+.1f} errors, weights ({shown})"
        yield gap.mean < -2 * gap.error, found


#: The tables of the rows, and the widths of their Gaussian kernels.
TABLE_OF = {
    "Breast cancer": ("breast_cancer_wisconsin", 0.5),
    "Sonar": ("sonar", 0.1),
    "Heart": ("heart", 0.5),
}
PAPER = read_paper(
    "lanckriet2002",
    globals(),
    {
        "table1": (
            {row: functools.partial(kernels_of, *t) for row, t in TABLE_OF.items()},
            label,
            MARGINS,
        ),
        "dashes": (
            {row: functools.partial(rows_of, t) for row, (t, _) in TABLE_OF.items()},
            functools.partial(partition, share=LABELLED),
            EXPLICIT,
        ),
    },
)
