"""Turn y into a label kernel ``H = L L'``: by name, matrix over classes or function."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave.fits.label_kernels import label_factor, target_factor
from kernelweave.models.shared.targets import (
    as_outputs,
    check_targets,
    encode_labels,
    require_rows,
)

__all__ = ["read_label_factor"]


def read_label_factor(
    X: Any, y: Any, kernel: Any, owner: str
) -> tuple[np.ndarray, np.ndarray | None]:
    """The factor L (n, r) for the rows of X, and the classes (k,) if y holds classes.

    ``kernel`` is the ``label_kernel`` of :class:`~kernelweave.SubspaceKernel`;
    ``owner`` names the estimator in messages.
    """
    y, kind = check_targets(X, y, owner)
    named, classes = isinstance(kernel, str), None
    if kind in ("binary", "multiclass") and not (named and kernel == "linear"):
        classes, codes = encode_labels(y, owner)
        given = kernel
        if callable(kernel):
            given = kernel(classes[:, None], classes[:, None])
        return label_factor(codes, len(classes), given), classes
    if callable(kernel):
        return _of_outputs(y, kernel, owner), None
    if not named or kernel == "indicator":
        raise ValueError(
            f"label_kernel={kernel!r} needs class labels, but y is {kind}; use "
            "'linear' or a callable for numbers"
        )
    outputs = as_outputs(y, kind, owner)
    require_rows(outputs, owner)
    return target_factor(outputs), None


def _of_outputs(y: np.ndarray, kernel: Any, owner: str) -> np.ndarray:
    """The factor of a function of the distinct rows of outputs."""
    values, codes = np.unique(y.reshape(len(y), -1), axis=0, return_inverse=True)
    if len(values) < 2:
        raise ValueError(
            f"{owner} needs at least 2 distinct rows of outputs in y; all {len(y)} are "
            f"{values.tolist()[0]!r}"
        )
    return label_factor(codes.reshape(-1), len(values), kernel(values, values))
