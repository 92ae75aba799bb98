"""``kernelweave demo``: which views of a tumour tell whether it is malignant?"""

from __future__ import annotations

import argparse

import numpy as np
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import kernelweave
from kernelweave.cli.folder import new_results
from kernelweave.cli.held_out import new_rows
from kernelweave.cli.output import print_fit, print_table, timed_fit, write_results
from kernelweave.datasets import load_breast_cancer_views
from kernelweave.models import KernelFDA, MultipleKernelFDA

N_NOISE = 10


def run_demo(options: argparse.Namespace) -> None:
    """Learn view weights on bundled data, compare models, print and write results.

    Parameters
    ----------
    options : argparse.Namespace
        The command-line options; see ``kernelweave demo --help``.
    """
    with new_results(options.out) as draft:
        cancer = load_breast_cancer_views(as_frame=False)
        noise = np.random.default_rng(0).standard_normal((len(cancer.data), N_NOISE))
        X = np.hstack([cancer.data, noise])  # (569, 40)
        y = cancer.target_names[cancer.target]
        views = [*cancer.views, ("noise", "auto", slice(-N_NOISE, None))]
        rows = np.arange(len(X))
        train, test = train_test_split(rows, stratify=y, random_state=0)
        print(
            f"kernelweave {kernelweave.__version__}: which views tell malignant "
            "tumours from benign ones?\n\n"
            f"Data: {len(X)} tumours (breast cancer in Wisconsin, from scikit-learn), "
            f"{len(train)} to learn\nfrom and {len(test)} to test on. Views: the mean, "
            "the error and the worst value of ten\nmeasurements of cell nuclei, and "
            "ten columns of pure noise.\n"
        )
        learned = MultipleKernelFDA(views)
        seconds, _ = timed_fit(learned, X[train], y[train])
        print_fit(learned, seconds)
        print(f"\nAccuracy on the {len(test)} tumours the models have not seen:\n")
        baselines = {
            "KernelFDA, equal weights": KernelFDA(views),
            "scikit-learn's SVC, RBF kernel, all columns": make_pipeline(
                StandardScaler(), SVC()
            ),
        }
        fits = {"MultipleKernelFDA, learned weights": (learned, seconds)}
        for name, model in baselines.items():
            fits[name] = model, timed_fit(model, X[train], y[train])[0]
        print_table(
            ("model", "accuracy", "seconds"),
            [
                (name, f"{100 * model.score(X[test], y[test]):.1f} %", f"{took:.2f}")
                for name, (model, took) in fits.items()
            ],
        )
        how = f"{len(test)} tumours that the model has not seen"
        held_out = new_rows(learned, X[test], y[test], how)
        write_results(draft, learned, held_out, {"row": rows[test], "class": y[test]})
