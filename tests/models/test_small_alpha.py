"""A regularisation smaller than the rounding of the kernels: an answer, or advice."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_wine

from estimators import EXPLICIT, ONE_EACH, in_turn, some, takes
from kernelweave import (
    Fisher,
    MultipleKernelRidge,
    Simplex,
    solve,
)
from kernelweave._array import FactorizationError
from kernelweave.criteria.fisher import WithinFisher
from kernelweave.exceptions import KernelWarning
from kernelweave.fits.targets import class_target
from kernelweave.kernels import RBF, DenseBank, center_and_scale

MODELS = some(
    [
        *ONE_EACH,
        *EXPLICIT,
        "MultipleKernelFDA",
        "MultipleKernelFDA-l2-learn",
        "MultipleKernelFDA-closed",
        "MultipleKernelFDA-cutting",
        "SubspaceKernel-uncorrelated",
        "SubspaceKernelSVC-plain",
    ],
    lambda model: takes("alpha")(model) or takes("noise")(model),
    cv=None,
)
#: Models on exact kernels.
FULL_RANK = [case for case in MODELS if case.id not in EXPLICIT]
VIEWS = [("a", "rbf", slice(0, 4)), ("b", "linear", slice(4, 13))]
ALPHAS = {
    "float64": (1e-15, 1e-17, 1e-300),
    "float32": (1e-7, 1e-40),
}
ADVICE = (
    r"^(alpha|noise)=(\S+) is too small for kernels in (float\d+): "
    r".*; use \1 >= ([^,]+)"
)

no_proof = pytest.mark.filterwarnings(
    # with so small an alpha rounding may keep the gap from closing
    "ignore::sklearn.exceptions.ConvergenceWarning"
)


def wine(dtype, rows=30):
    """A few rows of wine, some of them twice: no kernel has full rank."""
    X, y = load_wine(return_X_y=True)
    take = np.arange(0, 178, 178 // rows)[:rows]
    take = np.append(take, take[:6])
    return X[take].astype(dtype), y[take]


def regularized(model, alpha):
    name = "alpha" if "alpha" in model.get_params() else "noise"
    return clone(model).set_params(**{name: alpha})


def fit(model, X, y):
    model.fit(X, y)
    answer = model.transform(X) if hasattr(model, "transform") else model.predict(X)
    assert np.all(np.isfinite(answer))


@no_proof
@pytest.mark.filterwarnings("ignore:.*float32:kernelweave.exceptions.KernelWarning")
@in_turn(model=MODELS, dtype=list(ALPHAS))
def test_rounding_is_reported_with_an_alpha_that_works(model, dtype):
    X, y = wine(dtype)
    for alpha in ALPHAS[dtype]:
        candidate = regularized(model, alpha).set_params(views=VIEWS)
        try:
            fit(candidate, X, y)
        except ValueError as error:
            found = re.match(ADVICE, str(error))
            assert found is not None, error
            assert float(found[2]) == alpha
            assert found[3] == dtype
            fit(regularized(candidate, float(found[4])), X, y)


@no_proof
@in_turn(model=FULL_RANK, alpha=[1e-16, 1e-150])
def test_kernels_of_full_rank_need_none(model, alpha):
    rng = np.random.default_rng(0)
    parts = rng.normal(size=(2, 30, 60))
    K = np.moveaxis(parts @ parts.transpose(0, 2, 1), 0, 2)
    fit(regularized(model, alpha).set_params(views="precomputed"), K, np.arange(30) % 3)


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("alpha", [1e-17, 1e-300])
@pytest.mark.parametrize("criterion", ["total", "within"])
def test_solve_says_so_too(dtype, alpha, criterion):
    X, y = wine("float64")
    stack = center_and_scale(np.stack([X[:, :4] @ X[:, :4].T, X[:, 4:] @ X[:, 4:].T]))
    bank, target = DenseBank(stack.astype(dtype)), class_target(y, 3)
    for method in ("auto", "closed_form", "cutting_plane", "working_set"):
        problem = (
            Fisher(bank, target, alpha)
            if criterion == "total"
            else WithinFisher(bank, target, alpha, y)
        )
        with pytest.raises(ValueError, match=ADVICE):
            solve(problem, Simplex(), method)


def test_advice_is_never_what_was_tried(rng):
    """Centring a kernel with a large constant costs more digits than usual."""
    z = rng.normal(size=(30, 1))
    stack = center_and_scale(1e8 + (z @ z.T)[None])
    target = class_target(np.arange(30) % 2, 2)
    alpha = 1e-17
    for _ in range(30):
        try:
            Fisher(DenseBank(stack), target, alpha).evaluate(np.ones(1))
            break
        except FactorizationError as error:
            advised = float(re.match(ADVICE, str(error))[4])
            assert advised > 2 * alpha
            alpha = advised
    else:
        pytest.fail("thirty times the advice was not enough")


def test_kernels_that_are_not_finite_are_no_matter_of_alpha():
    stack = np.full((1, 6, 6), np.nan)
    target = class_target(np.arange(6) % 2, 2)
    with pytest.raises(ValueError, match="sum of kernels contains NaN"):
        solve(Fisher(DenseBank(stack), target, 0.1), Simplex())


@pytest.mark.measured
def test_single_precision_says_what_it_cannot_tell(rng):
    X = rng.normal(size=(60, 2)).astype(np.float32)
    model = MultipleKernelRidge([("v", RBF(gamma=0.05), slice(None))], norm=1, cv=None)
    with pytest.warns(KernelWarning, match="float32 cannot tell a smaller alpha"):
        model.set_params(alpha="loo").fit(X, np.sin(X[:, 0]))  # no noise: alpha -> 0
    model.set_params(features="nystroem", n_features=20, alpha=0.1)
    remarks = model.fit(X, np.sin(X[:, 0])).kernel_map_.remarks
    assert any("sums of products in float32" in remark for remark in remarks)
