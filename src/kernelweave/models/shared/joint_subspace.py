"""Weights, subspace and machines of the joint problem, on one bank of kernels."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave._array import dot, from_numpy, namespace
from kernelweave.criteria.margin.plain_subspace import PlainSubspaceMargin
from kernelweave.criteria.margin.subspace import SubspaceMargin
from kernelweave.fits.label_kernels import label_factor
from kernelweave.fits.loo_path import LooPath
from kernelweave.fits.subspace import RegularizedKernel
from kernelweave.fits.subspace_svm import SubspaceSVM
from kernelweave.fits.targets import signs_of_codes
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.models.shared.certificate import Certificate
from kernelweave.models.shared.learner import (
    FLOAT32_TOL,
    LearnerOptions,
    weight_set_of_norm,
)
from kernelweave.models.shared.progress import Progress
from kernelweave.models.shared.subspace import learn_weights
from kernelweave.solvers.certify import relative_gap
from kernelweave.solvers.local.plain_subspace import PlainSolution, solve_plain
from kernelweave.solvers.local.subspace_joint import (
    BestWeights,
    JointSolution,
    solve_joint,
)
from kernelweave.solvers.solve import solve

__all__ = ["JointFit"]

#: First-order fall, relative to the value, at which a local minimum counts as found.
STATIONARY = 1e-3
#: ``alpha="auto"`` for uncorrelated subspaces.
AUTO_ALPHA = 10.0


class JointFit:
    """Weights first, then the subspace with its machines, on one bank of kernels."""

    def __init__(
        self,
        model: Any,
        bank: DenseBank,
        codes: np.ndarray,
        n_classes: int,
        progress: Progress,
    ) -> None:
        self.model, self.bank, self.progress = model, bank, progress
        self.signs = signs_of_codes(codes, n_classes)
        self.labels = from_numpy(label_factor(codes, n_classes), bank.like)
        single = namespace(bank.like).finfo(bank.like.dtype).bits == 32
        self.tol = max(model.tol, FLOAT32_TOL) if single else float(model.tol)
        self.alternating = model.solver == "alternating"
        self.weights = np.full(bank.n_kernels, 1.0 / bank.n_kernels)
        self.alpha = self._alpha()
        #: What the regularised mean of the kernels is multiplied with to have trace n.
        self.scale = self._scale()
        self.C = float(model.C) * self.scale
        self.n_iter = 0
        self.weight_set = weight_set_of_norm(float(model.norm), True)
        #: Whether there are weights to choose.
        self.several = bank.n_kernels > 1 and np.isfinite(float(model.norm))
        self.relaxed: Certificate | None = None
        self.plain: PlainSolution | None = None
        self.remarks: tuple[str, ...] = ()

    def run(self) -> tuple[JointSolution, Certificate]:
        """Learn the weights and the rest; the point, and its proof."""
        duals = self._learn_weights()
        model, uncorrelated = self.model, bool(self.model.uncorrelated)
        kernel = RegularizedKernel(self.bank.combine(self.weights), self.alpha)
        problem = SubspaceSVM(kernel, self.signs, self.C, uncorrelated, 1e-2 * self.tol)
        start = reweigh = None
        if self.alternating:
            start = kernel.subspace(self.labels, model.n_components, uncorrelated)
            if uncorrelated and self.several:
                reweigh = BestWeights(self.bank, self.weight_set, problem)
        joint = solve_joint(
            problem,
            model.n_components,
            start=start,
            reweigh=reweigh,
            duals=duals,
            tol=self.tol,
            max_iter=model.max_iter,
            callback=self.progress.iteration if self.relaxed is None else None,
        )
        self.n_iter += joint.n_iter + (reweigh.n_factorizations if reweigh else 0)
        if joint.point.weights is not None:
            self.weights = joint.point.weights
        return joint, self._certificate(joint)

    @property
    def searched(self) -> bool:
        """Whether the problem is not convex: an open gap is then no failure."""
        if self.alternating:
            return False
        few = self.model.n_components
        missing = few is not None and few < self.signs.shape[1]
        return missing or (self.plain is not None and self._is_stationary())

    def _is_stationary(self) -> bool:
        return self.plain is not None and self.plain.stationarity <= STATIONARY

    def _alpha(self) -> float:
        alpha = self.model.alpha
        if alpha == "auto":
            alpha = AUTO_ALPHA if self.model.uncorrelated else "loo"
        if alpha == "loo":
            mean = self.bank.combine(self.weights)
            return LooPath(mean, self.labels).best_alpha()
        return float(alpha)

    def _scale(self) -> float:
        """``n / tr(K)`` for ``K = G (G + alpha I)^-1 G``, or without the last G."""
        kernel = RegularizedKernel(self.bank.combine(self.weights), self.alpha)
        smooth = kernel.solve(kernel.gram)
        xp = namespace(smooth)
        if self.model.uncorrelated:
            trace = float(xp.linalg.trace(smooth))
        else:
            trace = dot(kernel.gram, smooth)
        return self.bank.n_samples / trace

    def _learn_weights(self) -> np.ndarray | None:
        """The weights, and with them the duals (n, m) of the closed form, if known."""
        if self.model.uncorrelated and not self.alternating:
            return self._joint_weights()
        if not self.several:
            return None
        if self.alternating:
            self._label_weights()
            return None
        criterion = PlainSubspaceMargin(
            self.bank, self.signs, self.alpha, self.C, 1e-2 * self.tol
        )
        self.plain = solve_plain(
            criterion,
            self.weight_set,
            tol=self.tol,
            max_iter=self.model.max_iter,
            callback=self.progress.iteration,
        )
        self.weights, self.n_iter = self.plain.weights, self.plain.n_factorizations
        self.remarks = criterion.remarks(self.weights)
        return self.plain.duals

    def _joint_weights(self) -> np.ndarray:
        """Weights of Eq. 39 for a subspace of any dimension, with the duals (n, m)."""
        criterion = SubspaceMargin(
            self.bank, self.signs, self.alpha, self.C, 1e-2 * self.tol
        )
        solution = solve(
            criterion,
            self.weight_set,
            method=self.model.solver,
            tol=self.tol,
            max_iter=self.model.max_iter,
            callback=self.progress.iteration,
        )
        self.weights, self.n_iter = solution.weights, solution.n_factorizations
        self.relaxed = Certificate.of(solution, self._problem())
        return criterion.split(solution.coef)[0]

    def _label_weights(self) -> None:
        """Weights of Eq. 27."""
        options = LearnerOptions(self.model.norm, self.alpha, tol=self.tol)
        choice = learn_weights(options, self.bank, self.labels, self.progress)
        self.weights, self.n_iter = choice.weights, int(choice.n_iter)

    def _problem(self) -> str:
        form = "uncorrelated " if self.model.uncorrelated else ""
        few = self.model.n_components
        size = "" if few is None else f" of at most {few} dimension(s)"
        return (
            f"SVMs on an {form}subspace kernel{size}, C={float(self.model.C):.3g}, "
            f"alpha={self.alpha:.3g}, l{float(self.model.norm):.3g} weights"
        ).replace("an subspace", "a subspace")

    def _certificate(self, joint: JointSolution) -> Certificate:
        """What is known about weights and subspace together."""
        if self.relaxed is not None and not self.searched:
            return self.relaxed
        lower, remarks = self._lower_bound(joint)
        gap = relative_gap(joint.point.upper, lower)
        status, converged = joint.status, gap <= self.tol
        if converged:
            status = f"optimal: the relative gap {gap:.1e} is within tol={self.tol:.0e}"
        elif not self.alternating:
            status = f"{self._outcome()}; the relative gap of the bounds is {gap:.1e}"
        return Certificate(
            value=joint.point.upper,
            lower_bound=lower,
            gap=gap,
            status=status,
            converged=converged,
            problem=self._problem(),
            remarks=remarks,
        )

    def _lower_bound(self, joint: JointSolution) -> tuple[float, tuple[str, ...]]:
        """A bound that holds for all weights allowed, if there is one, and remarks."""
        if self.plain is not None:
            return self.plain.lower_bound, self.remarks
        if self.relaxed is not None:
            bounds = [self.relaxed.lower_bound]
            if not self.several:  # no other weights could do better than these
                bounds.append(joint.lower_bound)
            return max(bounds), self.relaxed.remarks
        if self.several and not self.model.uncorrelated:
            note = "the bounds are for the learned weights; those minimise Eq. 27"
            return joint.lower_bound, (note,)
        return joint.lower_bound, ()

    def _outcome(self) -> str:
        """Why the bounds need not meet."""
        if self.plain is None:
            return (
                "the best of a local search: with fewer dimensions than machines no "
                "optimum is certified"
            )
        found = "a local minimum" if self._is_stationary() else "stopped early"
        return (
            f"{found}, stationary to {self.plain.stationarity:.0e}: the problem is not "
            "convex in the weights, and no optimum is certified"
        )
