"""How norm, alpha and objective together decide the kernel weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernelweave._array import Array, namespace
from kernelweave._tolerances import reachable_tolerance
from kernelweave.criteria.fisher import Fisher
from kernelweave.fits.discriminant import KernelFit, fit_kernel
from kernelweave.fits.loo_path import LooPath
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.models.shared.base import check_choice, check_number, is_int
from kernelweave.models.shared.certificate import Certificate
from kernelweave.models.shared.progress import Progress
from kernelweave.protocols import Criterion
from kernelweave.solvers.local.loo import learn
from kernelweave.solvers.methods import fitting_methods
from kernelweave.solvers.solve import solve
from kernelweave.weights import LpBall, Simplex, Uniform, WeightSet

__all__ = [
    "NORM_GRID",
    "Choice",
    "WeightLearner",
    "check_learner_parameters",
    "split_learned",
    "weight_set_of_norm",
]

#: Norms that ``norm="loo"`` chooses from; infinity is the uniform mean.
NORM_GRID = (1.0, 4.0 / 3.0, 2.0, float("inf"))


@dataclass(frozen=True)
class Choice:
    """Weights of the bank's kernels, alpha, and why.

    Attributes
    ----------
    weights : ndarray of shape (p,)
        Kernel weights.
    alpha : float
        Regularisation.
    n_iter : int
        Factorisations it took.
    certificate : Certificate or None
        The proof, where a problem was solved.
    fit : KernelFit or None
        Dual coefficients and leave-one-out residuals at these weights, if known.
    norm : float or None
        The norm of the weights.
    """

    weights: np.ndarray
    alpha: float
    n_iter: int
    certificate: Certificate | None = None
    fit: KernelFit | None = None
    norm: float | None = None

    def loo_error(self) -> float:
        """Mean squared leave-one-out error."""
        assert self.fit is not None
        residual = self.fit.loo_residual
        return float(namespace(residual).mean(residual * residual))


def check_learner_parameters(model: Any) -> None:
    """Refuse parameter values and combinations that make no sense."""
    check_number(model, "norm", ("loo",), lambda v: v >= 1, "a number >= 1")
    check_number(
        model,
        "alpha",
        ("learn", "loo", "cv") if hasattr(model, "features") else ("learn", "loo"),
        lambda v: np.isfinite(v) and v > 0,
        "a finite number > 0",
    )
    check_choice(model, "objective", ("fisher", "loo"))
    check_choice(model, "solver", ("auto", *fitting_methods(Fisher, Simplex)))
    check_number(model, "tol", (), lambda v: v > 0, "a number > 0")
    if model.max_iter is not None:
        check_number(
            model, "max_iter", (), lambda v: is_int(v, 1), "None or an int >= 1"
        )
    if model.objective == "loo" and not isinstance(model.alpha, str):
        raise ValueError(
            "objective='loo' learns alpha together with the weights; got "
            f"alpha={model.alpha!r}; leave it at 'loo', or use objective='fisher'"
        )


class WeightLearner:
    """Choose weights and alpha for a model with the parameters of multiple kernels.

    Parameters
    ----------
    model : estimator
        Has ``norm``, ``alpha``, ``objective``, ``solver``, ``tol``, ``max_iter``.
    bank : DenseBank
        The kernels.
    target : array of shape (n, k)
        What leave-one-out residuals are measured on.
    criterion : callable
        ``criterion(alpha)`` with a float or "learn" gives the convex problem.
    learnable : bool
        Whether the criterion can learn alpha.
    progress : Progress
        Is told about iterations.
    """

    def __init__(
        self,
        model: Any,
        bank: DenseBank,
        target: Array,
        criterion: Callable[[Any], Criterion],
        progress: Progress,
        learnable: bool = True,
    ) -> None:
        self.model, self.bank, self.target = model, bank, target
        self.criterion, self.progress = criterion, progress
        self.learnable = learnable
        self.tol = reachable_tolerance(model.tol, bank.like)

    def choose(self) -> tuple[Choice, dict[float, Choice]]:
        """The best choice, and all candidates by norm."""
        if self.model.objective == "loo":
            return self._direct_loo(), {}
        if self.model.norm != "loo":
            norm = float(self.model.norm)
            choice = self._candidate(norm)
            return choice, {norm: choice}
        candidates = {norm: self._with_fit(self._candidate(norm)) for norm in NORM_GRID}
        return min(candidates.values(), key=lambda c: c.loo_error()), candidates

    def _candidate(self, norm: float) -> Choice:
        """Solve for the weights at one norm, then settle alpha."""
        choice = self._solved(norm)
        return self._loo_alpha(choice) if self.model.alpha == "loo" else choice

    def _solved(self, norm: float) -> Choice:
        """The weights at one norm; the criterion's work space is let go of here."""
        first_alpha: float | str = self.model.alpha
        if first_alpha == "loo":
            first_alpha = "learn" if self.learnable else self._uniform_alpha()
        weight_set = weight_set_of_norm(norm, not isinstance(first_alpha, str))
        criterion = self.criterion(first_alpha)
        solution = solve(
            criterion,
            weight_set,
            method=self.model.solver,
            tol=self.tol,
            max_iter=self.model.max_iter,
            callback=self.progress.iteration,
        )
        if isinstance(first_alpha, str):
            weights, alpha = split_learned(solution.weights, weight_set)
        else:
            weights, alpha = solution.weights, float(first_alpha)
        certificate = Certificate.of(solution, _problem(criterion, norm, first_alpha))
        return Choice(weights, alpha, solution.n_factorizations, certificate, norm=norm)

    def _loo_alpha(self, choice: Choice) -> Choice:
        path = LooPath(self.bank.combine(choice.weights), self.target)
        alpha = path.best_alpha()
        fit = KernelFit(path.coef(alpha), path.residuals(alpha))
        return replace(choice, alpha=alpha, fit=fit)

    def _with_fit(self, choice: Choice) -> Choice:
        if choice.fit is not None:
            return choice
        gram = self.bank.combine(choice.weights)
        return replace(choice, fit=fit_kernel(gram, self.target, choice.alpha))

    def _uniform_alpha(self) -> float:
        uniform = np.full(self.bank.n_kernels, 1.0 / self.bank.n_kernels)
        return LooPath(self.bank.combine(uniform), self.target).best_alpha()

    def _direct_loo(self) -> Choice:
        result = learn(
            self.bank,
            self.target,
            max_iter=self.model.max_iter or 200,
            callback=self.progress.iteration,
        )
        certificate = Certificate(
            value=result.value,
            lower_bound=float("nan"),
            gap=float("nan"),
            status=result.status,
            converged=result.converged,
            problem="leave-one-out error over weights and alpha (not convex)",
            stationarity=result.stationarity,
        )
        return Choice(result.weights, result.alpha, result.n_iter, certificate)


def _problem(criterion: Criterion, norm: float, alpha: float | str) -> str:
    """What was minimised, for the certificate."""
    how = "learned alpha" if alpha == "learn" else f"alpha={float(alpha):.3g}"
    return f"{type(criterion).__name__}, l{norm:.3g} weights, {how}"


def weight_set_of_norm(norm: float, fixed: bool) -> Simplex | LpBall | Uniform:
    """The weights of one norm; ``fixed`` if no regularisation is among them."""
    if norm == 1:
        return Simplex()
    if np.isinf(norm) and fixed:
        return Uniform()
    return LpBall(norm)


def split_learned(
    weights: np.ndarray, weight_set: WeightSet
) -> tuple[np.ndarray, float]:
    """Kernel weights on the boundary of their set, and the identity's in their units.

    The identity comes first in ``weights`` (p + 1,).
    """
    identity, kernels = float(weights[0]), weights[1:]
    uniform = weight_set.is_point(len(kernels))  # a mean of kernels, not their sum
    scaled = Uniform().scale(kernels) if uniform else weight_set.scale(kernels)
    largest = int(np.argmax(kernels))
    return scaled, identity * float(scaled[largest] / kernels[largest])
