"""Checks of y: labels or numbers, one per row of X."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from kernelweave._array import is_array, to_numpy

__all__ = [
    "as_outputs",
    "check_labels",
    "check_outputs",
    "check_targets",
    "encode_labels",
    "require_rows",
    "require_targets",
]


def require_targets(y: Any, owner: str) -> Any:
    """Targets in host memory; ``owner`` names the estimator that needs them."""
    if y is None:
        raise ValueError(f"{owner} requires y to be passed, but the target y is None")
    return to_numpy(y) if is_array(y) else y


def check_labels(X: Any, y: Any, owner: str) -> np.ndarray:
    """The labels (n,) of the rows of X."""
    y = column_or_1d(require_targets(y, owner), warn=True)
    if y.dtype.kind == "f":
        assert_all_finite(y, input_name="y")
    check_classification_targets(y)
    check_consistent_length(X, y)
    return y


def encode_labels(labels: np.ndarray, owner: str) -> tuple[np.ndarray, np.ndarray]:
    """The classes (k,), at least two of them, and the codes (n,) of labels (n,)."""
    classes, codes = np.unique(labels, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"{owner} needs at least 2 classes in y; the {len(labels)} sample(s) "
            f"contain 1 class: {classes.tolist()[0]!r}"
        )
    return classes, codes.reshape(-1)


def check_outputs(X: Any, y: Any, owner: str) -> np.ndarray:
    """The outputs of the rows of X as (n, n_outputs) in float64."""
    y = check_array(
        require_targets(y, owner), ensure_2d=False, dtype=np.float64, input_name="y"
    )
    check_consistent_length(X, y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = column_or_1d(y, warn=True)
    return y.reshape(len(y), -1)


def require_rows(outputs: np.ndarray, owner: str) -> None:
    """Refuse a single row, which has no variance to explain."""
    if len(outputs) < 2:
        raise ValueError(f"{owner} needs at least 2 rows; found 1 sample")


def check_targets(X: Any, y: Any, owner: str) -> tuple[np.ndarray, str]:
    """Labels or numbers as an array, and scikit-learn's type of target."""
    y = np.asarray(require_targets(y, owner))
    check_consistent_length(X, y)
    if y.dtype.kind == "f":
        assert_all_finite(y, input_name="y")
    return y, type_of_target(y, input_name="y")


def as_outputs(y: np.ndarray, kind: str, owner: str) -> np.ndarray:
    """Checked targets that are not classes, as (n, n_outputs) in float64."""
    if y.dtype.kind not in "fiub":
        raise ValueError(
            f"Unknown label type: {kind!r}. {owner} takes class labels or numbers"
        )
    return check_array(y.reshape(len(y), -1), dtype=np.float64, input_name="y")
