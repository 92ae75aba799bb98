"""The learned weights as a table, for people and for other programs."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

__all__ = ["fitted_model", "to_csv", "weights_table"]


def weights_table(model: Any) -> list[dict[str, Any]]:
    """List the kernels of a fitted model with their weights.

    Parameters
    ----------
    model : estimator
        Fitted estimator of this package, or a Pipeline or search that ends in one.

    Returns
    -------
    rows : list of dict
        One row per kernel, in the order of ``kernel_weights_``: ``view``, ``kernel``,
        ``weight``, ``share`` (of the sum of all weights, so that shares sum to one) and
        ``view_weight`` (the sum over the view). ``pandas.DataFrame(rows)`` converts
        them to a DataFrame.

    Examples
    --------
    >>> from kernelweave import KernelFDA
    >>> from kernelweave.datasets import load_breast_cancer_views
    >>> from kernelweave.inspection import weights_table
    >>> cancer = load_breast_cancer_views()
    >>> model = KernelFDA(cancer.views).fit(cancer.data[:100], cancer.target[:100])
    >>> row = weights_table(model)[0]
    >>> row["view"], row["kernel"], round(row["share"], 3)
    ('mean', 'centred Linear()', 0.056)
    """
    model = fitted_model(model)
    total = float(np.sum(model.kernel_weights_))
    return [
        {
            "view": view,
            "kernel": name.removeprefix(f"{view}: "),
            "weight": float(weight),
            "share": float(weight) / total,
            "view_weight": model.view_weights_[view],
        }
        for view, name, weight in zip(
            model.kernel_map_.view_names,
            model.kernel_names_,
            model.kernel_weights_,
            strict=True,
        )
    ]


def to_csv(rows: Sequence[Mapping[str, Any]], path: str | PathLike[str]) -> None:
    """Write rows such as those of :func:`weights_table` to a CSV file.

    Parameters
    ----------
    rows : sequence of dict
        Rows with the same keys; the keys become the header.
    path : str or path
        The file; it is replaced if it exists.
    """
    if not rows:
        raise ValueError("there are no rows to write")
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def fitted_model(estimator: Any) -> Any:
    """The fitted estimator of this package inside a Pipeline or search."""
    while True:
        if hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif hasattr(estimator, "steps"):
            estimator = estimator.steps[-1][1]
        else:
            break
    check_is_fitted(estimator)
    if not hasattr(estimator, "kernel_weights_"):
        raise TypeError(
            "expected a fitted estimator of kernelweave, or a Pipeline or search that "
            f"ends in one; got {type(estimator).__name__}, which has no kernel weights"
        )
    return estimator
