"""Leave-one-out, folds and new rows, for the page "Is this score honest?".

KERNELWEAVE_DATA=folder python docs/_scripts/fold_scores.py
"""

from __future__ import annotations

import numpy as np
from sklearn.model_selection import StratifiedShuffleSplit

from kernelweave import MultipleKernelFDA
from kernelweave.datasets import fetch_expression


def main():
    for name in ("p53", "all_fusion", "prostate"):
        data = fetch_expression(name, as_frame=False)
        X, y = data.data, data.target
        splitter = StratifiedShuffleSplit(4, test_size=0.4, random_state=1)
        rows = []
        for train, test in splitter.split(X, y):
            model = MultipleKernelFDA(data.views).fit(X[train], y[train])
            score = model.score(X[test], y[test])
            rows.append((model.loo_score_, model.cv_score_, score))
        print(name, *np.mean(rows, axis=0).round(2))


if __name__ == "__main__":
    main()
