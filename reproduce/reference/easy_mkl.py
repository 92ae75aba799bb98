"""The weights of EasyMKL, from one support vector machine at uniform weights."""

from __future__ import annotations

import numpy as np

from kernelweave._array import Array, from_numpy, namespace
from kernelweave.criteria.margin import Margin
from kernelweave.fits.targets import checked_signs, require_both_signs
from kernelweave.kernels.banks.dense import DenseBank


def easy_mkl_weights(bank: DenseBank, labels: Array, lam: float = 0.1) -> np.ndarray:
    """``w_i ~ g'Y K_i Y g`` at the g that minimises a regularised distance.

    EasyMKL of Aiolli and Donini (2015) with lam between 0 and 1, as in their software::

        min_g  (1 - lam) sum_i g'Y K_i Y g + lam g'g
        subject to  g >= 0,  sum of g over each of the two classes = 1

    g holds convex weights for each of the two classes, so this is the regularised
    distance between their convex hulls. Up to its length, the minimiser is that of the
    margin with squared slacks at uniform weights and ``C = p (1 - lam) / lam``: EasyMKL
    takes one step along the gradient of the criterion of :class:`Margin` with
    ``margin="l2"``. With ``lam = 1`` the hulls shrink to the class means. It is a
    heuristic: the weights minimise nothing and have no certificate.

    Parameters
    ----------
    bank : DenseBank
        Kernels; the software divides each by its trace or by its diagonal first.
    labels : array of shape (n,)
        +1 and -1, and 0 for rows to ignore. With more than two classes, call it once
        per class against the rest, or once per pair of classes.
    lam : float, default=0.1
        0 for the hard margin, 1 for the distance between the class means.

    Returns
    -------
    weights : ndarray of shape (p,)
        Nonnegative, with sum one.
    """
    if not 0 <= lam <= 1:
        raise ValueError(f"lam must lie between 0 and 1, got {lam!r}")
    signs = checked_signs(labels, bank.n_samples, "labels", ndim=1, zeros=True)
    require_both_signs(signs, "labels")
    p = bank.n_kernels
    if lam == 1:
        scores = _distance_of_means(bank, signs)
    else:
        if lam > 0:
            problem = Margin(bank, signs[:, None], "l2", p * (1.0 - lam) / lam)
        else:
            problem = Margin(bank, signs[:, None], "hard")
        scores = -problem.evaluate(np.full(p, 1.0 / p), hessian=False).gradient
    scores = np.maximum(scores, 0.0)
    total = float(np.sum(scores))
    return scores / total if total > 0.0 else np.full(p, 1.0 / p)


def _distance_of_means(bank: DenseBank, signs: np.ndarray) -> np.ndarray:
    """The squared distance (p,) between the two class means under each kernel."""
    plus, minus = int(np.sum(signs > 0)), int(np.sum(signs < 0))
    contrast = np.where(signs > 0, 1.0 / plus, np.where(signs < 0, -1.0 / minus, 0.0))
    dtype = namespace(bank.like).float64
    return bank.quad(from_numpy(contrast[:, None], bank.like, dtype))
