"""Measures of scikit-learn by which alpha and norm are chosen, in place of errors."""

from __future__ import annotations

import inspect
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.metrics import get_scorer, make_scorer

from kernelweave._array import Array, to_numpy
from kernelweave.fits.design import RowDesign
from kernelweave.fits.gaussians import HeldOutClasses
from kernelweave.fits.ridge import KernelFit


class PredictedClasses(ClassifierMixin, BaseEstimator):
    """A classifier whose "rows" are the class scores (m, k) of rows left out.

    Scorers ask an estimator for predictions on X. Here these have been made already,
    each by a model that has not seen the row, and X only holds them.
    """

    def __init__(self, classes: np.ndarray) -> None:
        self.classes = classes
        self.classes_ = classes

    def decision_function(self, X: np.ndarray) -> np.ndarray:
        """Log odds (m,) of the second of two classes, else X."""
        return X[:, 1] - X[:, 0] if X.shape[1] == 2 else X

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Class probabilities, (m, k)."""
        return softmax(X, axis=1)

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Labels, (m,)."""
        return self.classes[np.argmax(X, axis=1)]


class PredictedOutputs(RegressorMixin, BaseEstimator):
    """A regressor whose "rows" are the predictions (m,) or (m, t) for rows left out."""

    def predict(self, X: np.ndarray) -> np.ndarray:
        """X."""
        return X


@dataclass(frozen=True)
class Measure:
    """A scorer of scikit-learn, applied to predictions for rows left out.

    Attributes
    ----------
    scoring : str or callable
        Name of a scorer, or ``scorer(estimator, X, y)``.
    classes : ndarray of shape (k,) or None
        Labels of all classes; None for a regression.
    """

    scoring: Any
    classes: np.ndarray | None = None

    def __call__(
        self,
        predicted: np.ndarray,
        truth: np.ndarray,
        weights: np.ndarray | None,
        classes: np.ndarray | None = None,
    ) -> float:
        """The score of predictions; NaN where the measure is undefined.

        Parameters
        ----------
        predicted : ndarray of shape (m, k), or (m, t) for a regression
            Class scores, or outputs.
        truth : ndarray of shape (m,) or (m, t)
            Class codes, or outputs.
        weights : ndarray of shape (m,) or None
            Weights of the rows.
        classes : ndarray of shape (k,), optional
            Codes of the columns of ``predicted``; all by default.
        """
        scorer, given = get_scorer(self.scoring), {}
        model: Any = PredictedOutputs()
        if self.classes is None and truth.shape[1] == 1:
            truth, predicted = truth[:, 0], predicted[:, 0]
        elif self.classes is not None:
            own = self.classes if classes is None else self.classes[classes]
            model, truth = PredictedClasses(own), self.classes[truth]
            scorer = _with_labels(scorer, own)
        if weights is not None:
            if not _takes(scorer, "sample_weight"):
                raise ValueError(
                    f"scoring={self.scoring!r} takes no row weights; leave out "
                    "sample_weight and class_weight, or use a scorer that takes them"
                )
            given["sample_weight"] = weights
        with warnings.catch_warnings():  # of measures that are undefined, or zero
            # no others, as threads that overlap may leave the filter in place
            whose = r"sklearn\.(metrics|utils)"
            warnings.filterwarnings("ignore", category=UserWarning, module=whose)
            try:
                return float(scorer(model, predicted, truth, **given))
            except (ValueError, TypeError, AttributeError) as error:
                raise ValueError(
                    f"scoring={self.scoring!r} fails on predictions for rows left out: "
                    f"{error}"
                ) from error

    def of_classes(
        self,
        target: Array,
        codes: np.ndarray,
        classes: np.ndarray,
        design: RowDesign,
        priors: np.ndarray | None,
        fit: KernelFit,
    ) -> float:
        """The score of a discriminant on the rows left out.

        Rows whose class has no other row or group are excluded. The class shares
        are those of all rows, the same for every row: the shares of the other rows
        would reveal the class of the one left out, with the wrong sign.

        Parameters
        ----------
        target : array of shape (n, k - 1)
            Target of each row.
        codes : ndarray of shape (n,)
            Classes 0 .. k - 1.
        classes : ndarray of shape (k,)
            Their codes among all classes.
        design : RowDesign
            Weights and groups of the rows.
        priors : ndarray of shape (k,) or None
            Probabilities in place of class shares.
        fit : KernelFit
            The discriminant.
        """
        projected = to_numpy(fit.held_out(target, design))
        held_out = HeldOutClasses.of(projected, to_numpy(target), codes, design)
        scores = held_out.log_joint(projected.astype(np.float64), codes, design, priors)
        known = held_out.several
        rows = known[codes]
        if not np.any(rows):
            return float("nan")
        weights = None if design.weights is None else design.weights[rows]
        return self(
            scores[np.ix_(rows, known)], classes[codes[rows]], weights, classes[known]
        )

    def of_outputs(
        self,
        outputs: np.ndarray,
        units: np.ndarray,
        design: RowDesign,
        fit: KernelFit,
        column: int | None = None,
    ) -> float:
        """The score of a regression on the rows left out.

        Parameters
        ----------
        outputs : ndarray of shape (n, t)
            What is to be predicted.
        units : ndarray of shape (t,)
            Units of the residuals.
        design : RowDesign
            Weights and groups of the rows.
        fit : KernelFit
            The regression.
        column : int, optional
            The only output to score; by default all of them together.
        """
        part = slice(None) if column is None else slice(column, column + 1)
        truth = outputs[:, part]
        residual = to_numpy(fit.loo_residual)[:, part]
        predicted = truth - residual * units[part]
        return self(predicted, truth, design.weights)


def _takes(scorer: Any, parameter: str) -> bool:
    function = getattr(scorer, "_score_func", scorer)
    return parameter in inspect.signature(function).parameters


def _with_labels(scorer: Any, classes: np.ndarray) -> Any:
    """A scorer of probabilities that knows all classes, though rows may lack some."""
    given = {"labels": classes, **getattr(scorer, "_kwargs", {})}
    method = getattr(scorer, "_response_method", "predict")
    if method == "predict" or not _takes(scorer, "labels"):
        return scorer
    return make_scorer(
        scorer._score_func,
        response_method=method,
        greater_is_better=scorer._sign > 0,
        **given,
    )
