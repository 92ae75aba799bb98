"""The convex problem behind the weights of a fitted model, ready to be solved again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import is_classifier, is_regressor
from sklearn.utils.multiclass import type_of_target

from kernelweave._array import from_numpy, largest_of, namespace
from kernelweave.fits.design import RowDesign
from kernelweave.inspection._rows import model_and_rows, targets_of
from kernelweave.inspection.view_permutation import training_rows
from kernelweave.kernels import DenseBank
from kernelweave.kernels.banks.dense import take_square
from kernelweave.kernels.centering import center_in_place, lost_in_centring
from kernelweave.kernels.maps.missing import spread_out
from kernelweave.models.shared.base import shares_of_views
from kernelweave.models.shared.inputs import first_kernel
from kernelweave.protocols import Bank, Criterion
from kernelweave.solvers import Solution, solve
from kernelweave.solvers.solve import find_weights
from kernelweave.views.missing import ObservedViews

#: Relative gap to which a problem is solved again: it leaves the weights uncertain by
#: about its square root, well below the spread between samples.
LOOSE = 1e-5
#: Beyond this share of the largest entry of a kernel, a difference is not rounding.
SAME_VALUE = 1e-3
#: Beyond this relative difference between the bounds on two optima, they are not the
#: same, in each precision.
SAME_OPTIMUM = {32: 1e-3, 64: 1e-6}


@dataclass(frozen=True)
class WeightProblem:
    """``min J(w)`` over the kernels of a fitted model, for any subset of its rows.

    Attributes
    ----------
    model : estimator
        The fitted model.
    bank : Bank
        Those p of its kernels that vary over the training rows, centred, of trace n
        (with row weights, in the weighted sense, but not multiplied by their roots).
    views : list of str of length p
        The view of each of them.
    names : list of str
        All views, including those whose kernels are all constant.
    targets : ndarray of shape (n,) or (n, t)
        Outputs (n, t), or codes (n,) of classes from 0.
    classes : ndarray of shape (k,) or None
        The labels that the codes stand for; None if the targets are outputs.
    design : RowDesign
        The weight of each row.
    observed : ndarray of bool of shape (p, n)
        Which rows have which kernel; other entries of the kernel are zero.
    """

    model: Any
    bank: Bank
    views: list[str]
    names: list[str]
    targets: np.ndarray
    classes: np.ndarray | None
    design: RowDesign
    observed: np.ndarray

    @property
    def n_rows(self) -> int:
        """The number n of training rows."""
        return self.bank.n_samples

    def restricted(self, rows: np.ndarray) -> Bank:
        """The kernels over some rows (r,), centred and scaled again for these rows."""
        each, bank = self.design.restrict(rows).weights, self.bank
        return DenseBank(self._taken([rows] * bank.n_kernels, each), bank.names)

    def shuffled(self, orders: dict[str, np.ndarray]) -> list[Any]:
        """The kernels (n, n) with the rows of each view in another order (n,)."""
        own = [orders[view] for view in self.views]
        if self.design.weights is None:  # the order changes neither mean nor trace
            return [take_square(self.bank.kernel(i), o) for i, o in enumerate(own)]
        return list(self._taken(own, self.design.weights))

    def _taken(self, rows: list[np.ndarray], each: np.ndarray | None) -> Any:
        """Some rows (r,) of each kernel, (p, r, r), with the weights ``each`` (r,).

        Centred over the r_i rows that have the kernel, of trace r_i; zero elsewhere.
        """
        found = []
        for i, own in enumerate(rows):
            gram, seen = self.bank.kernel(i), self.observed[i, own]
            if np.sum(seen) < 2:
                found.append(take_square(gram, own) * 0.0)
                continue
            shares = None
            if each is not None:
                shares = from_numpy(each[seen] / np.sum(each[seen]), gram)
            part = take_square(gram, own[seen])
            center_in_place(part, shares=shares)
            found.append(spread_out(part, seen, seen))
        return namespace(found[0]).stack(found)

    def criterion(self, bank: Bank, rows: np.ndarray) -> Criterion:
        """The criterion that the model minimises, for kernels over ``rows``.

        The kernels are those of the rows themselves, centred with their weights but not
        multiplied by the roots.
        """
        design = self.design.restrict(rows)
        criterion: Criterion = self.model._weight_criterion(
            bank, self.targets[rows], design
        )
        return criterion

    def solution(self, bank: Bank, rows: np.ndarray, tol: float = LOOSE) -> Solution:
        """Minimise the criterion for kernels over ``rows``."""
        return solve(self.criterion(bank, rows), self.model._weight_set, tol=tol)

    def weights(self, bank: Bank, rows: np.ndarray, tol: float = LOOSE) -> np.ndarray:
        """Kernel weights (p,) learned on ``rows``, without that of the identity."""
        minimum = find_weights(
            self.criterion(bank, rows), self.model._weight_set, tol=tol
        )
        weights = minimum.weights[-bank.n_kernels :]
        if np.any(weights):
            weights = self.model._weight_set.scale(weights)
        return np.asarray(weights)

    def shares(self, weights: np.ndarray) -> np.ndarray:
        """The share of every view in ``names``, (v,); 0 where no kernel varies."""
        shares = shares_of_views(self.views, weights)
        return np.array([shares.get(name, 0.0) for name in self.names])


def problem_of(estimator: Any, X: Any, y: Any, caller: str) -> WeightProblem:
    """The convex problem whose solution is the weights of a fitted model.

    Parameters
    ----------
    estimator : estimator
        Fitted estimator, or a Pipeline or search that ends in one.
    X, y : array-like
        The rows and targets it was fitted on.
    caller : str
        The function that asks, for messages.

    Raises
    ------
    TypeError
        If the convex problem of the weights is not known, or there is none.
    ValueError
        If its parameters fix the weights, or X and y are not those of the fit.
    """
    model, X = model_and_rows(estimator, X)
    _refuse_other_models(model, caller)
    kernel_map = model.kernel_map_
    if model._precomputed:  # before the shape is taken for that of new rows
        _check_number(model, len(first_kernel(X)), caller)
    try:
        rows = model._observed_rows(X, caller)
    except ValueError as error:  # of kernels of other rows than those that lack them
        if not (model._precomputed and model._gaps):
            raise
        what = f"X cannot be read as their kernels ({error})"
        raise _other_data(model, caller, what) from error
    bank = _training_bank(model, rows, caller)
    y = targets_of(y, caller)
    if len(y) != bank.n_samples:
        what = f"it was fitted on {bank.n_samples} rows, but y has {len(y)}"
        raise _other_data(model, caller, what)
    of_classes = type_of_target(y) in ("binary", "multiclass")
    if is_classifier(model) and not of_classes:
        what = "it was fitted on classes, and y holds numbers"
        raise _other_data(model, caller, what)
    if of_classes and not is_regressor(model):
        classes, targets = np.unique(y, return_inverse=True)
    else:
        classes, targets = None, y.reshape(len(y), -1).astype(np.float64)
    seen = np.ones((bank.n_kernels, bank.n_samples), dtype=bool)
    if kernel_map.seen is not None and not kernel_map.repairs:
        seen = kernel_map.observed[:, kernel_map.active].T
    problem = WeightProblem(
        model=model,
        bank=bank,
        views=[kernel_map.view_names[i] for i in kernel_map.active],
        names=list(dict.fromkeys(kernel_map.view_names)),
        targets=targets,
        classes=classes,
        design=RowDesign(len(y), kernel_map.row_weights),
        observed=seen,
    )
    _check_value(problem, caller)
    return problem


def _refuse_other_models(model: Any, caller: str) -> None:
    """Refuse models whose weights are not the solution of a convex problem."""
    owner = type(model).__name__
    if model._weight_criterion is None:
        raise TypeError(
            f"{caller} solves the convex problem of the weights again, and knows that "
            "of MultipleKernelFDA, MultipleKernelRidge, MultipleKernelSVC and "
            f"KernelAlignment, for example; got {owner}"
        )
    why = ""
    if model.method == "independent":
        why = "method='independent' weights each kernel separately; use method='joint'"
    elif "norm" in model._weight_set.offers and np.isinf(model._weight_set.norm):
        why = (
            "the norm of the weights is inf, so all weights are equal by definition "
            "and say nothing about the views; fit with norm=1, 4/3 or 2 to learn them"
        )
    elif model.signed:
        why = "weights of both signs cannot be read as shares; use signed=False"
    elif not (model.centre and model.scale == "trace"):
        why = (
            f"centre={model.centre!r} and scale={model.scale!r}, but kernels on part "
            "of the rows are centred and scaled again; leave both at their defaults"
        )
    elif model.unlabelled is not None:
        why = "some of its rows may have no label; fit the labelled rows alone"
    elif model.kernel_map_.source is None:
        why = (
            "it was fitted on explicit features, and only moments were kept; fit "
            "the same model on a sample of the rows that is small enough for exact "
            "kernels"
        )
    if why:
        raise ValueError(f"{caller} cannot judge the weights of this {owner}: {why}")


def _training_bank(model: Any, rows: Any, caller: str) -> Bank:
    """The kernels of the fit, computed again from its rows."""
    kernel_map = model.kernel_map_
    active = list(kernel_map.active)
    grams = list(kernel_map.centred(rows, active))
    _check_number(model, grams[0].shape[0], caller)
    for i, gram in zip(active, grams, strict=True):
        _check_rows(model, i, gram, rows, caller)
    names = [kernel_map.names[i] for i in active]
    return DenseBank(namespace(grams[0]).stack(grams), names)


def _other_data(model: Any, caller: str, what: str) -> ValueError:
    """The error for rows or targets that are not those of the fit."""
    return ValueError(
        f"{caller} needs the rows and targets that the {type(model).__name__} was "
        f"fitted on, in the same order: {what}. Pass the X and y that fit was given, "
        "or fit again"
    )


def _check_number(model: Any, m: int, caller: str) -> None:
    """Refuse more or fewer rows than those of the fit."""
    n = model.kernel_map_.source.n_samples
    if m != n:
        what = f"it was fitted on {n} rows, and X has {m}; rows of weight 0 do not "
        raise _other_data(model, caller, what + "take part in a fit")


def _check_rows(
    model: Any, i: int, gram: Any, rows: ObservedViews, caller: str
) -> None:
    """Refuse rows (n,) whose kernel i with the training rows (n, n) is not their own.

    A kernel of the training rows with themselves is symmetric. If its values are given,
    a symmetric one may be that of other rows, but its columns then have other means.
    """
    kernel_map, xp = model.kernel_map_, namespace(gram)
    centering = kernel_map.centerings[i]
    largest = largest_of(gram)
    lost = lost_in_centring(gram, centering)
    allowed = max(SAME_VALUE * largest, lost)
    apart = largest_of(gram - gram.T)
    if kernel_map.seen is None:  # otherwise a row that lacks the view has no entries
        n = gram.shape[0]
        each = kernel_map.row_weights
        shares = np.full(n, 1.0 / n) if each is None else each / np.sum(each)
        means = from_numpy(shares, gram) @ gram
        apart = max(apart, float(xp.max(xp.abs(means))))
    if apart <= allowed:
        return
    what = "X has as many rows, but other values, or the same rows in another order"
    count = None if model._precomputed else training_rows(model, rows.blocks)
    if count is not None and count < len(gram):
        what = f"X has as many rows, but only {count} of them are rows of the fit"
    elif count is not None:
        what = "X holds rows of the fit in another order"
    raise _other_data(model, caller, what)


def _check_value(problem: WeightProblem, caller: str) -> None:
    """Refuse targets whose optimum is not the certified one."""
    everything = np.arange(problem.n_rows)
    solution = problem.solution(problem.bank, everything)
    value, gap = solution.value, solution.value - solution.lower_bound
    model, certificate = problem.model, problem.model.certificate_
    like = problem.bank.like
    rounding = SAME_OPTIMUM[namespace(like).finfo(like.dtype).bits]
    allowed = 2.0 * certificate.gap + rounding
    if not abs(value - certificate.value) <= gap + allowed * abs(certificate.value):
        raise _other_data(
            model,
            caller,
            "X holds these rows, but y has other targets, or the same in another "
            f"order; its certified optimum is {certificate.value:.6g}, but that of X "
            f"and y is {value:.6g}",
        )
