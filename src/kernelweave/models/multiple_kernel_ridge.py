"""Multiple-kernel ridge regression: the Fisher criterion with y as target."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.callback import with_callbacks
from sklearn.metrics import r2_score
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d

from kernelweave._array import Array, from_numpy, is_array, namespace, to_numpy
from kernelweave._units import units_of
from kernelweave.criteria.fisher.total import Fisher
from kernelweave.fits.discriminant import fit_kernel
from kernelweave.fits.targets import output_frame
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.models.shared.base import KernelModel
from kernelweave.models.shared.lazy import lazily
from kernelweave.models.shared.learner import WeightLearner, check_learner_parameters
from kernelweave.models.shared.progress import Progress
from kernelweave.models.streaming.explicit import ExplicitFeatures
from kernelweave.models.streaming.primal import finish_outputs

__all__ = ["MultipleKernelRidge"]

#: Deviation of an output, relative to its largest entry, that makes it a constant.
CONSTANT_OUTPUT = 1e-14


class MultipleKernelRidge(ExplicitFeatures, RegressorMixin, KernelModel):
    """Kernel ridge regression that learns which kernels matter.

    Minimises, over weights w of centred kernels G_i of trace n and functions f_i in
    their spaces::

        sum_j norm(y_j - sum_i f_ij)^2 + alpha sum_i norm(f_ij)^2 / w_i

    subject to ``w >= 0`` and ``norm_q(w) <= 1``; minimised over the functions this is
    ``alpha tr(Y' (alpha I + sum_i w_i G_i)^-1 Y)``, the criterion of
    :class:`MultipleKernelFDA` (Ye et al. 2007, Lemma 2.1) with y in place of the class
    targets. Columns of y are centred and scaled to unit variance while weights are
    learned, so that no unit of measurement outweighs another.

    Parameters
    ----------
    views : None, "precomputed" or list of (name, kernel, columns), default=None
        Column groups and their kernels; see :class:`MultipleKernelFDA`.
    norm : float >= 1 or "loo", default="loo"
        1 gives sparse weights, larger norms more even ones, ``inf`` the uniform mean.
        "loo" tries 1, 4/3, 2 and inf and keeps the smallest leave-one-out error.
    alpha : float, "learn", "loo" or "cv", default="loo"
        Regularisation, relative to the mean eigenvalue of a kernel; see
        :class:`MultipleKernelFDA`.
    objective : {"fisher", "loo"}, default="fisher"
        "loo" minimises the leave-one-out error over weights and alpha directly.
    solver : {"auto", "newton", "closed_form", "cutting_plane", "working_set", \
"sdp"}, default="auto"
        How the convex problem is solved.
    tol : float, default=1e-6
        Relative gap to reach (1e-4 at best for float32 input).
    max_iter : int, default=None
        Iterations allowed; None leaves it to the solver.
    psd : {"error", "clip", "trust"}, default="error"
        What to do with a kernel that is not positive semidefinite: refuse it, set its
        negative eigenvalues to zero, or do not look. Looking costs a factorisation a
        precomputed or callable kernel.
    missing : {"error", "available", "zero"}, default="error"
        What to do with a row that lacks a view, all entries of which are NaN: refuse
        it, fill the kernels of the view with the mean of those that are there, or with
        zeros. See :doc:`/user_guide/missing_views`.
    features : {"auto", "exact", "nystroem", "random"}, default="auto"
        How kernels are represented: as n x n matrices, or by explicit features whose
        second moments take one pass over the rows. "auto" takes matrices up to 10,000
        rows (any number on a graphics card) while they fit into memory, and Nystroem
        features beyond and for rows in portions; "exact" never approximates: matrices,
        or features of linear, cosine and polynomial kernels for sparse rows and rows in
        portions. What was chosen, and the error of it, is in ``features_``. See
        :doc:`/user_guide/scale`.
    n_features : int, default=200
        Features of each kernel that has to be approximated.
    device : str, default=None
        Where features and moments are computed: rows in host memory are sent there in
        portions. "cuda" is torch's (CuPy's where there is no torch), "cupy" CuPy's.
    random_state : int, RandomState instance or None, default=0
        Draws landmarks, frequencies and folds.
    verbose : int, default=0
        Print progress: 1 for iterations, 2 for kernels too.

    Attributes
    ----------
    kernel_weights_ : ndarray of shape (p,)
        The learned weight of each kernel.
    kernel_names_ : list of str
        Name of each kernel.
    view_weights_ : dict
        Sum of the weights of each view's kernels.
    norm_ : float or None
        The norm used; None for ``objective="loo"``.
    alpha_ : float
        The regularisation used.
    certificate_ : Certificate
        Value, lower bound, relative gap and status of the weights.
    features_ : FeatureReport
        How kernels were represented and why; for explicit features with the held-out
        kernel error of each kernel.
    dual_coef_ : array of shape (n, n_outputs)
        Coefficients of the training rows. Not set where only moments were kept.
    feature_coef_ : array of shape (D, n_outputs)
        Coefficients of the explicit features, of the kernels with weight.
    intercept_ : array of shape (n_outputs,)
        Mean of y.
    loo_error_ : float
        Leave-one-out mean squared error in units of the variance of y.
    n_iter_ : int
        Factorisations the chosen weights took.
    n_features_in_ : int
        Number of features (of training rows if precomputed).
    feature_names_in_ : ndarray of shape (d,)
        Names of the features, if X has string column names.

    See Also
    --------
    MultipleKernelFDA : The same problem for classes.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from kernelweave import MultipleKernelRidge
    >>> X, y = load_diabetes(return_X_y=True)
    >>> views = [("body", "auto", [0, 1, 2, 3]), ("serum", "auto", slice(4, 10))]
    >>> model = MultipleKernelRidge(views).fit(X[:200], y[:200])
    >>> model.predict(X[200:]).shape
    (242,)
    """

    def __init__(
        self,
        views: Any = None,
        *,
        norm: float | str = "loo",
        alpha: float | str = "loo",
        objective: str = "fisher",
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int | None = None,
        psd: str = "error",
        missing: str = "error",
        features: str = "auto",
        n_features: int = 200,
        device: str | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.views = views
        self.norm = norm
        self.alpha = alpha
        self.objective = objective
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.psd = psd
        self.missing = missing
        self.features = features
        self.n_features = n_features
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    _classifies = False
    _finish = finish_outputs

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def _check_parameters(self) -> None:
        check_learner_parameters(self)
        self._check_feature_parameters()

    @with_callbacks
    def _fit_kernels(self, X: Any, y: Any) -> None:
        """Learn from kernels between all rows."""
        source = self._open(X)
        outputs = self._check_targets(X, y)
        if len(outputs) < 2:
            raise ValueError(
                f"{type(self).__name__} needs at least 2 rows; found 1 sample"
            )
        progress = Progress(self, X, y)
        self._learn(self._fit_bank(source, progress), outputs, progress)
        progress.end()

    def _learn(self, bank: DenseBank, outputs: np.ndarray, progress: Progress) -> None:
        """Choose weights and alpha for kernels and targets (n, n_outputs); fit."""
        mean, unit = output_frame(outputs, to_numpy(bank.like[:0, ...]).dtype)
        centred = (outputs - mean) / unit
        spread = np.sqrt(np.mean(centred**2, axis=0))
        varies = spread > CONSTANT_OUTPUT * np.max(np.abs(outputs / unit), axis=0)
        spread = np.where(varies, spread, 1.0)
        target = from_numpy(np.where(varies, centred, 0.0) / spread, bank.like)
        learner = WeightLearner(
            self, bank, target, lambda alpha: Fisher(bank, target, alpha), progress
        )
        choice, _ = learner.choose()
        self._set_weights(choice.weights)
        if choice.certificate is not None:
            self._set_certificate(choice.certificate)
        fit = choice.fit
        if fit is None:
            fit = fit_kernel(bank.combine(choice.weights), target, choice.alpha)
        self.dual_coef_ = fit.coef * from_numpy(spread * unit, bank.like)[None, :]
        self.intercept_ = from_numpy(mean, bank.like)
        self.loo_error_ = float(np.mean(to_numpy(fit.loo_residual) ** 2))
        self.alpha_, self.n_iter_ = float(choice.alpha), int(choice.n_iter)
        self.norm_ = choice.norm

    def _check_targets(self, X: Any, y: Any) -> np.ndarray:
        """Targets as (n, n_outputs) in float64; remembers whether y was flat."""
        if y is None:
            raise ValueError(
                f"{type(self).__name__} requires y to be passed, but the target y is "
                "None"
            )
        y = check_array(
            to_numpy(y) if is_array(y) else y,
            ensure_2d=False,
            dtype=np.float64,
            input_name="y",
        )
        check_consistent_length(X, y)
        self._flat = y.ndim == 1 or y.shape[1] == 1
        if y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        return y.reshape(len(y), -1)

    @lazily
    def predict(self, X: Any) -> Array:
        """Predict targets.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.

        Returns
        -------
        y : array of shape (m,) or (m, n_outputs)
            Predictions, in the namespace and dtype of X.
        """
        predicted = self._predict_target(X, "predict")
        predicted = predicted + self.intercept_[None, :]
        return (
            namespace(predicted).reshape(predicted, (-1,)) if self._flat else predicted
        )

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Coefficient of determination.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.
        y : array-like of shape (m,) or (m, n_outputs)
            True targets.
        sample_weight : array-like of shape (m,), default=None
            Weights of the rows.

        Returns
        -------
        score : float
            R^2.
        """
        truth = to_numpy(y) if is_array(y) else np.asarray(y, dtype=np.float64)
        unit = float(units_of(np.max(np.abs(truth), initial=0.0), 64))
        predicted = to_numpy(self.predict(X)) / unit
        return float(r2_score(truth / unit, predicted, sample_weight=sample_weight))
