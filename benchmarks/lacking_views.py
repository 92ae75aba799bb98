"""What should stand in for a view that a row lacks? Three treatments, on real data.

    KERNELWEAVE_DATA=folder python benchmarks/lacking_views.py [--splits 2]

Each view is removed from a share of the rows, drawn independently for each view, and no
row loses all of its views. "zero" and "available" are those of the parameter `missing`;
"medians" fills every column with its median, and marks the gaps of training rows in a
column of its own. Prints the mean over the sets of accuracy and log loss on new rows,
and differences from "zero" with their standard errors over sets: the figures in
docs/user_guide/missing_views.md.
"""

from __future__ import annotations

import argparse
import time
import warnings

import numpy as np
from missing import _with_gaps
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedShuffleSplit
from study import SETS, first_classes, side_by_side

from kernelweave import MultipleKernelFDA

NAMES = (
    "msrc_v5",
    "nutrimouse diet",
    "nutrimouse genotype",
    "mfeat (300 rows)",
    "breast cancer (300 rows)",
    "digits (300 rows)",
    "sonar",
    "heart",
    "wine",
    "satimage (300 rows)",
    "segment (300 rows)",
    "waveform (300 rows)",
    "usps (300 rows)",
)
LOADERS = {name: SETS[name] for name in NAMES}
LOADERS["leaves (15 species)"] = first_classes("leaves100", 15)
SHARES = (0.1, 0.3, 0.5)
TREATMENTS = ("zero", "available", "medians")


def with_medians(blocks_of, train, others):
    """Rows without gaps, and the views of the columns that they then have."""
    parts, names = [], []
    start = 0
    for name, kernel, columns in blocks_of:
        imputer = SimpleImputer(
            strategy="median", add_indicator=True, keep_empty_features=True
        )
        imputer.fit(train[:, columns])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            own = [imputer.transform(rows[:, columns]) for rows in (train, *others)]
        parts.append(own)
        names.append((name, kernel, slice(start, start + own[0].shape[1])))
        start += own[0].shape[1]
    return names, [np.hstack(rows) for rows in zip(*parts, strict=True)]


def scores(treatment, names, train, y, tests, t):
    """Accuracy and log loss on each of the tables of new rows."""
    if treatment == "medians":
        names, (train, *tests) = with_medians(names, train, tests)
    missing = "zero" if treatment == "medians" else treatment
    model = MultipleKernelFDA(names, cv=None, missing=missing).fit(train, y)
    found = []
    for rows in tests:
        P = np.clip(model.predict_proba(rows), 1e-6, 1.0)
        right = float(np.mean(model.classes_[P.argmax(axis=1)] == t))
        P /= P.sum(axis=1, keepdims=True)
        found.append((right, log_loss(t, P, labels=model.classes_)))
    return found, model


def measure(load, n_splits):
    """Results of a set: a dict from (design, share, treatment) to a list of scores."""
    blocks, y = load()
    X, names = side_by_side(blocks)
    columns = [own for _, _, own in names]
    results = {}
    splitter = StratifiedShuffleSplit(n_splits, test_size=0.4, random_state=3)
    for split, (train, test) in enumerate(splitter.split(y, y)):
        y_train, t = y[train], y[test]
        holes = {
            share: _with_gaps(
                X, columns, share, np.random.default_rng(100 * split + int(10 * share))
            )
            for share in SHARES
        }
        whole, _ = scores("zero", names, X[train], y_train, [X[test]], t)
        results.setdefault(("none", 0.0, "zero"), []).append(whole[0])
        for treatment in TREATMENTS:
            _, model = scores(treatment, names, X[train], y_train, [X[test]], t)
            heavy = max(model.view_shares_, key=model.view_shares_.get)
            absent = X[test].copy()
            absent[:, {v: c for v, _, c in names}[heavy]] = np.nan
            tests = [*(holes[share][test] for share in SHARES), absent]
            found, _ = scores(treatment, names, X[train], y_train, tests, t)
            for share, own in zip((*SHARES, 1.0), found, strict=True):
                results.setdefault(("new", share, treatment), []).append(own)
            for share in SHARES:
                tests = [X[test], holes[share][test]]
                found, _ = scores(
                    treatment, names, holes[share][train], y_train, tests, t
                )
                for design, own in zip(("training", "both"), found, strict=True):
                    results.setdefault((design, share, treatment), []).append(own)
    return {key: np.mean(own, axis=0) for key, own in results.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--splits", type=int, default=2)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    by_set = {}
    for name, load in LOADERS.items():
        start = time.process_time()
        try:
            by_set[name] = measure(load, options.splits)
        except FileNotFoundError as error:
            print(f"{name}: left out: {error}")
            continue
        line = [f"{100 * by_set[name]['both', 0.3, t][0]:.1f}" for t in TREATMENTS]
        print(name, *line, f"{time.process_time() - start:.0f} s", flush=True)
    keys = list(next(iter(by_set.values())))
    for key in keys:
        own = np.array([found[key] for found in by_set.values()])
        base = np.array([found[(*key[:2], "zero")] for found in by_set.values()])
        gain = own - base
        error = gain.std(axis=0, ddof=1) / len(own) ** 0.5
        better = int(np.sum(gain[:, 0] > 1e-9)), int(np.sum(gain[:, 0] < -1e-9))
        print(
            f"{key[0]:9} {key[1]:.1f} {key[2]:10} "
            f"accuracy {100 * own[:, 0].mean():5.1f} ({100 * gain[:, 0].mean():+.1f} "
            f"± {100 * error[0]:.1f}; {better[0]}/{better[1]}) "
            f"log loss {own[:, 1].mean():.3f} ({gain[:, 1].mean():+.3f} "
            f"± {error[1]:.3f})"
        )


if __name__ == "__main__":
    main()
