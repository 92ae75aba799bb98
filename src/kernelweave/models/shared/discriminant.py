"""What the discriminant classifiers share once weights and alpha are chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from kernelweave._array import Array, as_float, from_numpy, namespace, to_numpy
from kernelweave.fits.gaussians import ClassGaussians
from kernelweave.fits.ridge import KernelFit, principal_axes
from kernelweave.models.shared.base import all_or_nothing
from kernelweave.models.shared.classifier import (
    KernelClassifier,
    hidden_until_fitted,
    lazily,
)
from kernelweave.models.shared.learner import Fitted, Learned, Trained

__all__ = ["KernelDiscriminant", "fit_discriminant"]


def fit_discriminant(
    learned: Learned,
    fit: KernelFit,
    target: Array,
    classes: np.ndarray,
    codes: np.ndarray,
) -> Fitted:
    """Rotate a fit to the target (n, k - 1) to discriminant axes; fit the Gaussians.

    The most discriminating axis comes first; ``codes`` (n,) are the rows' classes.
    """
    axes = principal_axes(fit.coef, target)
    # The mean of the other rows' targets is -t_i / (n - 1): left in, it would reveal
    # the label of a row, with the wrong sign. So all rows share one intercept.
    others = 1.0 / (len(codes) - 1)
    held_out = to_numpy((target * (1.0 + others) - fit.loo_residual) @ axes)
    return Fitted(
        learned,
        float(np.mean(to_numpy(fit.loo_residual) ** 2)),
        dual_coef=fit.coef @ axes,
        classes=classes,
        gaussians=ClassGaussians.fit(held_out, to_numpy(target @ axes), codes),
    )


class KernelDiscriminant(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelClassifier
):
    """Classifier and transformer on a weighted sum of kernels."""

    fit_transform = all_or_nothing(TransformerMixin.fit_transform)

    def _set_discriminant(self, trained: Trained) -> None:
        """Set the results of a fit, in place of an earlier one."""
        self._set_trained(trained)
        fitted = trained.fitted
        assert fitted.classes is not None and fitted.gaussians is not None
        self.classes_ = fitted.classes
        self._set_gaussians(fitted.gaussians)
        if fitted.learned.choice.certificate is not None:
            self._set_certificate(fitted.learned.choice.certificate)

    def _set_gaussians(self, gaussians: ClassGaussians) -> None:
        self.gaussians_, self.loo_score_ = gaussians, gaussians.loo_score
        if gaussians.remark is not None:
            self.kernel_map_.remarks.append(gaussians.remark)

    @property
    def _n_features_out(self) -> int:
        return int(self._coef.shape[1])

    def _log_joint(self, X: Any, method: str) -> Array:
        projected = self._predict_target(X, method)
        return self._where_known(self.gaussians_.log_joint(projected), projected)

    def _where_known(self, scores: Array, projected: Array) -> Array:
        """Scores (m, k), replaced by the log prior for rows that lack every view."""
        if self.missing == "error":
            return scores
        # A row without any view projects to exactly zero; only the prior is known.
        xp = namespace(projected)
        known = xp.any(projected != 0, axis=1)[:, None]
        log_prior = from_numpy(self.gaussians_.log_prior, projected)
        return xp.where(known, scores, log_prior[None, :])

    @lazily
    def transform(self, X: Any) -> Array:
        """Project rows to discriminant coordinates, or to those of the classes.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.

        Returns
        -------
        Z : array of shape (m, k - 1) or (m, k)
            Discriminant coordinates, the most discriminating first; for probabilistic
            models, the mean of each class coordinate.
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
            For two classes the log odds of ``classes_[1]``, else one column per class.
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
