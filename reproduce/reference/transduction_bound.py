"""An error bound for transduction: Theorem 1 of Lanckriet et al. (2002)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from kernelweave._array import Array, to_numpy
from kernelweave.fits.targets import checked_signs
from kernelweave.kernels import DenseBank
from kernelweave.learn.search import weight_set_of_norm
from kernelweave.protocols import require_positive
from kernelweave.weights import SignedSum, WeightSet


@dataclass(frozen=True)
class TransductionBound:
    """Two bounds on the error rate on the unlabelled half.

    A bound of one or more says nothing, which is the usual case with a few hundred
    rows.

    Attributes
    ----------
    as_printed : float
        The bound with the constants of the theorem.
    corrected : float
        The bound with the constants that follow from the printed proof; it is larger.
    training_cost : float
        The mean margin cost of the labelled rows, a term of both bounds.
    simulated : float or None
        The corrected bound with an estimate of the expectation C in place of 2n, if
        one was made: smaller, and no longer a proof.
    complexity : float or None
        The estimate of C; the theorem has n, its proof 2n.
    """

    as_printed: float
    corrected: float
    training_cost: float
    simulated: float | None = None
    complexity: float | None = None

    @property
    def vacuous(self) -> bool:
        """Whether the corrected bound allows every row to be wrong."""
        return self.corrected >= 1.0


def transduction_bound(
    decision: Array,
    labels: Array,
    gamma: float,
    trace: float,
    *,
    delta: float = 0.05,
    learned_kernel: bool = False,
    complexity: float | None = None,
) -> TransductionBound:
    """Bound the error rate on n unlabelled rows, given n labelled at random.

    Lanckriet et al. (2002), Theorem 1. With probability ``1 - delta`` over which half
    of the 2n rows is labelled, every ``f = <w, phi>`` with ``norm(w) <= 1`` has::

        errors <= (1/n) sum_i clip(1 - y_i f_i / gamma, 0, 1)
                  + (4 + sqrt(c ln(1/delta)) + sqrt(B / (n gamma^2))) / sqrt(n)

    Two constants do not follow from the printed proof. Its step 2 gives c = 4, where
    the theorem has 2. With a kernel learned from the labels, B is ``trace * C`` with
    ``C = E sup sigma'K sigma`` over kernels of trace one that the weights allow. The
    theorem says ``C < n``, but ``sigma`` has 2n entries and the argument gives
    ``C <= 2n``. For a kernel fixed beforehand, B is just the trace.

    This is only a diagnostic: gamma must be fixed before the labels are seen, the
    function has no intercept, and the bound is seldom below one.

    Parameters
    ----------
    decision : array of shape (n,)
        f on the labelled rows, without an intercept, divided by ``norm(w)``.
    labels : array of shape (n,)
        +1 and -1.
    gamma : float
        The margin at which the cost of a row becomes zero.
    trace : float
        The trace of the kernel over all 2n rows; for a learned kernel the largest that
        the weights allow.
    delta : float, default=0.05
        The probability that the bound fails.
    learned_kernel : bool, default=False
        Whether the kernel was learned from the labels.
    complexity : float, optional
        An estimate of C, for the bound ``simulated``.

    Returns
    -------
    TransductionBound
    """
    require_positive(gamma=gamma, trace=trace)
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie between 0 and 1, got {delta!r}")
    if complexity is not None and not learned_kernel:
        raise ValueError("complexity is for learned kernels: set learned_kernel=True")
    if complexity is not None and not complexity > 0:
        raise ValueError(f"complexity must be > 0, got {complexity!r}")
    f = to_numpy(decision).astype(np.float64)
    y, n = checked_signs(labels, len(f), "labels", ndim=1), len(f)
    if f.ndim != 1 or not np.all(np.isfinite(f)):
        raise ValueError(
            f"decision must be {n} finite numbers; got an array of the shape {f.shape} "
            f"with {int(np.sum(~np.isfinite(f)))} NaN or infinite values"
        )
    cost = float(np.mean(np.clip(1.0 - y * f / gamma, 0.0, 1.0)))

    def bound(constant: float, largest: float) -> float:
        size = trace * largest if learned_kernel else trace
        width = np.sqrt(size / n) / gamma
        confidence = np.sqrt(constant * np.log(1.0 / delta))
        return cost + float((4.0 + confidence + width) / np.sqrt(n))

    simulated = None if complexity is None else bound(4.0, complexity)
    printed, corrected = bound(2.0, n), bound(4.0, 2 * n)
    return TransductionBound(printed, corrected, cost, simulated, complexity)


def learned_complexity(
    kernels: Array, signed: bool = False, draws: int = 100, random_state: int = 0
) -> tuple[float, float]:
    """Estimate ``C = E sup sigma'K sigma`` over sums of kernels of trace one.

    The entries of sigma are +1 or -1 with equal probability. Over non-negative weights
    the supremum is that of a single kernel. Over weights of any sign with a positive
    semidefinite sum it is that of :class:`~kernelweave.SignedSum`.

    Parameters
    ----------
    kernels : array of shape (p, N, N)
        Kernels over all rows.
    signed : bool, default=False
        Whether weights may be negative.
    draws : int, default=100
        Number of random vectors.
    random_state : int, default=0
        Seed.

    Returns
    -------
    mean, error : float
        The estimate, and its standard error.
    """
    stack = to_numpy(kernels).astype(np.float64)
    traces = np.trace(stack, axis1=1, axis2=2)
    stack = stack[traces > 0] / traces[traces > 0][:, None, None]
    n = stack.shape[1]
    rng = np.random.default_rng(random_state)
    signs = rng.choice([-1.0, 1.0], size=(draws, n))
    scores = np.einsum("di,pij,dj->dp", signs, stack, signs, optimize=True)  # (d, p)
    largest = np.max(scores, axis=1)
    if signed:
        sums = SignedSum(DenseBank(stack))
        largest = np.array([sums.support(row) for row in scores])
    return float(np.mean(largest)), float(np.std(largest, ddof=1) / np.sqrt(draws))


def bound_of_model(
    model: Any,
    X: Any,
    y: Any,
    gamma: float,
    *,
    delta: float = 0.05,
    draws: int = 100,
    random_state: int = 0,
) -> TransductionBound:
    """Theorem 1 for a fitted :class:`~kernelweave.TransductiveKernelSVC`.

    Its function without the intercept, divided by the norm of its normal vector, is one
    of those that the theorem covers; B is the largest trace that its weights could have
    given the kernel. The expectation C in the bound is estimated by
    :func:`learned_complexity`, in addition to using the constant of the theorem.

    Parameters
    ----------
    model : TransductiveKernelSVC
        Fitted on X and y, with two classes.
    X : array-like of shape (2n, d) or (2n, 2n[, p])
        The rows passed to ``fit``.
    y : array-like of shape (2n,)
        The labels passed to ``fit``, with -1 or "-1" for half of the rows.
    gamma : float
        The margin at which the cost of a row becomes zero, fixed beforehand; functions
        have ``norm(w) = 1``.
    delta : float, default=0.05
        The probability that the bound fails.
    draws, random_state : int
        See :func:`learned_complexity`.

    Returns
    -------
    TransductionBound
        With ``simulated`` and ``complexity``.
    """
    check_is_fitted(model, "transduction_")
    if len(model.classes_) != 2:
        raise ValueError(f"the bound is for 2 classes; got {len(model.classes_)}")
    labels = np.asarray(y)
    labelled = np.isin(labels.astype(str), model.classes_.astype(str))
    n = int(np.sum(labelled))
    if 2 * n != len(labels):
        raise ValueError(
            f"the theorem labels half of the rows; got {n} labels for {len(labels)} "
            "rows"
        )
    rows = model._observed_rows(X, "bound_of_model")
    units = np.eye(len(model.kernel_names_))
    stack = np.stack([to_numpy(model.kernel_map_.cross(rows, unit)) for unit in units])
    traces = np.trace(stack, axis1=1, axis2=2)
    stack, traces = stack[traces > 0], traces[traces > 0]  # those that vary
    allowed: WeightSet = weight_set_of_norm(float(model.norm), fixed=True)
    if model.signed:
        allowed = SignedSum(DenseBank(stack), float(model.weight_bound))
    coef, kernel = to_numpy(model.dual_coef_)[:, 0], to_numpy(model.kernel_)
    decision = (kernel @ coef)[labelled] / np.sqrt(coef @ kernel @ coef)
    signs = np.where(labels[labelled] == model.classes_[1], 1.0, -1.0)
    complexity, _ = learned_complexity(stack, bool(model.signed), draws, random_state)
    return transduction_bound(
        decision,
        signs,
        gamma,
        allowed.support(traces),
        delta=delta,
        learned_kernel=True,
        complexity=complexity,
    )
