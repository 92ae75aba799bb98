"""Folds with and without starts from all rows, for the page "Is this score honest?".

python docs/_scripts/fold_starts.py
"""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import numpy as np

from kernelweave import MultipleKernelFDA
from kernelweave.learn.search import Options

VIEWS = [(name, "rbf", slice(3 * i, 3 * i + 3)) for i, name in enumerate("abc")]
for_folds = Options.for_folds


def from_scratch(options, whole):
    return replace(for_folds(options, whole), near=None)


def main():
    scores = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(320, 9)), rng.permutation(np.arange(320) % 2)
        pair = [MultipleKernelFDA(VIEWS).fit(X, y).cv_score_]
        with patch.object(Options, "for_folds", from_scratch):
            pair.append(MultipleKernelFDA(VIEWS).fit(X, y).cv_score_)
        scores.append(pair)
    near, far = np.transpose(scores)
    print(f"the same: {np.sum(near == far)}, means {near.mean():.4f} {far.mean():.4f}")


if __name__ == "__main__":
    main()
