"""Margin of an SVM on the subspace kernel of Eq. 6 as a function of the weights."""

from __future__ import annotations

import numpy as np

from kernelweave._array import Array, from_numpy, namespace, to_numpy
from kernelweave._memory import require_memory
from kernelweave.criteria.identifiability import weight_remarks
from kernelweave.criteria.margin.margin import Margin
from kernelweave.fits.subspace import RegularizedKernel
from kernelweave.fits.subspace_svm import SubspaceSVM
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.protocols import Bank, Evaluation

__all__ = ["PlainSubspaceMargin"]


class PlainSubspaceMargin:
    """``v(w) = max_A sum(a) - tr(A' K(w) A) / 2``, ``K(w) = G (G + alpha I)^-1 G``.

    The joint problem of Chen et al. (2008), Eq. 9, with the subspace (of at least k
    dimensions) eliminated, for a sum ``G = sum_i w_i G_i`` of kernels, a case the paper
    leaves open. K is convex in w, so v is neither convex nor concave in general. With
    ``B = alpha (G + alpha I)^-1 A``::

        dv/dw_i = -( tr(A'G_iA) - tr(B'G_iB) ) / 2
        v(w)   >= max_A  sum(a) - sum_i w_i tr(A' K_i A) / 2,    sum(w) <= s
        K_i     = G_i (G_i + (alpha / s) I)^-1 G_i

    The second line holds because ``K(w) <= sum_i w_i K_i`` in the Loewner order: with
    ``sum(w) = t``, K is at most the weighted mean of ``K(t G_i)``, and ``K(t G_i) / t``
    increases with t. Its right side is the convex problem of Lanckriet et al. (2002)
    for the kernels K_i, and for s = 1 it equals v at every single kernel. So its
    minimum bounds v from below, and where that is attained at a single kernel, no sum
    of kernels is better than this one.

    Parameters
    ----------
    bank : Bank
        Centred kernels of trace n.
    signs : ndarray of shape (n, m)
        +1 and -1, one column per SVM.
    alpha : float
        Regularisation lambda, relative to the mean eigenvalue of a kernel.
    C : float
        The bound on the dual variables.
    tol : float, default=1e-9
        Relative gap of the SVMs.
    """

    def __init__(
        self,
        bank: Bank,
        signs: np.ndarray,
        alpha: float,
        C: float,
        tol: float = 1e-9,
    ) -> None:
        self.bank, self.signs = bank, np.asarray(signs, dtype=np.float64)
        self.alpha, self.C, self.tol = float(alpha), float(C), tol

    def machines(self, weights: np.ndarray) -> SubspaceSVM:
        """The single-kernel problem at these weights (p,)."""
        kernel = RegularizedKernel(self.bank.combine(weights), self.alpha)
        return SubspaceSVM(kernel, self.signs, self.C, False, self.tol)

    def evaluate(self, weights: np.ndarray) -> Evaluation:
        """Value, gradient and A (n, m) from one factorisation and m SVMs."""
        problem = self.machines(weights)
        duals = problem.closed_form_duals()
        value = problem.lower_bound(duals, None)
        a = from_numpy(duals, self.bank.like)
        b = self.alpha * problem.kernel.solve(a)
        scores = to_numpy(self.bank.quad(a) - self.bank.quad(b)).astype(np.float64)
        return Evaluation(value, -0.5 * scores, None, duals)

    def minorant(self, total: float = 1.0) -> Margin:
        """The convex lower bound on v, with values twice those of the class docstring.

        Parameters
        ----------
        total : float
            s, the largest sum of weights allowed.
        """
        p, n = self.bank.n_kernels, self.bank.n_samples
        itemsize = np.dtype(np.float64).itemsize
        require_memory(
            p * n * n * itemsize,
            "a second set of kernels, for the lower bound of uncorrelated=False,",
            "use uncorrelated=True, which needs none, or fewer kernels",
            self.bank.like,
        )
        parts = [self._alone(self.bank.kernel(i), total) for i in range(p)]
        bank = DenseBank(namespace(self.bank.like).stack(parts), self.bank.names)
        return Margin(bank, self.signs, "l1", self.C)

    def remarks(self, weights: np.ndarray) -> tuple[str, ...]:
        """Whether the weights are identifiable."""
        return weight_remarks(self.bank, weights, False)

    def _alone(self, gram: Array, total: float) -> Array:
        """``G (G + (alpha / s) I)^-1 G`` of one kernel (n, n)."""
        scaled = total * gram
        matrix = scaled @ RegularizedKernel(scaled, self.alpha).solve(gram)
        return (matrix + matrix.T) / 2
