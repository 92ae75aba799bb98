"""A new criterion: kernel logistic regression, with a certificate.

Any convex ``J(w) = max_a [ linear(a) - <w, scores(a)> ]`` will do. Inherit from the
protocol ``Criterion`` and declare what it offers; every method that needs no more than
that can then minimise it over every weight set that suits the method. There is nothing
to register.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg
from scipy.special import expit, xlogy

from kernelweave import Alignment, CappedSimplex, LpBall, Simplex, certify, solve
from kernelweave.datasets import fetch_views
from kernelweave.kernels import RBF, DenseBank
from kernelweave.protocols import CertificateTerms, Criterion, Evaluation


class KernelLogistic(Criterion):
    """``J(w) = min_f norm(f)^2 / 2 + C sum_i log(1 + exp(-y_i f_i))``.

    The norm is that of the kernel ``K = sum_i w_i G_i``. With ``b = a y`` the dual is::

        J(w) = max_{0 <= a <= C}  - C sum_i h(a_i / C)  -  sum_i w_i b'G_i b / 2
        h(p) = p log p + (1 - p) log(1 - p)

    At the optimum ``b = C y p`` with ``p = expit(-y f)`` and ``f = K b``. With
    ``D = diag(C p (1 - p))`` the Hessian is ``b'G_i S G_j b``, where
    ``S = D^(1/2) (I + D^(1/2) K D^(1/2))^-1 D^(1/2)``.
    """

    #: J has an exact Hessian; dual points may be averaged (the bound is concave);
    #: and norm(f)^2 = min sum_i norm(f_i)^2 / w_i over decompositions f = sum_i f_i.
    offers = frozenset({"hessian", "averages", "parts"})

    def __init__(self, bank, y, C=1.0):
        self.bank, self.y, self.C = bank, y, C

    def evaluate(self, weights, hessian=True):
        """Newton's method in f, then everything from its last factorisation."""
        K, y = self.bank.combine(weights), self.y
        f, count = np.zeros(len(y)), 0
        while count < 50:
            count += 1
            p = expit(-y * f)
            root = np.sqrt(self.C * p * (1.0 - p))  # D^(1/2)
            inner = np.eye(len(y)) + root[:, None] * K * root[None, :]
            factor = linalg.cho_factor(inner, lower=True)
            target = root**2 * f + self.C * y * p
            b = target - root * linalg.cho_solve(factor, root * (K @ target))
            step, f = np.max(np.abs(K @ b - f)), K @ b
            if step <= 1e-12 * max(1.0, np.max(np.abs(f))):
                break
        products = self.bank.apply(b[:, None])[:, :, 0]  # G_i b, (p, n)
        value = 0.5 * b @ f + self._loss(f)
        curvature = None
        if hessian:
            half = linalg.solve_triangular(factor[0], (root * products).T, lower=True)
            curvature = half.T @ half
        return Evaluation(value, -0.5 * products @ b, curvature, b, count)

    def certificate_terms(self, weights, coef, dual):
        """The primal value of ``K coef`` and the bound of ``dual``, any arrays (n,)."""
        b = np.asarray(coef, dtype=np.float64)
        f = np.tensordot(weights, self.bank.apply(b[:, None])[:, :, 0], 1)
        a = np.clip(np.asarray(dual) * self.y, 0.0, self.C)
        share = a / self.C
        linear = -self.C * np.sum(xlogy(share, share) + xlogy(1.0 - share, 1.0 - share))
        scores = 0.5 * self.bank.quad((a * self.y)[:, None])
        return CertificateTerms(0.5 * b @ f + self._loss(f), linear, scores)

    def _loss(self, f):
        return self.C * np.sum(np.logaddexp(0.0, -self.y * f))


if __name__ == "__main__":
    data = fetch_views("breast_cancer")
    X, y = np.asarray(data.data)[::12], np.where(data.target[::12] > 0, 1.0, -1.0)
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    bank = DenseBank.from_kernels(np.stack([RBF()(X[:, [j]]) for j in range(6)]))
    criterion = KernelLogistic(bank, y, C=0.5)

    # Check the derivatives against finite differences.
    rng = np.random.default_rng(0)
    w, step = rng.dirichlet(np.ones(6)), 1e-5 * rng.normal(size=6)
    above, below = criterion.evaluate(w + step), criterion.evaluate(w - step)
    at = criterion.evaluate(w)
    np.testing.assert_allclose(
        above.value - below.value, 2 * at.gradient @ step, rtol=1e-6
    )
    np.testing.assert_allclose(
        above.gradient - below.gradient, 2 * at.hessian @ step, rtol=1e-4, atol=1e-9
    )

    # The bounds also hold for perturbed dual points.
    optimum = solve(criterion, Simplex()).value
    for noise in (0.0, 1e-3, 1.0):
        spoilt = at.coef + noise * rng.normal(size=len(y))
        value, lower, _ = certify(criterion, Simplex(), w, spoilt)
        assert lower <= optimum and value >= at.value - 1e-9

    # Different methods end at the same certified value.
    for weight_set, other in (
        (Simplex(), "cutting_plane"),
        (CappedSimplex(0.3), "cutting_plane"),
        (LpBall(2), "closed_form"),  # cutting planes would need the extra "cone" here
    ):
        best = solve(criterion, weight_set)
        found = solve(criterion, weight_set, method=other, tol=1e-5)
        assert best.method == "newton" and best.converged and found.converged
        assert abs(found.value - best.value) <= 2e-5 * best.value
        print(f"{weight_set!r:20} {best.weights.round(3)}  {best.status}")

    # Methods that need more are refused; the message names what is missing.
    for problem, method in ((criterion, "interior_point"), (Alignment(bank, y), "em")):
        try:
            solve(problem, Simplex(), method=method)
        except ValueError as error:
            print(error)
        else:
            raise AssertionError("a method that does not fit was not refused")
