"""Weights, subspace and machines of the joint problem, on one bank of kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from kernelweave._array import from_numpy, namespace
from kernelweave.criteria.fisher import dot
from kernelweave.criteria.label_kernels import label_factor
from kernelweave.criteria.loo_path import LooPath
from kernelweave.criteria.subspace import RegularizedKernel
from kernelweave.criteria.subspace_margin import SubspaceMargin
from kernelweave.criteria.subspace_svm import SubspaceSVM
from kernelweave.criteria.targets import signs_of_codes
from kernelweave.kernels.bank import DenseBank
from kernelweave.models._certificate import Certificate
from kernelweave.models._learner import FLOAT32_TOL, weight_set_of_norm
from kernelweave.models._progress import Progress
from kernelweave.models._subspace import learn_weights
from kernelweave.solvers.certify import relative_gap
from kernelweave.solvers.solve import solve
from kernelweave.solvers.subspace_joint import JointSolution, solve_joint

__all__ = ["JointFit"]


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
        self.n_iter, self.searched = 0, False

    def run(self) -> tuple[JointSolution, Certificate]:
        """Learn the weights and the rest; the point, and its proof."""
        duals, relaxed = None, None
        if self.model.uncorrelated and not self.alternating:
            duals, relaxed = self._joint_weights()
        else:
            self._label_weights()
        model = self.model
        kernel = RegularizedKernel(self.bank.combine(self.weights), self.alpha)
        problem = SubspaceSVM(
            kernel, self.signs, self.C, bool(model.uncorrelated), 1e-2 * self.tol
        )
        start = None
        if self.alternating:
            start = kernel.subspace(
                self.labels, model.n_components, bool(model.uncorrelated)
            )
        joint = solve_joint(
            problem,
            model.n_components,
            start=start,
            duals=duals,
            tol=self.tol,
            max_iter=model.max_iter,
            callback=None if relaxed is not None else self.progress.iteration,
        )
        self.n_iter += joint.n_iter
        needed = problem.signs.shape[1]
        few = model.n_components is not None and model.n_components < needed
        self.searched = few and not self.alternating
        return joint, self._certificate(joint, relaxed)

    def _alpha(self) -> float:
        if self.model.alpha == "loo":
            mean = self.bank.combine(self.weights)
            return LooPath(mean, self.labels).best_alpha()
        return float(self.model.alpha)

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

    def _joint_weights(self) -> tuple[np.ndarray, Certificate]:
        """Weights of Eq. 39 for a subspace of any dimension, with the duals (n, m)."""
        criterion = SubspaceMargin(
            self.bank, self.signs, self.alpha, self.C, 1e-2 * self.tol
        )
        norm = float(self.model.norm)
        solution = solve(
            criterion,
            weight_set_of_norm(norm, True),
            method=self.model.solver,
            tol=self.tol,
            max_iter=self.model.max_iter,
            callback=self.progress.iteration,
        )
        self.weights, self.n_iter = solution.weights, solution.n_factorizations
        duals, _ = criterion.split(solution.coef)
        return duals, Certificate.of(solution, self._problem())

    def _label_weights(self) -> None:
        """Weights of Eq. 27."""
        settings = _Settings(self.model, self.alpha, self.tol)
        choice = learn_weights(settings, self.bank, self.labels, self.progress)
        self.weights, self.n_iter = choice.weights, int(choice.n_iter)

    def _problem(self) -> str:
        form = "uncorrelated " if self.model.uncorrelated else ""
        few = self.model.n_components
        size = "" if few is None else f" of at most {few} dimension(s)"
        return (
            f"SVMs on an {form}subspace kernel{size}, C={float(self.model.C):.3g}, "
            f"alpha={self.alpha:.3g}, l{float(self.model.norm):.3g} weights"
        ).replace("an subspace", "a subspace")

    def _certificate(
        self, joint: JointSolution, relaxed: Certificate | None
    ) -> Certificate:
        """What is known about weights and subspace together."""
        if relaxed is not None and not self.searched:
            return relaxed
        lower = joint.lower_bound
        remarks = () if relaxed is None else relaxed.remarks
        if relaxed is not None and self.bank.n_kernels > 1:
            lower = relaxed.lower_bound  # other weights could do better than these
        gap = relative_gap(joint.point.upper, lower)
        status, converged = joint.status, gap <= self.tol
        if converged:
            status = f"optimal: the relative gap {gap:.1e} is within tol={self.tol:.0e}"
        elif self.searched:
            status = (
                "the best of a local search: with fewer dimensions than machines no "
                f"optimum is certified; the relative gap of the bounds is {gap:.1e}"
            )
        certificate = Certificate(
            value=joint.point.upper,
            lower_bound=lower,
            gap=gap,
            status=status,
            converged=converged,
            problem=self._problem(),
            remarks=remarks,
        )
        if relaxed is None and self.bank.n_kernels > 1:
            note = "the bounds are for the learned weights; those minimise Eq. 27"
            certificate = replace(certificate, remarks=(*certificate.remarks, note))
        return certificate


class _Settings:
    """What the weight learner of the label kernel asks a model for."""

    objective, solver = "fisher", "auto"

    def __init__(self, model: Any, alpha: float, tol: float) -> None:
        self.norm, self.alpha = model.norm, alpha
        self.tol, self.max_iter = tol, None
