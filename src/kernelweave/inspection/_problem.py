"""The convex problem behind the weights of a fitted model, ready to be solved again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np

from kernelweave._array import from_numpy, namespace
from kernelweave.inspection._criteria import criteria_of, norm_of
from kernelweave.inspection._rows import model_and_rows
from kernelweave.kernels import DenseBank, center_and_scale
from kernelweave.kernels.banks.dense import take_square
from kernelweave.kernels.maps.kernel_map import center_in_place
from kernelweave.kernels.maps.missing import spread_out
from kernelweave.models import (
    KernelAlignment,
    MultipleKernelFDA,
    MultipleKernelRidge,
    MultipleKernelSVC,
)
from kernelweave.models.shared.base import shares_of_views
from kernelweave.models.shared.learner import weight_set_of_norm
from kernelweave.protocols import Bank, Criterion, WeightSet
from kernelweave.solvers import Solution, solve

#: Relative gap to which a problem is solved again: the weights it leaves undetermined
#: differ by about its square root, well below the spread between samples.
LOOSE = 1e-5
#: Relative difference from the certified value beyond which X and y are not those of
#: the fit; single precision and loose tolerances of a fit stay below it.
SAME_VALUE = 1e-3


def require_count(name: str, value: Any, least: int) -> None:
    """Refuse a number of repetitions that is not an integer of at least ``least``."""
    if not (isinstance(value, Integral) and int(value) >= least):
        raise ValueError(f"{name} must be an int >= {least}, got {value!r}")


@dataclass(frozen=True)
class WeightProblem:
    """``min J(w)`` over the kernels of a fitted model, for any subset of its rows.

    Attributes
    ----------
    owner : str
        The class of the model, for messages.
    bank : Bank
        Its p kernels that vary over the training rows, centred, of trace n (with
        row weights: as often as rows count, but not multiplied by their roots).
    views : list of str of length p
        The view of each of them.
    names : list of str
        All views, including those whose kernels are all constant.
    criteria : callable
        ``criteria(bank, rows)``: the criteria whose mean weights the model reports,
        for kernels over these training rows (several for one set of weights per
        class).
    weight_set : WeightSet
        The allowed weights.
    strata : ndarray of int of shape (n,) or None
        The class of each row; None for regression.
    observed : ndarray of bool of shape (n, p) or None
        If kernels are zero for rows that lack their view: which rows have which.
    completed : bool
        Whether gaps of kernels were filled from the other kernels.
    row_weights : ndarray of shape (n,) or None
        How often each row counts; None if once.
    """

    owner: str
    bank: Bank
    views: list[str]
    names: list[str]
    criteria: Callable[[Bank, np.ndarray], list[Criterion]]
    weight_set: WeightSet
    strata: np.ndarray | None = None
    observed: np.ndarray | None = None
    completed: bool = False
    row_weights: np.ndarray | None = None

    @property
    def n_rows(self) -> int:
        """The number n of training rows."""
        return self.bank.n_samples

    def restricted(self, rows: np.ndarray) -> Bank:
        """The kernels over some rows (r,), centred and scaled again for these rows."""
        rows = np.sort(rows)
        part = self.bank.restrict(rows)
        each = None if self.row_weights is None else self.row_weights[rows]
        grams = [part.kernel(i) for i in range(part.n_kernels)]
        seen = None if self.observed is None else self.observed[rows].T
        return DenseBank(_standardised(grams, each, seen), part.names)

    def shuffled(self, orders: dict[str, np.ndarray]) -> list[Any]:
        """The kernels (n, n) with the rows of each view in another order (n,)."""
        own = [orders[view] for view in self.views]
        grams = [take_square(self.bank.kernel(i), o) for i, o in enumerate(own)]
        if self.row_weights is None:  # the order changes neither mean nor trace
            return grams
        seen = None
        if self.observed is not None:
            seen = np.stack([self.observed[o, i] for i, o in enumerate(own)])
        return list(_standardised(grams, self.row_weights, seen))

    def solutions(
        self, bank: Bank, rows: np.ndarray, tol: float = LOOSE
    ) -> list[Solution]:
        """Solve every criterion for kernels over ``rows``."""
        criteria = self.criteria(bank, rows)
        return [solve(one, self.weight_set, tol=tol) for one in criteria]

    def weights(self, bank: Bank, rows: np.ndarray, tol: float = LOOSE) -> np.ndarray:
        """Kernel weights (p,) learned on ``rows``; without the identity, if learned."""
        scale, found = self.weight_set.scale, []
        for solution in self.solutions(bank, rows, tol):
            own = solution.weights[-bank.n_kernels :]
            found.append(scale(own) if np.any(own) else own)
        return np.mean(found, axis=0)

    def shares(self, weights: np.ndarray) -> np.ndarray:
        """The share of every view in ``names``, (v,)."""
        shares = shares_of_views(self.views, weights)
        return np.array([shares[name] for name in self.names])


def _standardised(
    grams: list[Any], each: np.ndarray | None, seen: np.ndarray | None
) -> Any:
    """Kernels (p, n, n), centred and scaled for rows that count ``each`` (n,) times.

    With ``seen`` (p, n), only over the rows that have a kernel.
    """
    stack = namespace(grams[0]).stack(grams)
    if seen is None:
        return center_and_scale(stack, each)
    for i, own in enumerate(seen):
        stack[i, :, :] = _centred_where(stack[i, :, :], own, each)
    return stack


def _centred_where(gram: Any, seen: np.ndarray, each: np.ndarray | None) -> Any:
    """A zero-filled kernel (n, n), centred over the rows that have it, of trace n_i."""
    if np.sum(seen) < 2:
        return gram * 0.0
    own = take_square(gram, np.flatnonzero(seen))
    shares = None
    if each is not None:
        shares = from_numpy(each[seen] / np.sum(each[seen]), gram)
    center_in_place(own, shares=shares)
    return spread_out(own, seen, seen)


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
        If the model does not learn weights by solving a convex problem.
    ValueError
        If its parameters fix the weights, or X and y are not those of the fit.
    """
    model, X = model_and_rows(estimator, X)
    _refuse_other_models(model, caller)
    rows = model._rows(X, caller)
    bank = _training_bank(model, rows, caller)
    kernel_map = model.kernel_map_
    build, strata = criteria_of(model, y, caller)
    gaps = getattr(kernel_map, "observed", None)
    gaps = None if gaps is None else gaps[:, kernel_map.active]
    has_gaps = gaps is not None and not np.all(gaps)
    problem = WeightProblem(
        owner=type(model).__name__,
        bank=bank,
        views=[kernel_map.view_names[i] for i in kernel_map.active],
        names=list(dict.fromkeys(kernel_map.view_names)),
        criteria=build,
        weight_set=weight_set_of_norm(norm_of(model), fixed=False),
        strata=strata,
        observed=gaps if has_gaps and model.missing == "zero" else None,
        completed=has_gaps and model.missing == "available",
        row_weights=kernel_map.row_weights,
    )
    _check_value(model, problem, caller)
    return problem


def _refuse_other_models(model: Any, caller: str) -> None:
    """Refuse models whose weights are not the solution of a convex problem."""
    owner, alpha = type(model).__name__, getattr(model, "alpha", None)
    learners = (
        MultipleKernelFDA,
        MultipleKernelRidge,
        MultipleKernelSVC,
        KernelAlignment,
    )
    if not isinstance(model, learners):
        raise TypeError(
            f"{caller} needs weights that solve a convex problem on the kernels; "
            f"{owner} does not learn its weights that way. Use one of "
            f"{', '.join(kind.__name__ for kind in learners)}"
        )
    why = ""
    if getattr(model, "objective", "fisher") == "loo":
        why = "objective='loo' is not a convex problem; use objective='fisher'"
    elif getattr(model, "method", "joint") == "independent":
        why = "method='independent' weights each kernel by itself; use method='joint'"
    elif np.isinf(norm_of(model)):
        why = (
            "the norm of the weights is inf, so all weights are equal by definition "
            "and say nothing about the views; fit with norm=1, 4/3 or 2 to learn them"
        )
    elif getattr(model, "signed", False):
        why = "signed=True: weights of both signs are no shares; use signed=False"
    elif getattr(model, "scatter", "") == "within" and alpha == "loo":
        why = (
            "with scatter='within' and alpha='loo' the weights were learned at a "
            f"provisional alpha; fit with alpha={model.alpha_:.3g}, for example"
        )
    elif not (model.centre and model.scale == "trace"):
        why = (
            f"centre={model.centre!r} and scale={model.scale!r}: the kernels of some "
            "of the rows would be centred and scaled anew; leave both at their defaults"
        )
    elif getattr(model, "unlabelled", None) is not None:
        why = "some of its rows may have no label; fit the labelled rows alone"
    elif not hasattr(model.kernel_map_, "centred"):
        why = (
            "it was fitted on explicit features, of which only moments were kept; fit "
            "the same model on a sample of the rows, small enough for kernels between "
            "all of them"
        )
    if why:
        raise ValueError(f"{caller} cannot judge the weights of this {owner}: {why}")


def _training_bank(model: Any, rows: Any, caller: str) -> Bank:
    """The kernels of the fit, computed again from its rows."""
    kernel_map = model.kernel_map_
    active = list(kernel_map.active)
    grams = list(kernel_map.centred(rows, active))
    m, n = grams[0].shape
    if m != n:
        raise ValueError(
            f"{caller} needs the rows that the {type(model).__name__} was fitted on: "
            f"it was fitted on {n} rows, and X has {m}; rows of weight 0 are no part "
            "of a fit"
        )
    names = [kernel_map.names[i] for i in active]
    return DenseBank(namespace(grams[0]).stack(grams), names)


def _check_value(model: Any, problem: WeightProblem, caller: str) -> None:
    """Refuse rows or targets whose optimum is not the certified one."""
    everything = np.arange(problem.n_rows)
    value = sum(s.value for s in problem.solutions(problem.bank, everything))
    certified = model.certificate_.value
    allowed = max(SAME_VALUE, 2.0 * model.certificate_.gap) * abs(certified)
    if not abs(value - certified) <= allowed:
        raise ValueError(
            f"{caller} needs the rows and targets that the {problem.owner} was fitted "
            f"on: its certified optimum is {certified:.6g}, that of X and y {value:.6g}"
        )
