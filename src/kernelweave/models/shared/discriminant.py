"""What the discriminant classifiers share once weights and alpha are chosen."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelweave._array import Array, as_float, from_numpy, namespace, to_numpy
from kernelweave.fits.discriminant import KernelFit, fit_kernel, principal_axes
from kernelweave.fits.gaussians import ClassGaussians
from kernelweave.fits.targets import reduced_class_target
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.models.shared.classifier import KernelClassifier, hidden_until_fitted
from kernelweave.models.shared.lazy import lazily
from kernelweave.models.shared.learner import Choice
from kernelweave.models.shared.progress import Progress
from kernelweave.models.shared.transaction import KernelTransformer, fit_method

__all__ = ["KernelDiscriminant"]


class KernelDiscriminant(KernelTransformer, KernelClassifier):
    """Classifier and transformer on a weighted sum of kernels."""

    @fit_method
    def fit(self, X: Any, y: Any) -> Any:
        """Learn from rows and labels.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d), or precomputed kernels of shape \
(n, n) or (n, n, p)
            Training rows.
        y : array-like of shape (n,)
            Class labels: numbers, strings or booleans.

        Returns
        -------
        self : estimator
            Fitted estimator.
        """
        self._check_parameters()
        source = self._open(X)
        codes = self._encode(X, y)
        progress = Progress(self, X, y)
        self._learn(self._fit_bank(source, progress), codes, progress)
        progress.end()
        return self

    def _learn(self, bank: DenseBank, codes: np.ndarray, progress: Progress) -> None:
        """Choose weights and alpha for kernels and class codes (n,); fit to them."""
        target, _ = reduced_class_target(codes, len(self.classes_))
        target = from_numpy(target, bank.like)
        choice = self._choose(bank, target, codes, progress)
        self._set_weights(choice.weights)
        fit = choice.fit
        if fit is None:
            fit = fit_kernel(bank.combine(choice.weights), target, choice.alpha)
        self._set_discriminant(fit, target, codes)
        if choice.certificate is not None:
            self._set_certificate(choice.certificate)
        self.alpha_, self.n_iter_ = float(choice.alpha), int(choice.n_iter)

    def _check_parameters(self) -> None:
        """Refuse parameters that make no sense, before any work is done."""

    def _choose(
        self, bank: DenseBank, target: Array, codes: np.ndarray, progress: Progress
    ) -> Choice:
        """Weights and alpha for target (n, k - 1); the task of a subclass."""
        raise TypeError(f"{type(self).__name__} does not choose kernel weights")

    def _set_discriminant(
        self, fit: KernelFit, target: Array, codes: np.ndarray
    ) -> None:
        """Rotate to discriminant axes and fit the class Gaussians."""
        axes = principal_axes(fit.coef, target)
        self.dual_coef_ = fit.coef @ axes
        # The mean of the other rows' targets is -t_i / (n - 1): left in, it would tell
        # the label of a row, with the wrong sign. All rows are given the one intercept.
        others = 1.0 / (len(codes) - 1)
        held_out = to_numpy((target * (1.0 + others) - fit.loo_residual) @ axes)
        self.loo_error_ = float(np.mean(to_numpy(fit.loo_residual) ** 2))
        self._set_gaussians(
            ClassGaussians.fit(held_out, to_numpy(target @ axes), codes)
        )

    def _set_gaussians(self, gaussians: ClassGaussians) -> None:
        self.gaussians_, self.loo_score_ = gaussians, gaussians.loo_score
        if gaussians.remark is not None:
            self.kernel_map_.remarks.append(gaussians.remark)

    @property
    def _n_features_out(self) -> int:
        return int(self.dual_coef_.shape[1])

    def _log_joint(self, X: Any, method: str) -> Array:
        projected = self._predict_target(X, method)
        return self._where_known(self.gaussians_.log_joint(projected), projected)

    def _where_known(self, scores: Array, projected: Array) -> Array:
        """Scores (m, k), and class shares for rows that lack every view."""
        if self.missing == "error":
            return scores
        # A row without any view is exactly zero: all that is known are class shares.
        xp = namespace(projected)
        known = xp.any(projected != 0, axis=1)[:, None]
        log_prior = from_numpy(self.gaussians_.log_prior, projected)
        return xp.where(known, scores, log_prior[None, :])

    @lazily
    def transform(self, X: Any) -> Array:
        """Project rows to discriminant coordinates, the most discriminating first.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.

        Returns
        -------
        Z : array of shape (m, k - 1)
            Coordinates.
        """
        return self._predict_target(X, "transform")

    @lazily
    def decision_function(self, X: Any) -> Array:
        """Log joint density of rows and classes.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.

        Returns
        -------
        scores : array of shape (m,) or (m, k)
            For two classes the log odds of ``classes_[1]``, else one column a class.
        """
        scores = self._log_joint(X, "decision_function")
        return scores[:, 1] - scores[:, 0] if len(self.classes_) == 2 else scores

    def _class_scores(self, X: Any) -> Array:
        return self._log_joint(X, "predict")

    @hidden_until_fitted
    @lazily
    def predict_proba(self, X: Any) -> Array:
        """Class probabilities from Gaussians in the projected space.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.

        Returns
        -------
        proba : array of shape (m, k)
            Rows sum to one.
        """
        scores = self._log_joint(X, "predict_proba")
        xp = namespace(scores)
        # float64, so that probabilities sum to one whatever the dtype of X
        wide = as_float(scores, xp.float64)
        wide = xp.exp(wide - xp.max(wide, axis=1, keepdims=True))
        return as_float(wide / xp.sum(wide, axis=1, keepdims=True), scores.dtype)

    @lazily
    def predict_log_proba(self, X: Any) -> Array:
        """Logarithm of :meth:`predict_proba`, without underflow.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.

        Returns
        -------
        log_proba : array of shape (m, k)
            Log probabilities.
        """
        scores = self._log_joint(X, "predict_log_proba")
        xp = namespace(scores)
        scores = scores - xp.max(scores, axis=1, keepdims=True)
        return scores - xp.log(xp.sum(xp.exp(scores), axis=1, keepdims=True))
