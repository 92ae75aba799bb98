"""Multiple-kernel ridge regression: the Fisher criterion with y as the target."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np
from sklearn.metrics import r2_score

from kernelweave._array import (
    namespace,
    to_numpy,
    units_of,
)
from kernelweave._sklearn import RegressorMixin
from kernelweave.fits.design import RowDesign
from kernelweave.learn.folds import cross_validate
from kernelweave.learn.measure import Measure
from kernelweave.learn.ridge import OutputTask, learn_ridge
from kernelweave.learn.search import Options, in_features
from kernelweave.models.shared.base import (
    FisherSolver,
    KernelModel,
    Missing,
    Progress,
    Psd,
    available,
    check_learner_parameters,
    fit_method,
    lazily,
    read_training,
    unweighted_criterion,
)
from kernelweave.models.shared.inputs import as_numbers, of_own_type
from kernelweave.models.streaming.explicit import may_have_features
from kernelweave.models.streaming.primal import (
    SummedRows,
    TrainingRows,
    learn_output_moments,
)
from kernelweave.protocols import Bank, Criterion


@dataclass(repr=False, eq=False)
class MultipleKernelRidge(RegressorMixin, KernelModel):
    """Kernel ridge regression that learns which kernels matter.

    Minimises, over weights w of centred kernels G_i of trace n and functions f_i in
    their spaces::

        sum_j norm(y_j - sum_i f_ij)^2 + alpha sum_i norm(f_ij)^2 / w_i

    subject to ``w >= 0`` and ``norm_q(w) <= 1``. Minimised over the functions, this is
    ``alpha tr(Y' (alpha I + sum_i w_i G_i)^-1 Y)``, the criterion of
    :class:`MultipleKernelFDA` (Yan et al. 2009, Eqs. 8 and 9) with y in place of the
    class targets. Columns of y are centred and scaled to unit variance while weights
    are learned, so that no unit of measurement outweighs another.

    Parameters
    ----------
    views : None, "precomputed" or list of (name, kernel, columns), default=None
        Column groups and their kernels; see :class:`MultipleKernelFDA`.
    norm : float >= 1 or "loo", default="loo"
        1 gives sparse weights, larger norms more even ones, ``inf`` the uniform mean.
        "loo" tries 1, 4/3, 2 and inf and keeps the one with the smallest leave-one-out
        error; with 1,500 rows or more, a sample of them rules out norms first.
    alpha : float, "learn", "loo" or "cv", default="loo"
        Regularisation, relative to the mean eigenvalue of a kernel; see
        :class:`MultipleKernelFDA`. "loo" and "cv" choose it for each column of y
        separately, so that a column of noise does not smooth the others away.
    interactions : bool, default=False
        Whether to add products of kernels of different views, as one more view named
        "between views"; see :class:`MultipleKernelFDA`.
    cv : int, splitter, iterable of splits or None, default=5
        Folds for ``cv_score_``: weights, norm and alpha are learned again without the
        rows of each fold, for about two to three times the cost of the fit alone. The
        folds of an int depend on what the rows hold, not on their order. None skips
        them.
    scoring : str or callable, default=None
        The measure of predictions for rows left out by which alpha and norm are chosen,
        in place of the squared error: the name of a scikit-learn scorer such as
        "neg_mean_absolute_error", or a callable ``scorer(estimator, X, y)``, whose X
        holds predictions, not rows. Among settings with the same score, the one with
        the smallest squared error is taken. Alpha is chosen for each column of y
        separately.
        ``cv_score_`` is then the mean of this measure over the folds. See
        :doc:`/user_guide/honest_scores`.
    solver : {"auto", "newton", "closed_form", "cutting_plane", "working_set"}, \
default="auto"
        How the convex problem is solved; all reach the same certified optimum.
    tol : float, default=1e-6
        Relative gap to reach; 1e-4 for float32 input, if rounding allows no less.
    max_iter : int, default=None
        Maximum number of iterations; None leaves it to the solver.
    centre : bool, default=True
        Whether the trace that ``scale`` sets to n is that of the centred kernels.
        Ridge regression has a free intercept, so it is the same for a kernel and its
        centred version: ``False`` takes the trace of the kernels as given, and changes
        nothing else. See :doc:`/user_guide/fisher`.
    scale : {"trace", None}, default="trace"
        "trace" multiplies every kernel by a number that makes its trace n. None takes
        kernels as they are: their sizes then matter, and a number for alpha, or "loo",
        is in the same units.
    psd : {"error", "clip", "trust"}, default="error"
        What to do with a kernel that is not positive semidefinite: refuse it, set its
        negative eigenvalues to zero, or skip the check, which costs one factorisation
        per precomputed or callable kernel.
    missing : {"zero", "available", "error"}, default="zero"
        What to do with a row that lacks a view (its entries there are all NaN): fill
        its entries in that view's kernels with zeros, so that the view adds nothing,
        or with the mean over the available kernels, or refuse it. See
        :doc:`/user_guide/missing_views`.
    features : {"auto", "exact", "on_the_fly", "nystroem", "random"}, default="auto"
        How kernels are represented: as n x n matrices, as kernels recomputed on
        every pass in the memory of one matrix, or by explicit features whose
        second moments take one pass over the rows. "auto" uses matrices for up to
        10,000 rows (any number on a GPU) if they fit into memory, kernels on
        the fly if one matrix does or if that takes less time (without folds and with
        many kernels per view), and Nystroem features beyond that and for rows in
        portions. "exact" never approximates: it uses matrices, kernels on the fly or,
        for sparse rows and rows in portions, the features of linear, cosine and
        polynomial kernels. ``features_`` records the choice and its error. See
        :doc:`/user_guide/scale`.
    n_features : int, default=200
        Number of features for each kernel that has to be approximated; of n rows no
        more than n are landmarks. What would not fit into memory is refused.
    device : str, default=None
        Where kernels, features and moments are computed if X is in host memory: "cuda"
        sends rows to a GPU through torch (CuPy if torch is not installed), "cupy"
        through CuPy. Results are returned to where X is.
    random_state : int, RandomState instance or None, default=0
        Source of randomness for landmarks, frequencies and folds.
    verbose : int, default=0
        Print progress: 1 for iterations, 2 for kernels too.

    Attributes
    ----------
    kernel_weights_ : array of shape (p,)
        The learned weight of each kernel.
    kernel_names_ : list of str
        Name of each kernel.
    view_weights_ : dict
        Sum of the weights of each view's kernels.
    view_shares_ : dict
        ``view_weights_`` scaled to sum to one: each view's part of the trace of the
        combined kernel, whatever the norm.
    norm_ : float
        The norm used.
    alpha_ : float or array of shape (n_outputs,)
        The regularisation used: one number for each output if y has several columns
        and alpha is "loo" or "cv", otherwise a float.
    certificate_ : Certificate
        Value, lower bound, relative gap and status of the weights.
    features_ : FeatureReport
        How kernels were represented and why; for explicit features also the held-out
        error of each kernel.
    dual_coef_ : array of shape (n, n_outputs)
        Coefficients of the training rows. Absent if only moments were kept.
    feature_coef_ : array of shape (D, n_outputs)
        Coefficients of the explicit features of kernels with nonzero weight.
    intercept_ : array of shape (n_outputs,)
        Mean of y.
    cv_score_, cv_standard_error_ : float
        R^2 on folds in which weights, norm and alpha were learned without the
        held-out rows, and its standard error: what to expect on new rows. Only the
        parameters of kernels, such as widths, were set on all rows, without their
        outputs. Absent for ``cv=None``, if only moments of the rows were kept,
        and if a transformer in ``views`` needs the targets.
    loo_error_ : float
        Leave-one-out mean squared error in units of the variance of y, the mean over
        the outputs. Weights, norm and alpha were chosen on all rows, so it is
        optimistic, the more so with many kernels and few rows. With moments: the
        (generalised) cross-validation error by which alpha was chosen.
    loo_errors_ : array of shape (n_outputs,)
        The error of each output, also in units of its variance.
    n_iter_ : int
        Number of factorisations for the chosen weights.
    column_summary_ : list of dict
        What each view does with each of its columns; see :doc:`/user_guide/tables`.
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

    views: Any = None
    _: KW_ONLY
    norm: float | Literal["loo"] = "loo"
    alpha: float | Literal["learn", "loo", "cv"] = "loo"
    interactions: bool = False
    cv: Any = 5
    scoring: Any = None
    solver: FisherSolver = "auto"
    tol: float = 1e-6
    max_iter: int | None = None
    centre: bool = True
    scale: Literal["trace"] | None = "trace"
    psd: Psd = "error"
    missing: Missing = "zero"
    features: Literal["auto", "exact", "on_the_fly", "nystroem", "random"] = "auto"
    n_features: int = 200
    device: str | None = None
    random_state: Any = 0
    verbose: int = 0

    @fit_method
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, groups: Any = None
    ) -> Self:
        """Learn from rows and targets.

        Parameters
        ----------
        X : array-like, DataFrame or sparse array of shape (n, d), precomputed kernels \
of shape (n, n) or (n, n, p), Dask array or DataFrame, pyarrow data set, or iterator
            Training rows. An iterator yields pairs (X, y) of portions.
        y : array-like of shape (n,) or (n, n_outputs), or str
            Targets; the name of their column if X is a Dask DataFrame or a pyarrow
            data set; omitted if X is an iterator.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows: one of weight 2 counts like two equal rows, one of
            weight 0 not at all. A row is always left out with all of its weight.
            Not for rows in portions, see :meth:`partial_fit`.
        groups : array-like of shape (n,), default=None
            Rows with the same value are left out together by every leave-one-out error
            (``loo_error_`` and those by which alpha and norm are chosen), since
            repeated measurements of one subject would give each other away. Refused
            where only moments are kept, from which no group can be left out.

        Returns
        -------
        self : estimator
            Fitted estimator.
        """
        check_learner_parameters(self)
        progress = Progress(self, X, y, sample_weight)
        rows = read_training(self, X, y, sample_weight, groups, progress)
        self._learn(rows, progress)
        progress.end()
        return self

    @available(may_have_features)
    @fit_method
    def partial_fit(
        self,
        X: Any = None,
        y: Any = None,
        classes: Any = None,
        solve: bool = True,
        sample_weight: Any = None,
    ) -> Self:
        """Learn from more rows, or again from those of earlier calls.

        See :meth:`MultipleKernelFDA.partial_fit`.

        Parameters
        ----------
        X : array-like, sparse array or DataFrame of shape (m, d), default=None
            Rows; None to solve only, with the current parameters.
        y : array-like of shape (m,) or (m, n_outputs)
            Targets.
        classes : array-like, default=None
            All values that may occur in y; any other is refused, in later calls too.
        solve : bool, default=True
            Whether to learn the weights now.
        sample_weight : array-like of shape (m,), default=None
            Weights of these rows.

        Returns
        -------
        self : estimator
            Fitted once two rows have been seen.
        """
        check_learner_parameters(self)
        return self._fit_portions(X, y, classes, solve, sample_weight)

    def _learn(self, read: TrainingRows | SummedRows, progress: Progress) -> None:
        """Learn from kernels between rows, or from sums over them, and publish it."""
        options, folds = self._options(progress), None
        if isinstance(read, SummedRows):
            learned, rows, report = learn_output_moments(read, options)
            return self._publish_learned(rows, report, learned)
        sample = read.sample
        learned = learn_ridge(sample, options)
        if not read.rows.see_targets:
            folds = cross_validate(learn_ridge, sample, options, learned)
        learned = in_features(learned, sample, read.rows.like)
        return self._publish_learned(read.rows, read.report, learned, folds=folds)

    def _options(self, progress: Progress | None) -> Options:
        """What is learned."""
        return Options(
            norm=self.norm,
            alpha=self.alpha,
            solver=self.solver,
            tol=self.tol,
            max_iter=self.max_iter,
            learnable=self.scale is not None,
            measure=None if self.scoring is None else Measure(self.scoring),
            cv=self.cv,
            random_state=self.random_state,
            progress=progress,
        )

    def _weight_criterion(
        self, bank: Bank, targets: np.ndarray, design: RowDesign
    ) -> Criterion:
        """Fisher's problem of the outputs."""
        options = Options(alpha=self.alpha)
        return unweighted_criterion(OutputTask.of, options, bank, targets, design)

    @lazily
    def predict(self, X: Any) -> np.ndarray:
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
        predicted = self._predict_target(X, "predict") + self.intercept_[None, :]
        flat = predicted.shape[1] == 1
        return namespace(predicted).reshape(predicted, (-1,)) if flat else predicted

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
        owner = type(self).__name__
        truth = as_numbers(of_own_type(y, owner), owner)
        unit = float(units_of(np.max(np.abs(truth), initial=0.0), 64))
        predicted = to_numpy(self.predict(X)) / unit
        return float(r2_score(truth / unit, predicted, sample_weight=sample_weight))
