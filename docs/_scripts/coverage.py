"""How often standard errors and intervals contain the truth, for the user guide.

python docs/_scripts/coverage.py [scores] [leads] [rises] [columns] [shares] [verdicts]
"""

from __future__ import annotations

import sys

import numpy as np
from scipy.stats import t as student
from sklearn.metrics import balanced_accuracy_score, log_loss
from sklearn.model_selection import KFold, StratifiedGroupKFold, StratifiedKFold

from kernelweave import MultipleKernelFDA, MultipleKernelRidge
from kernelweave.evaluation import evaluate
from kernelweave.inspection import (
    feature_importance,
    view_ablation,
    view_pvalues,
    weight_intervals,
)

VIEWS = [(name, "linear", slice(3 * i, 3 * i + 3)) for i, name in enumerate("abc")]
NEW, REFITS = 2000, 20


def draw(kind, n, seed):
    """Rows (n, 9), targets (n,) and groups (n,) or None of a population."""
    rng = np.random.default_rng([seed, n])
    X, y = rng.normal(size=(n, 9)), rng.permutation(np.arange(n) % 2)
    groups = None
    if kind == "one view":
        X[:, :3] += 0.6 * (2 * y[:, None] - 1)
    if kind == "two alike":
        shared = rng.normal(size=(n, 3)) + 0.8 * (2 * y[:, None] - 1)
        X[:, :6] = np.hstack([shared, shared]) + 0.3 * X[:, :6]
    if kind == "rare class":
        y = (rng.permutation(n) < 0.15 * n).astype(int)
        X[:, :3] += y[:, None]
    if kind == "numbers":
        y = X[:, :2].sum(axis=1) + 1.5 * rng.normal(size=n)
    if kind == "noise in numbers":
        y = rng.normal(size=n)
    if kind == "groups":
        groups, labels = np.arange(n) // 4, rng.permutation(np.arange(n // 4) % 2)
        centres = rng.normal(size=(n // 4, 9))
        centres[:, :3] += 0.8 * (2 * labels[:, None] - 1)
        X, y = centres[groups] + 0.3 * X, labels[groups]
    return X, y, groups


def model_of(kind):
    kind_of = MultipleKernelRidge if "numbers" in kind else MultipleKernelFDA
    return kind_of(VIEWS, norm=1, cv=None)


def scores(kind, n=40, draws=60):
    """Scores of ``evaluate`` within two standard errors of those on new rows."""
    inside = []
    for seed in range(draws):
        X, y, groups = draw(kind, n, seed)
        Z, new, _ = draw(kind, NEW, 10_000 + seed)
        found = evaluate(model_of(kind), X, y, groups=groups, baselines=False)
        own, model = found.table[0], found.model
        truth = {"score": model.score(Z, new)}
        if "log_loss" in own:
            predicted = model.predict(Z)
            truth["balanced_accuracy"] = balanced_accuracy_score(new, predicted)
            truth["log_loss"] = log_loss(new, model.predict_proba(Z))
        limits = {key: 2 * own[f"{key}_se"] + 1e-9 for key in truth}
        inside.append([abs(own[key] - truth[key]) <= limits[key] for key in truth])
    shares = zip(truth, np.mean(inside, axis=0), strict=True)
    print(kind, n, *(f"{key} {share:.0%}" for key, share in shares))


def leads(kind, draws=200):
    """How often a model of noise is clearly ahead of no view, or behind it."""
    (n, rare, weighted, settings), clear = NOISE[kind], []
    for seed in range(draws):
        rng = np.random.default_rng([seed, n, rare])
        X, y = rng.normal(size=(n, 9)), (rng.permutation(n) < rare).astype(int)
        weights = 10 ** rng.uniform(-1, 1, n) if weighted else None
        model = MultipleKernelFDA(VIEWS, norm=1, cv=None, **settings)
        none = evaluate(model, X, y, sample_weight=weights).table[-1]
        clear.append(np.sign(none["lead"]) * (abs(none["lead"]) > 2 * none["lead_se"]))
    ahead, behind = (np.mean(np.array(clear) == sign) for sign in (1, -1))
    print(f"{kind} {n}: ahead {ahead:.1%}, behind {behind:.1%}")


#: Rows, rows of the rare class, whether rows have weights, and settings of the model.
NOISE = {
    "balanced": (24, 5, False, {"class_weight": "balanced"}),
    "more balanced": (60, 12, False, {"class_weight": "balanced"}),
    "dict": (24, 5, False, {"class_weight": {1: 20.0}}),
    "weights": (24, 12, True, {}),
    "more weights": (40, 20, True, {}),
    "both": (40, 10, True, {"class_weight": "balanced"}),
}


def rises(kind, n=60, draws=40):
    """Rises without a view, and those of the same models on new rows.

    A number is that of groups of four rows.
    """
    apart, useless = [], []
    if isinstance(kind, int):
        kind, n, draws = "groups", 4 * kind, 120
    for seed in range(draws):
        X, y, groups = draw(kind, n, seed)
        Z, new, others = draw(kind, NEW, 10_000 + seed)
        model = model_of(kind).fit(X, y)
        splitter = KFold if "numbers" in kind else StratifiedKFold
        splitter = splitter if groups is None else StratifiedGroupKFold
        splits = splitter(5, shuffle=True, random_state=seed).split(X, y, groups)
        folds = [(train, test) for train, test in splits]
        on_new = [(train, np.arange(n, n + NEW)) for train, _ in folds]
        both = np.vstack([X, Z]), np.concatenate([y, new])
        if groups is not None:
            others = np.concatenate([groups, others + n])
        found = rises_on(model, (X, y), folds, groups)
        on_new = rises_on(model, both, on_new, others)
        for own, true in zip(found, [row["loss_rise"] for row in on_new], strict=True):
            error = max(own["loss_rise_se"], 1e-12)
            apart.append(abs(own["loss_rise"] - true) / error)
            if true <= 0:
                useless.append(own["loss_rise"] / error)
    for limit in (2.0, student.ppf(0.975, 4)):
        inside, wrong = np.array(apart) <= limit, np.array(useless) > limit
        print(
            f"{kind} {n}: within {limit:.1f} {inside.sum()} of {len(inside)}, ", end=""
        )
        print(f"useful in error {wrong.sum()} of {len(wrong)}")


def rises_on(model, rows, folds, groups):
    return view_ablation(model, *rows, groups=groups, cv=folds).views


def columns(kind, n=60, draws=60):
    """Intervals of coefficients that contain their mean over other samples."""

    def found(seed, **settings):
        X, y, _ = draw(kind, n, seed)
        model = model_of(kind).fit(X, y)
        return feature_importance(model, "a", X=X, y=y, **settings)

    others = [[row["standardised"] for row in found(10_000 + s)] for s in range(200)]
    mean = np.zeros(3) if "noise" in kind else np.mean(others, axis=0)
    inside = []
    for seed in range(draws):
        rows = found(seed, n_resamples=REFITS, random_state=seed)
        own = zip(rows, mean, strict=True)
        inside += [row["low"] <= centre <= row["high"] for row, centre in own]
    print(f"{kind} {n}: {np.mean(inside):.0%}")


def alike(n_groups, correlation, seed, signal=1.0):
    """Groups of five rows (n, 9), two informative views of three, labels and groups."""
    rng = np.random.default_rng([seed, int(100 * correlation), n_groups])
    labels = rng.permutation(np.arange(n_groups) % 2)
    groups = np.arange(5 * n_groups) // 5
    centres, own = rng.normal(size=(n_groups, 9)), rng.normal(size=(5 * n_groups, 9))
    X = np.sqrt(correlation) * centres[groups] + np.sqrt(1 - correlation) * own
    X += signal * np.repeat([0.8, 0.4, 0.0], 3) * (2 * labels[groups, None] - 1)
    return X, labels[groups], groups


def shares(kind, draws=60):
    """Intervals of shares that contain their mean over other samples."""

    def fitted(seed):
        X, y, groups = alike(*kind, seed)
        return model_of("").fit(X, y, groups=groups), X, y, groups

    others = [list(fitted(10_000 + s)[0].view_shares_.values()) for s in range(150)]
    mean, inside = np.mean(others, axis=0), {"rows": [], "groups": []}
    for seed in range(draws):
        model, X, y, groups = fitted(seed)
        for halves, given in (("rows", None), ("groups", groups)):
            rows = weight_intervals(
                model, X, y, groups=given, n_resamples=2 * REFITS, random_state=seed
            )
            own = zip(rows, mean, strict=True)
            inside[halves] += [
                row["low"] <= centre <= row["high"] for row, centre in own
            ]
    found = [f"halves of {name} {np.mean(each):.0%}" for name, each in inside.items()]
    print("groups, correlation:", *kind, *found)


def verdicts(kind, draws=40):
    """p-values and recommendations on noise, with and without groups."""
    pvalues, kept = {"rows": [], "groups": []}, {"rows": 0, "groups": 0}
    for seed in range(draws):
        X, y, groups = alike(*kind, seed, signal=0.0)
        model = model_of("").fit(X, y, groups=groups)
        for name, given in (("rows", None), ("groups", groups)):
            settings = {"groups": given, "random_state": seed}
            own = view_pvalues(model, X, y, n_decoys=19, **settings)
            pvalues[name] += list(own.values())
            kept[name] += bool(view_ablation(model, X, y, **settings).recommended)
    print("groups, correlation:", *kind, end="")
    for name, own in pvalues.items():
        print(f"; {name}: p <= 0.05 {np.mean(np.array(own) <= 0.05):.0%}, ", end="")
        print(f"recommended {kept[name]} of {draws}", end="")
    print()


PARTS = {
    scores: ("noise", "one view", "rare class", "noise in numbers", "groups"),
    leads: tuple(NOISE),
    rises: ("noise", "one view", "two alike", "rare class", "numbers", 5, 10, 15, 30),
    columns: ("noise", "one view", "noise in numbers", "numbers"),
    shares: ((8, 0.5), (8, 0.9), (20, 0.5), (20, 0.9)),
    verdicts: ((8, 0.5), (8, 0.9), (20, 0.5), (20, 0.9)),
}


def main():
    wanted = sys.argv[1:] or [part.__name__ for part in PARTS]
    for part, kinds in PARTS.items():
        for kind in kinds if part.__name__ in wanted else ():
            print(part.__name__, end=" ")
            part(kind)


if __name__ == "__main__":
    main()
