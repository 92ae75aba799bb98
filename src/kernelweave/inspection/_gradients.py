r"""Gradients of kernel expansions, through the transformers before the kernel.

For :math:`f_c(u) = \sum_j a_{jc} k(u, v_j)` on transformed rows :math:`u = t(x)`, the
chain rule gives :math:`\nabla_x f = J' \nabla_u f`, with the matrix J of t where t is
affine.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.decomposition import PCA
from sklearn.preprocessing import StandardScaler

from kernelweave._array import Array, from_numpy, to_numpy
from kernelweave.kernels.base import Kernel
from kernelweave.kernels.encoding import ColumnEncoder
from kernelweave.kernels.functions import Standardizer, apply_step, divided
from kernelweave.views.raw_columns import Columns

#: Deviation from an affine function, relative to the effect of one standard deviation
#: of every column, up to which a transformer counts as affine; the rest is rounding.
AFFINE = 1e-7
#: Columns whose divided differences are taken in one call of a transformer.
PROBED_COLUMNS = 256


def no_gradient(why: str, instead: str = "view_permutation_importance") -> TypeError:
    """The error for columns without a known gradient: why, and what to use instead."""
    rows = "sklearn.inspection.permutation_importance on held-out rows"
    return TypeError(f"{why}; use {instead}, or {rows}")


def columns_with_gaps() -> TypeError:
    """The error for columns of a table that "auto" encodes."""
    return no_gradient("columns with gaps, which are filled, have no gradient")


def expansion_gradient(
    kernel: Kernel, U: np.ndarray, V: np.ndarray, A: np.ndarray
) -> np.ndarray:
    """Gradient (m, e, q) of ``sum_j A_jc k(u, v_j)`` at the rows of U, checked.

    Parameters
    ----------
    kernel : Kernel
        Resolved, without the steps of a pipe.
    U : ndarray of shape (m, e)
        Where the gradient is taken.
    V : ndarray of shape (n, e)
        The reference rows.
    A : ndarray of shape (n, q)
        Their coefficients.
    """
    try:
        gradient = np.asarray(kernel.gradient(U, V, A))
    except NotImplementedError as error:
        raise no_gradient(str(error)) from None
    wanted = (*U.shape, A.shape[1])
    if gradient.shape != wanted:
        raise ValueError(
            f"the gradient of the kernel {kernel.label!r} has the shape "
            f"{gradient.shape} instead of {wanted}: rows, columns, and columns of coef"
        )
    if not np.all(np.isfinite(gradient)):
        i, j, _ = np.argwhere(~np.isfinite(gradient))[0]
        raise ValueError(
            f"the gradient of the kernel {kernel.label!r} is NaN or infinite in column "
            f"{j} of row {i}; where a kernel has no derivative, return that of one side"
        )
    return gradient


def transformed(steps: tuple[Any, ...], X: Array) -> np.ndarray:
    """The rows of X (m, d) after all steps, (m, e), as float64."""
    if isinstance(X, Columns) and not X.is_numeric:
        raise no_gradient("columns that do not hold only numbers have no gradient")
    if isinstance(X, Columns) and (not steps or isinstance(steps[0], Standardizer)):
        X = X.numbers
    X = X.toarray() if issparse(X) else X
    with warnings.catch_warnings():  # rows that are scaled back have no names
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        for step in steps:
            X = apply_step(step, X)
    return to_numpy(X).astype(np.float64)


def step_matrices(steps: tuple[Any, ...], X: Array) -> list[np.ndarray]:
    """The matrix (e, d) of each step, or its diagonal (d,); ``X`` (m, d) are rows."""
    if steps and isinstance(steps[0], ColumnEncoder):
        raise columns_with_gaps()
    found = []
    for number, step in enumerate(steps):
        scaler = isinstance(step, Standardizer | StandardScaler)
        if scaler and step.scale_ is not None:
            found.append(1.0 / to_numpy(step.scale_).astype(np.float64))
        elif isinstance(step, PCA):
            width = np.sqrt(step.explained_variance_) if step.whiten else np.ones(1)
            found.append(step.components_ / width[:, None])
        else:
            found.append(_probed_matrix(step, transformed(steps[:number], X)))
    return found


def before_scaling(steps: tuple[Any, ...], rows: Array) -> Any:
    """The rows (m, d) of which steps that only scale and move columns made ``rows``."""
    for step in reversed(steps):
        if isinstance(step, StandardScaler):
            values = rows if issparse(rows) else to_numpy(rows)
            moved = step.inverse_transform(values)
            rows = moved if issparse(rows) else from_numpy(moved, rows)
        elif issparse(rows):  # only divided
            rows = divided(rows, 1.0 / step.scale_)
        else:
            rows = rows * step.scale_ + step.mean_
    return rows


def pull_back(gradient: np.ndarray, matrices: list[np.ndarray]) -> np.ndarray:
    """Gradient (m, d, q) in the columns before all steps, from (m, e, q) after."""
    for matrix in reversed(matrices):
        if matrix.ndim == 1:
            gradient = gradient * matrix[None, :, None]
        else:
            gradient = np.einsum("meq,ed->mdq", gradient, matrix, optimize=True)
    return gradient


def _probed_matrix(step: Any, rows: np.ndarray) -> np.ndarray:
    """The matrix (e, d) of a transformer, by steps of one deviation either way.

    Whether the transformer is affine is checked by its values on both sides of the mean
    row, and at the rows (m, d) themselves.
    """
    origin, spread = rows.mean(axis=0), rows.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    columns, errors = [], []
    with warnings.catch_warnings():  # a transformer of a table expects named columns
        warnings.filterwarnings("ignore", message="X does not have valid feature")
        start, after = apply_step(step, origin[None, :]), apply_step(step, rows)
        for first in range(0, len(origin), PROBED_COLUMNS):
            own = np.arange(first, min(first + PROBED_COLUMNS, len(origin)))
            shift = np.zeros((len(own), len(origin)))
            shift[np.arange(len(own)), own] = spread[own]
            up = apply_step(step, origin + shift) - start
            down = start - apply_step(step, origin - shift)
            errors.append(np.max(np.abs(up - down)))
            columns.append(up / spread[own, None])
    matrix = np.concatenate(columns).T
    errors.append(np.max(np.abs(after - start - (rows - origin) @ matrix.T)))
    size = np.max(np.abs(matrix) * spread, initial=0.0) * len(spread)
    if not max(errors) <= AFFINE * size:
        raise no_gradient(
            f"the transformer {type(step).__name__} is not linear, so the gradient "
            "does not pass through it to the columns of the view"
        )
    return matrix
