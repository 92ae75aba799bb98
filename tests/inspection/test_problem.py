"""Functions that solve the problem of the fit again refuse other rows and targets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array

from estimators import ONE_EACH, poses_problem, some
from kernelweave import MultipleKernelFDA
from kernelweave.inspection import view_pvalues, weight_intervals, weight_ranges
from kernelweave.inspection._problem import problem_of

N = 40
VIEWS = [("a", "rbf", [0, 1, 2]), ("b", "linear", [3, 4, 5])]


def make_data(rng):
    """Rows (n, 6) and two classes."""
    y = np.arange(N) % 2
    X = rng.normal(size=(N, 6))
    X[:, 0] += y
    return X, y


def as_frame(X):
    return pd.DataFrame(X)


def as_kernels(X):
    """Linear kernels of both views, (n, n, 2)."""
    return np.stack([X[:, :3] @ X[:, :3].T, X[:, 3:] @ X[:, 3:].T], axis=-1)


KINDS = pytest.mark.parametrize(
    ("views", "made"),
    [(VIEWS, np.asarray), (VIEWS, csr_array), (VIEWS, as_frame)],
    ids=["array", "sparse", "frame"],
)
FEWER = "it was fitted on 40 rows, and X has 30"
SHUFFLED = "X holds rows of the fit in another order"
CHANGED = "X has as many rows, but only 39 of them are rows of the fit"
RETARGETED = "X holds these rows, but y has other targets, or the same in another order"
UNKNOWN = "X has as many rows, but other values, or the same rows in another order"
CURE = r".*Pass the X and y that fit was given, or fit again"


@pytest.mark.one_seed
@KINDS
@pytest.mark.parametrize("model", some(ONE_EACH, poses_problem))
def test_other_rows_and_targets_are_named(rng, model, views, made):
    """Rows in another order were told that alpha is too small."""
    X, y = make_data(rng)
    model.set_params(views=views).fit(made(X), y)
    order, changed = rng.permutation(N), X.copy()
    changed[7] += 1.0
    for rows, targets, what in (
        (X[:30], y[:30], FEWER),
        (X[order], y[order], SHUFFLED),
        (X[::-1], y[::-1], SHUFFLED),
        (X[order], y, SHUFFLED),
        (changed, y, CHANGED),
        (X, y[order], RETARGETED),
    ):
        with pytest.raises(ValueError, match=what + CURE):
            problem_of(model, made(rows), targets, "weight_ranges")
    with pytest.raises(ValueError, match="it was fitted on 40 rows, but y has 30"):
        problem_of(model, made(X), y[:30], "weight_ranges")
    problem_of(model, made(X.astype(np.float32).astype(float)), y, "weight_ranges")


@pytest.mark.one_seed
@pytest.mark.parametrize("judge", [view_pvalues, weight_intervals, weight_ranges])
def test_other_kernels_are_named(rng, judge):
    X, y = make_data(rng)
    K = as_kernels(X)
    model = MultipleKernelFDA("precomputed", norm=1, alpha=0.1, cv=None).fit(K, y)
    order = rng.permutation(N)
    both = np.ix_(order, order)
    for kernels, targets, what in (
        (K[:30, :30], y[:30], FEWER),
        (K[order], y[order], UNKNOWN),
        (K[both], y[order], UNKNOWN),  # symmetric, as that of the rows of the fit
        (2 * K, y, UNKNOWN),
        (K, y[order], RETARGETED),
    ):
        with pytest.raises(ValueError, match=rf"{judge.__name__} .*{what}{CURE}"):
            judge(model, kernels, targets)


@pytest.mark.one_seed
@pytest.mark.parametrize("missing", ["zero", "available"])
def test_other_rows_that_lack_views_are_named(rng, missing):
    X, y = make_data(rng)
    X[:10, :3] = np.nan
    K, order = as_kernels(X), rng.permutation(N)
    for views, rows, other, what in (
        (VIEWS, X, X[order], UNKNOWN),
        ("precomputed", K, K[np.ix_(order, order)], "X cannot be read as their"),
    ):
        model = MultipleKernelFDA(views, norm=1, alpha=0.1, cv=None, missing=missing)
        problem_of(model.fit(rows, y), rows, y, "weight_ranges")
        with pytest.raises(ValueError, match=what + CURE):
            problem_of(model, other, y[order], "weight_ranges")


@pytest.mark.one_seed
def test_targets_with_nearly_the_same_optimum_are_refused():
    """On noise, 2 in 300 orders of the targets lead within a thousandth of it."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(N, 6)), np.arange(N) % 2
    model = MultipleKernelFDA(VIEWS, norm=1, alpha=1.0, cv=None).fit(X, y)
    problem, value = problem_of(model, X, y, "test"), model.certificate_.value
    close = []
    for _ in range(300):
        other = replace(problem, targets=rng.permutation(y))
        solution = other.solution(problem.bank, np.arange(N))
        if abs(solution.value - value) < 1e-3 * value:
            close.append(other.targets)
    assert len(close) == 2
    for targets in close:
        with pytest.raises(ValueError, match=RETARGETED):
            problem_of(model, X, targets, "test")


@pytest.mark.one_seed
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_weighted_rows_of_the_fit_are_accepted(rng, dtype):
    X, y = make_data(rng)
    X = (X + 10.0).astype(dtype)
    model = MultipleKernelFDA(VIEWS, norm=1, alpha=0.1, cv=None)
    model.fit(X, y, sample_weight=rng.uniform(0.1, 5.0, N))
    problem_of(model, X, y, "weight_ranges")
    order = rng.permutation(N)
    with pytest.raises(ValueError, match=SHUFFLED):
        problem_of(model, X[order], y[order], "weight_ranges")
