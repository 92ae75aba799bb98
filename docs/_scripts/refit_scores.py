"""Scores of rows left out and those of refits, for the page "Is this score honest?".

python docs/_scripts/refit_scores.py
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.metrics import roc_auc_score

from kernelweave import KernelFDA, MultipleKernelFDA
from kernelweave.kernels import RBF

PARTS = [0, 1, 2], [3, 4, 5]
VIEWS = [("a", RBF(gamma=0.2), PARTS[0]), ("b", "linear", PARTS[1])]


def leads(n, signal, seed):
    """How far the score of each norm exceeds that of refits at its weights."""
    rng = np.random.default_rng([seed, n])
    y = rng.permutation(np.arange(n) % 2)
    X = rng.normal(size=(n, 6))
    X[:, [0, 3]] += signal * y[:, None]
    given = {"cv": None, "scoring": "roc_auc"}
    candidates = MultipleKernelFDA(VIEWS, **given).fit(X, y).candidates_
    found = []
    for norm, candidate in candidates.items():
        model = MultipleKernelFDA(VIEWS, norm=norm, **given).fit(X, y)
        rows = model._observed_rows(X, "predict")
        kernel = model.kernel_map_.cross(rows, model.kernel_weights_)
        refit = KernelFDA("precomputed", alpha=model.alpha_, scale=None, cv=None)
        odds = np.empty(n)
        for i in range(n):
            rest = np.delete(np.arange(n), i)
            refit.fit(kernel[np.ix_(rest, rest)], y[rest])
            odds[i] = np.subtract(*np.log(refit.predict_proba(kernel[[i]][:, rest]))[0])
        found.append(candidate["score"] - roc_auc_score(y, -odds))
    return found


def main():
    for n, signal in ((60, 1.0), (40, 0.1)):
        found = np.array([leads(n, signal, seed) for seed in range(6)])
        print(f"{n} rows, signal {signal}: from {found.min():.3f} to {found.max():.3f}")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
