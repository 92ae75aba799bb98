"""Patients who lack some of five assays: what `missing` is worth on miniACC.

    python docs/_scripts/missing_assays.py [--repeats 10]

Needs the R package MultiAssayExperiment and the extra "r". Prints the figures in
docs/user_guide/missing_views.md: areas under the ROC curve and accuracies of predicting
who had died, out of fold, in repeated stratified five-fold cross-validation.
"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.dummy import DummyClassifier
from sklearn.impute import SimpleImputer
from sklearn.model_selection import RepeatedStratifiedKFold, cross_validate
from sklearn.pipeline import make_pipeline

from kernelweave import MultipleKernelFDA
from kernelweave.datasets import fetch_views

parser = argparse.ArgumentParser()
parser.add_argument("--repeats", type=int, default=10)
repeats = parser.parse_args().repeats

acc = fetch_views("miniACC", as_frame=False)
X, y, views = acc.data, acc.target, acc.views
for name, _, columns in views:
    if "Seq" in name:  # counts
        X[:, columns] = np.log1p(X[:, columns])
lacks = np.stack([np.isnan(X[:, own]).all(axis=1) for _, _, own in views], axis=1)
for (name, _, _), count in zip(views, lacks.sum(axis=0), strict=True):
    print(f"{name:16} missing for {count} patients")
print(f"{lacks.any(axis=1).sum()} of {len(X)} patients lack an assay")

common = [view for view in views if view[0] in ("gistict", "Mutations")]
models = {
    "dummy": DummyClassifier(),
    "available": MultipleKernelFDA(views, missing="available"),
    "zero": MultipleKernelFDA(views, missing="zero"),
    "column means": make_pipeline(SimpleImputer(), MultipleKernelFDA(views)),
    "the two common assays": MultipleKernelFDA(common, missing="zero"),
}
folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=repeats, random_state=0)
for name, model in models.items():
    scores = cross_validate(model, X, y, cv=folds, scoring=("roc_auc", "accuracy"))
    line = f"{name:22}"
    for kind in ("roc_auc", "accuracy"):
        each = scores[f"test_{kind}"].reshape(repeats, 5).mean(axis=1)
        line += f"  {kind} {each.mean():.3f} (sd {each.std(ddof=1):.3f} over repeats)"
    print(line)
