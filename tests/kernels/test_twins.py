"""Views that compute the same kernel: which count as twins, and which do not."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from kernelweave.exceptions import KernelWarning
from kernelweave.kernels import RBF, Linear, Pipe, Polynomial
from kernelweave.kernels.spec import warn_twins
from kernelweave.views.columns import View


def gram(X, Z):
    return X @ Z.T


def other_gram(X, Z):
    return X @ Z.T


def warnings_of(*views):
    """The warnings about views (kernel, columns) named v0, v1, ..."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_twins(
            [View(f"v{i}", *view) for i, view in enumerate(views)],
            [columns for _, columns in views],
        )
    assert all(issubclass(warning.category, KernelWarning) for warning in caught)
    assert issubclass(KernelWarning, UserWarning)
    return [str(warning.message) for warning in caught]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("auto", "auto"),
        ("rbf", RBF()),
        (RBF(gamma=0.1), RBF(gamma=np.float64(0.1))),
        (RBF(gamma=0.1), ["linear", ("cosine", RBF(gamma=0.1))]),
        (gram, gram),
        (Pipe(StandardScaler(), "rbf"), Pipe(StandardScaler(), ["linear", RBF()])),
        (Pipe(PCA(2), Pipe(StandardScaler(), "auto")),) * 2,
        (Pipe(FunctionTransformer(kw_args={"a": 1}), "rbf"),) * 2,
        tuple(
            Pipe(OneHotEncoder(categories=[[1, 2], np.array([3, 4])]), "rbf")
            for _ in range(2)
        ),
    ],
)
def test_twins(one, other):
    (message,) = warnings_of((one, [0, 2]), (other, [0, 2]))
    assert "the views 'v0' and 'v1' have a kernel" in message
    assert "cannot be told apart" in message


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("auto", "rbf"),
        (RBF(gamma=0.1), RBF(gamma=0.2)),
        (Linear(), Polynomial(1)),
        (gram, other_gram),
        (Pipe(PCA(2), "rbf"), Pipe(PCA(3), "rbf")),
        (Pipe(PCA(2), "rbf"), "rbf"),
        tuple(
            Pipe(OneHotEncoder(categories=[[1, 2], np.array([3, last])]), "rbf")
            for last in (4, 5)
        ),
        (Pipe(PCA(2), "rbf"), Pipe(StandardScaler(), "rbf")),
    ],
)
def test_other_kernels_are_no_twins(one, other):
    assert warnings_of((one, [0, 2]), (other, [0, 2])) == []


def test_other_columns_are_no_twins():
    assert warnings_of(("auto", [0, 1, 2]), ("auto", [2, 3]), ("auto", [0, 1])) == []
    assert warnings_of((["rbf", RBF()], [0, 1])) == []  # duplicates within a view


def test_the_order_of_columns_counts_where_a_kernel_may_look_at_it():
    for kernel in ("auto", "rbf", Polynomial(3)):
        assert len(warnings_of((kernel, [0, 2]), (kernel, [2, 0]))) == 1
    assert warnings_of((gram, [0, 2]), (gram, [2, 0])) == []


def test_one_warning_for_all():
    (message,) = warnings_of(
        (["rbf", "linear"], [0]), ("auto", [1]), ("auto", [1]), (["linear", "rbf"], [0])
    )
    assert "the views 'v0' and 'v3'; 'v1' and 'v2' have" in message
