"""An error bound for transduction: Theorem 1 of Lanckriet et al. (2002)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelweave._array import Array, to_numpy


@dataclass(frozen=True)
class TransductionBound:
    """Two bounds on the error rate on the unlabelled half.

    A bound of one or more says nothing: the usual case with a few hundred rows.

    Attributes
    ----------
    as_printed : float
        The bound with the constants of the theorem.
    corrected : float
        The bound with the constants that follow from the printed proof; it is larger.
    training_cost : float
        The mean margin cost of the labelled rows, a term of both bounds.
    """

    as_printed: float
    corrected: float
    training_cost: float

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
    norm: float = 1.0,
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
        f on the labelled rows, without an intercept.
    labels : array of shape (n,)
        +1 and -1.
    gamma : float
        The margin at which the cost of a row becomes zero.
    trace : float
        The trace of the kernel over all 2n rows; for a learned kernel the largest that
        the weights allow.
    delta : float, default=0.05
        The probability that the bound fails.
    norm : float, default=1.0
        ``norm(w)``; f is divided by it.
    learned_kernel : bool, default=False
        Whether the kernel was learned from the labels.
    complexity : float, optional
        C, if a value better than n (printed) or 2n (corrected) is known.

    Returns
    -------
    TransductionBound
    """
    for name, value in (("gamma", gamma), ("trace", trace), ("norm", norm)):
        if not (np.isfinite(value) and value > 0):
            raise ValueError(f"{name} must be a finite number > 0, got {value!r}")
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie between 0 and 1, got {delta!r}")
    if complexity is not None and not learned_kernel:
        raise ValueError("complexity is for learned kernels: set learned_kernel=True")
    if complexity is not None and not complexity > 0:
        raise ValueError(f"complexity must be > 0, got {complexity!r}")
    margins = _margins(decision, labels) / norm
    n = len(margins)
    cost = float(np.mean(np.clip(1.0 - margins / gamma, 0.0, 1.0)))
    bounds = []
    for constant, largest in ((2.0, n), (4.0, 2 * n)):
        size = trace
        if learned_kernel:
            size *= largest if complexity is None else complexity
        width = np.sqrt(size / n) / gamma
        confidence = np.sqrt(constant * np.log(1.0 / delta))
        bounds.append(cost + float((4.0 + confidence + width) / np.sqrt(n)))
    return TransductionBound(bounds[0], bounds[1], cost)


def _margins(decision: Array, labels: Array) -> np.ndarray:
    """``y_i f_i``, (n,)."""
    f = to_numpy(decision).astype(np.float64)
    y = to_numpy(labels)
    if f.ndim != 1 or f.shape != y.shape or len(f) == 0:
        raise ValueError(
            "decision and labels must be one-dimensional and of the same length; got "
            f"the shapes {f.shape} and {y.shape}"
        )
    if not np.all(np.isin(y, (-1, 1))):
        raise ValueError("labels must be +1 or -1: the bound takes labelled rows only")
    if not np.all(np.isfinite(f)):
        raise ValueError("decision contains NaN or infinite values")
    return y * f
