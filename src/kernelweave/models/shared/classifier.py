"""What all classifiers share: encoding and decoding labels, accuracy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.metaestimators import available_if

from kernelweave._array import Array, device, is_array, namespace, to_numpy
from kernelweave.models.shared.base import KernelModel
from kernelweave.models.shared.inputs import check_labels, encode_labels
from kernelweave.models.streaming.dask import predict_lazily
from kernelweave.views.columns import is_dask, is_precomputed

__all__ = ["KernelClassifier", "hidden_until_fitted", "lazily"]


def lazily(method: Callable[..., Any]) -> Callable[..., Any]:
    """Let a method of rows X return a lazy Dask array when X is a Dask collection."""

    @functools.wraps(method)
    def now_or_later(self: Any, X: Any) -> Any:
        if is_dask(X):
            return predict_lazily(self, method.__name__, X)
        return method(self, X)

    return now_or_later


#: Generic code tries classifiers with probabilities on feature tables, which are not
#: valid precomputed kernels. With "precomputed" the method appears only once fitted.
hidden_until_fitted = available_if(
    lambda self: hasattr(self, "classes_") or not is_precomputed(self.views)
)


class KernelClassifier(ClassifierMixin, KernelModel):
    """Base class of the classifiers; subclasses provide the class scores."""

    classes_: np.ndarray

    def _encode(self, X: Any, y: Any) -> np.ndarray:
        """Class codes (n,); sets ``classes_``."""
        owner = type(self).__name__
        self.classes_, codes = encode_labels(check_labels(X, y, owner), owner)
        return codes

    def _class_scores(self, X: Any) -> Array:
        """Scores (m, k), one column per class, the largest wins; set by subclasses."""
        raise TypeError(f"{type(self).__name__} does not score classes")

    @lazily
    def predict(self, X: Any) -> Array:
        """Predict labels.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.

        Returns
        -------
        labels : array of shape (m,)
            In the namespace of X if labels are numbers, otherwise NumPy.
        """
        scores = self._class_scores(X)
        return self._decode(namespace(scores).argmax(scores, axis=1))

    def _decode(self, codes: Array) -> Array:
        """Labels of class codes (m,), on the codes' device if labels are numbers."""
        if self.classes_.dtype.kind in "OUSb":
            return self.classes_[to_numpy(codes)]
        xp = namespace(codes)
        return xp.take(xp.asarray(self.classes_, device=device(codes)), codes)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.
        y : array-like of shape (m,)
            True labels.
        sample_weight : array-like of shape (m,), default=None
            Weights of the rows in the mean.

        Returns
        -------
        score : float
            Fraction of rows predicted correctly.
        """
        truth = to_numpy(y) if is_array(y) else y
        predicted = to_numpy(self.predict(X))
        return float(accuracy_score(truth, predicted, sample_weight=sample_weight))
