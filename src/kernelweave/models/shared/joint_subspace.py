"""Weights, subspace and machines of the joint problem, on one bank of kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernelweave._array import Array, dot, from_numpy, namespace
from kernelweave._tolerances import reachable_tolerance
from kernelweave.criteria.margin import PlainSubspaceMargin, SubspaceMargin
from kernelweave.fits.ridge import LooPath, signs_of_codes
from kernelweave.fits.subspace import RegularizedKernel, SubspaceSVM, label_factor
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.models.shared.learner import weight_set_of_norm
from kernelweave.solvers.certify import Certificate, TraceRow, relative_gap
from kernelweave.solvers.local.subspace import JointSolution, solve_joint, solve_plain
from kernelweave.solvers.solve import solve

__all__ = ["JointFit", "JointOptions", "fit_joint"]

#: ``alpha="auto"`` for uncorrelated subspaces.
AUTO_ALPHA = 10.0

Callback = Callable[[TraceRow], object]


@dataclass(frozen=True)
class JointOptions:
    """The parameters of :class:`SubspaceKernelSVC` that a fit depends on."""

    n_components: int | None
    uncorrelated: bool
    C: float
    alpha: float | str
    norm: float
    solver: str
    tol: float
    max_iter: int | None


@dataclass(frozen=True)
class JointFit:
    """What was learned.

    Attributes
    ----------
    weights : ndarray of shape (p,)
        Kernel weights.
    alpha : float
        Regularisation of the subspace.
    subspace_coef : array of shape (n, r)
        Features are ``G(x) subspace_coef``.
    coef : array of shape (n, m)
        The machines are ``G(x) coef + intercepts``.
    intercepts : ndarray of shape (m,)
        Intercepts of the machines.
    certificate : Certificate
        What is known about weights and subspace together.
    searched : bool
        Whether the problem is not convex, so that a remaining gap is not a failure.
    n_iter : int
        Factorisations for the weights, plus rounds for the subspace.
    """

    weights: np.ndarray
    alpha: float
    subspace_coef: Array
    coef: Array
    intercepts: np.ndarray
    certificate: Certificate
    searched: bool
    n_iter: int


@dataclass(frozen=True)
class _Learned:
    """Weights for a subspace of any dimension, and what is known about them."""

    weights: np.ndarray  # (p,)
    duals: np.ndarray | None = None  # (n, m), from the closed form
    lower_bound: float = -np.inf  # for all weights and subspaces
    n_iter: int = 0
    remarks: tuple[str, ...] = ()
    proof: Certificate | None = None  # if the problem is convex
    stationarity: float | None = None  # if it is not
    is_minimum: bool = False  # whether the search reached a local minimum


def fit_joint(
    bank: DenseBank,
    codes: np.ndarray,
    n_classes: int,
    options: JointOptions,
    callback: Callback,
) -> JointFit:
    """Learn the weights (Eq. 39), then the subspace with its machines (Eqs. 9 and 20).

    ``bank`` holds centred kernels of trace n, ``codes`` (n,) the classes of the rows.
    """
    signs = signs_of_codes(codes, n_classes)
    labels = from_numpy(label_factor(codes, n_classes), bank.like)
    tol = reachable_tolerance(options.tol, bank.like)
    uniform = np.full(bank.n_kernels, 1.0 / bank.n_kernels)
    alpha = _alpha(options, bank, uniform, labels)
    scale = _scale(RegularizedKernel(bank.combine(uniform), alpha), options)
    # From here on C is the one in Eqs. 9 and 20.
    inner = replace(options, C=float(options.C) * scale, alpha=alpha, tol=tol)
    learned = _learn_weights(bank, signs, inner, callback)
    kernel = RegularizedKernel(bank.combine(learned.weights), alpha)
    uncorrelated = bool(options.uncorrelated)
    joint = solve_joint(
        SubspaceSVM(kernel, signs, inner.C, uncorrelated, 1e-2 * tol),
        options.n_components,
        duals=learned.duals,
        tol=tol,
        max_iter=options.max_iter,
        callback=callback if learned.proof is None else None,
    )
    few = options.n_components is not None and options.n_components < signs.shape[1]
    searched = few or learned.is_minimum
    problem = _problem(replace(options, alpha=alpha))
    return JointFit(
        weights=learned.weights,
        alpha=alpha,
        subspace_coef=joint.point.subspace.coef * scale**0.5,
        coef=joint.point.coef(),
        intercepts=joint.point.intercepts,
        certificate=_certificate(learned, joint, inner, problem, searched),
        searched=searched,
        n_iter=learned.n_iter + joint.n_iter,
    )


def _alpha(
    options: JointOptions, bank: DenseBank, uniform: np.ndarray, labels: Array
) -> float:
    """The regularisation; "loo" uses the mean kernel with ``labels`` (n, k)."""
    alpha = options.alpha
    if alpha == "auto":
        alpha = AUTO_ALPHA if options.uncorrelated else "loo"
    if alpha == "loo":
        return LooPath(bank.combine(uniform), labels).best_alpha()
    return float(alpha)


def _scale(kernel: RegularizedKernel, options: JointOptions) -> float:
    """``n / tr(K)`` for ``K = G (G + alpha I)^-1 G``, or without the last G."""
    smooth = kernel.solve(kernel.gram)
    if options.uncorrelated:
        return smooth.shape[0] / float(namespace(smooth).linalg.trace(smooth))
    return smooth.shape[0] / dot(kernel.gram, smooth)


def _has_weights(bank_size: int, options: JointOptions) -> bool:
    """Whether there are weights to choose."""
    return bank_size > 1 and bool(np.isfinite(float(options.norm)))


def _learn_weights(
    bank: DenseBank, signs: np.ndarray, options: JointOptions, callback: Callback
) -> _Learned:
    """The weights of Eq. 39 for machines with ``signs`` (n, m)."""
    weight_set = weight_set_of_norm(float(options.norm), True)
    settings: Any = {"max_iter": options.max_iter, "callback": callback}
    settings["tol"] = options.tol
    arguments = (bank, signs, float(options.alpha), options.C, 1e-2 * options.tol)
    if options.uncorrelated:
        criterion = SubspaceMargin(*arguments)
        found = solve(criterion, weight_set, method=options.solver, **settings)
        return _Learned(
            found.weights,
            criterion.split(found.coef)[0],
            found.lower_bound,
            found.n_factorizations,
            found.remarks,
            proof=Certificate.of(found, ""),
        )
    if not _has_weights(bank.n_kernels, options):
        return _Learned(np.full(bank.n_kernels, 1.0 / bank.n_kernels))
    plain = PlainSubspaceMargin(*arguments)
    local = solve_plain(plain, weight_set, **settings)
    return _Learned(
        local.weights,
        local.coef,
        local.lower_bound,
        local.n_factorizations,
        plain.remarks(local.weights),
        stationarity=local.stationarity,
        is_minimum=local.converged,
    )


def _problem(options: JointOptions) -> str:
    """What was minimised, for the certificate."""
    kind = "an uncorrelated" if options.uncorrelated else "a"
    few = options.n_components
    size = "" if few is None else f" of at most {few} dimension(s)"
    return (
        f"SVMs on {kind} subspace kernel{size}, C={float(options.C):.3g}, "
        f"alpha={float(options.alpha):.3g}, l{float(options.norm):.3g} weights"
    )


def _certificate(
    learned: _Learned,
    joint: JointSolution,
    options: JointOptions,
    problem: str,
    searched: bool,
) -> Certificate:
    """What is known about weights and subspace together."""
    if learned.proof is not None and not searched:
        return replace(learned.proof, problem=problem)
    lower, tol = learned.lower_bound, options.tol
    if not _has_weights(len(learned.weights), options):
        lower = max(lower, joint.lower_bound)  # these weights are the only ones
    gap = relative_gap(joint.point.upper, lower)
    if gap <= tol:
        status = f"optimal: the relative gap {gap:.1e} is within tol={tol:.0e}"
    else:
        status = f"{_outcome(learned)}; the relative gap of the bounds is {gap:.1e}"
    return Certificate(
        value=joint.point.upper,
        lower_bound=lower,
        gap=gap,
        status=status,
        converged=gap <= tol,
        problem=problem,
        remarks=learned.remarks,
    )


def _outcome(learned: _Learned) -> str:
    """Why the bounds need not meet."""
    if learned.stationarity is None:
        return (
            "the best of a local search: with fewer dimensions than machines no "
            "optimum is certified"
        )
    found = "a local minimum" if learned.is_minimum else "stopped early"
    return (
        f"{found}, stationary to {learned.stationarity:.0e}: the problem is not "
        "convex in the weights, and no optimum is certified"
    )
