"""How do general solvers handle the program of Ye, Chen, Ji (2007), as printed?

    KERNELWEAVE_DATA=folder python docs/_scripts/ye2007_solvers.py [--rows 60]

The semidefinite program (16) at lambda = 1e-8 is solved by Clarabel and SCS through
cvxpy with their default settings, and by kernelweave. Prints the table in
docs/papers/not_reproduced.md: the value of (23) at the weights returned, and the
accuracy on all rows not used for training.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import cvxpy as cp
import numpy as np
from sklearn.metrics.pairwise import rbf_kernel

from kernelweave import Fisher, Simplex, solve
from kernelweave.kernels import DenseBank

sys.path.insert(0, str(Path(__file__).parents[2]))
from reproduce import ye2007
from reproduce.run import split_generator

LAMBDA = ye2007.LAMBDA
SETS = ("heart", "ionosphere", "sonar")
SOLVERS = {"Clarabel": cp.CLARABEL, "SCS": cp.SCS}


def printed(grams: list[np.ndarray], a: np.ndarray, solver: str) -> np.ndarray | None:
    """Weights of (16), or None if the solver gave up.

    Kernels (m, m) are centred and of trace one; a is defined in (8).
    """
    theta, t = cp.Variable(len(grams), nonneg=True), cp.Variable((1, 1))
    G = np.eye(len(a)) + sum(w * K for w, K in zip(theta, grams, strict=True)) / LAMBDA
    block = cp.bmat([[G, a[:, None]], [a[None, :], t]])
    problem = cp.Problem(cp.Minimize(t[0, 0]), [block >> 0, cp.sum(theta) == 1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the answer may be inaccurate
        try:
            problem.solve(solver=solver)
        except cp.SolverError:
            return None
    weights = np.maximum(theta.value, 0.0)
    return weights / weights.sum()


def certified(grams: list[np.ndarray], a: np.ndarray) -> np.ndarray:
    """Weights of the certified optimum."""
    criterion = Fisher(DenseBank(np.stack(grams)), a[:, None], alpha=LAMBDA)
    solution = solve(criterion, Simplex(), tol=1e-6)
    assert solution.converged
    return solution.weights


def judged(split: dict[str, np.ndarray], weights: np.ndarray | None) -> str:
    """Value of (23), and accuracy in percent with the threshold in the middle."""
    if weights is None:
        return "gives up"
    G = np.tensordot(weights, split["grams"], 1)
    x = np.linalg.solve(G + LAMBDA * np.eye(len(G)), split["a"])
    value = LAMBDA * split["a"] @ x
    own = G @ x
    half = (own[split["a"] > 0].mean() + own[split["a"] < 0].mean()) / 2
    new = np.tensordot(weights, split["cross"], 1) @ x
    right = np.mean((new > half) == split["positive"])
    return f"{value:.2e}, {100 * right:.1f}"


def problem_of(name: str, rows: int, number: int) -> dict[str, np.ndarray]:
    """Ten kernels on the training rows, and between these and all other rows."""
    X, y = ye2007.table(name)
    order = split_generator("solvers", number).permutation(len(y))
    train, test = order[:rows], order[rows:]
    positive = y[train] == 1
    a = np.where(positive, 1.0 / positive.sum(), -1.0 / (~positive).sum())
    grams, cross = [], []
    for sigma in ye2007.SIGMAS:
        K = rbf_kernel(X[train], gamma=1.0 / sigma**2)
        C = rbf_kernel(X[test], X[train], gamma=1.0 / sigma**2)
        C = C - C.mean(axis=1, keepdims=True) - K.mean(axis=0) + K.mean()
        K = K - K.mean(axis=0) - K.mean(axis=1, keepdims=True) + K.mean()
        grams.append(K / np.trace(K))
        cross.append(C / np.trace(K))
    return {
        "grams": np.stack(grams),
        "cross": np.stack(cross),
        "a": a,
        "positive": y[test] == 1,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=60)
    parser.add_argument("--splits", type=int, default=2)
    options = parser.parse_args()
    titles = [f"{name}: value, accuracy" for name in ("optimum", *SOLVERS)]
    print("| data, split | " + " | ".join(titles) + " |")
    print("|" + " --- |" * (1 + len(titles)))
    for name in SETS:
        for number in range(options.splits):
            split = problem_of(name, options.rows, number)
            grams = list(split["grams"])
            found = [certified(grams, split["a"])]
            found += [printed(grams, split["a"], code) for code in SOLVERS.values()]
            cells = " | ".join(judged(split, weights) for weights in found)
            print(f"| {name.capitalize()}, {number} | {cells} |", flush=True)


if __name__ == "__main__":
    main()
