"""Multiple-kernel Fisher discriminant analysis."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from kernelweave.fits.design import RowDesign
from kernelweave.learn.discriminant import ClassTask, learn_discriminant
from kernelweave.learn.folds import cross_validate
from kernelweave.learn.measure import Measure
from kernelweave.learn.search import Choice, Options, in_features
from kernelweave.models.shared.base import (
    FisherSolver,
    KernelDiscriminant,
    Missing,
    Progress,
    Psd,
    available,
    check_learner_parameters,
    fit_method,
    read_training,
    unweighted_criterion,
)
from kernelweave.models.shared.inputs import check_priors
from kernelweave.models.streaming.explicit import may_have_features
from kernelweave.models.streaming.primal import (
    SummedRows,
    TrainingRows,
    learn_class_moments,
)
from kernelweave.protocols import Bank, Criterion


@dataclass(repr=False, eq=False)
class MultipleKernelFDA(KernelDiscriminant):
    """Fisher discriminant analysis that learns which kernels matter.

    Minimises, over weights w of centred kernels G_i of trace n::

        J(w) = tr( H' (alpha I + sum_i w_i G_i)^-1 H )   s.t.  w >= 0, norm_q(w) <= 1

    (Ye et al. 2007, Eqs. 16, 23, 34, 40, 41; Yan et al. 2009, Eqs. 14, 18), with a
    certificate of optimality, and then discriminates on the combined kernel as
    :class:`KernelFDA` does.

    Parameters
    ----------
    views : None, "precomputed" or list of (name, kernel, columns), default=None
        Column groups and their kernels. None means one view of all columns with the
        kernel "auto" (linear, and Gaussian at two widths around the median distance,
        each on raw and on standardised columns).
        With "precomputed", X is an (n, n) kernel, an (n, n, p) stack of kernels, or a
        dict of named (n, n) kernels; ("precomputed", names) names those of a stack.
    norm : float >= 1 or "loo", default="loo"
        1 gives sparse weights, larger norms more even ones, ``inf`` the uniform mean.
        "loo" tries 1, 4/3, 2 and inf and keeps the one with the smallest leave-one-out
        error; with 1,500 rows or more, a sample of them rules out norms first.
    alpha : float, "learn", "loo" or "cv", default="loo"
        Regularisation, relative to the mean eigenvalue of a kernel (n times the lambda
        of the papers). "learn" learns it as the weight of an identity kernel (Eqs. 40,
        41; with ``norm=inf`` all weights, including this one, are equal). "loo" learns
        the weights that way, then minimises the exact leave-one-out error of the
        combined kernel over alpha (with moments of features, the generalised
        cross-validation error; in it, n is the number of rows, whatever their weights).
        With 300 rows or more, it is the minimum downhill from the learned alpha.
        "cv" uses explicit features and the error of exact 5-fold cross-validation.
    interactions : bool, default=False
        Whether to add kernels between views: products of a kernel of one view and one
        of another, which make up one more view, named "between views". A sum of
        kernels on separate views adds up what each view says; it cannot represent
        one view changing what another means. See :doc:`/user_guide/views_and_kernels`.
    class_weight : dict or "balanced", default=None
        Weight of each class, by which the weights of its rows are multiplied; classes
        that a dict lacks have weight 1. "balanced" stands for N / (k N_c), where N_c is
        the sum of the sample weights of class c and N that of all. Rows in portions
        need a dict. The class proportions of predictions are those of the weighted
        rows, unless ``priors`` are given.
    priors : array-like of shape (k,), default=None
        Probabilities of the classes among new rows, in the order of ``classes_``. None
        takes the proportions of the (weighted) training rows.
    cv : int, splitter, iterable of splits or None, default=5
        Folds for ``cv_score_`` and the temperature of the probabilities: weights, norm
        and alpha are learned again without the rows of each fold, for about two to
        three times the cost of the fit alone. There are fewer if every class has fewer
        rows, or with ``scoring`` any class of two or more. The folds of an int depend
        on what the rows hold, not on their order. None skips them: the temperature then
        comes from rows left out one by one, at the weights and alpha that were learned
        with them.
    scoring : str or callable, default=None
        The measure of predictions for rows left out by which alpha and norm are chosen,
        in place of the squared error: the name of a scikit-learn scorer such as
        "balanced_accuracy", "neg_log_loss" or "average_precision", or a callable
        ``scorer(estimator, X, y)``, whose X holds predictions, not rows. Among settings
        with the same score, the one with the smallest squared error is taken.
        ``cv_score_`` is then the mean of this measure over the folds. See
        :doc:`/user_guide/honest_scores`.
    solver : {"auto", "newton", "closed_form", "cutting_plane", "working_set"}, \
default="auto"
        How the convex problem is solved; all reach the same certified optimum.
        "working_set" is meant for very many kernels. The programs of the papers are
        methods of :func:`kernelweave.solve`.
    tol : float, default=1e-6
        Relative gap to reach; 1e-4 for float32 input, if rounding allows no less.
    max_iter : int, default=None
        Maximum number of iterations; None leaves it to the solver.
    centre : bool, default=True
        Whether the trace that ``scale`` sets to n is that of the centred kernels.
        Fisher's criterion has a free intercept, so it is the same for a kernel and its
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
    classes_ : ndarray of shape (k,)
        Class labels.
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
    alpha_ : float
        The regularisation used.
    certificate_ : Certificate
        Value, lower bound, relative gap and status of the weights. The value is that of
        the papers: alpha J or, for "learn" and "loo", n J with weights and the learned
        alpha divided by their common norm.
    candidates_ : dict
        For each norm tried: alpha and leave-one-out error (None if not needed), and
        with ``scoring`` its score on the rows left out. With 300 rows or more, the
        search for the best alpha of a norm ends once the norm cannot win. With 1,500
        rows or more, norms are compared on a sample of the rows first: those that it
        rules out have an entry ``n_rows``, its size, and the error on these rows.
    features_ : FeatureReport
        How kernels were represented and why; for explicit features also the held-out
        error of each kernel.
    dual_coef_ : array of shape (n, k - 1)
        Coefficients of the training rows, columns in order of discrimination. Absent
        if only moments of the rows were kept.
    feature_coef_ : array of shape (D, k - 1)
        Coefficients of the explicit features of kernels with nonzero weight.
    cv_score_, cv_standard_error_ : float
        Accuracy on folds in which weights, norm and alpha were learned without the
        held-out rows, and its standard error: what to expect on new rows. Only the
        parameters of kernels, such as widths, were set on all rows, without their
        labels. Absent for ``cv=None``, if only moments of the rows were kept,
        and if a transformer in ``views`` needs the targets.
    loo_error_, loo_score_ : float
        Leave-one-out squared error on the class targets, and accuracy. Each row is left
        out of its projection, its class mean and the class proportions; weights and
        alpha stay fixed. A class's only row counts as an error. If there is no evidence
        for the classes, predictions rest on class proportions alone; with classes of
        equal size these are always wrong, as the class of the row left out is smaller.
        With only two groups the accuracy is NaN, and a remark says so.
        Weights, norm and alpha were chosen on all rows, so both are optimistic, the
        more so with many kernels and few rows. With moments: the cross-validation error
        by which alpha was chosen, and the accuracy on up to 4,096 rows.
    gaussians_ : ClassGaussians
        Class means, variance and prior in the projected space.
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
    KernelFDA : Given weights, such as those of other criteria; uniform by default.
    MultipleKernelRidge : The same problem for regression.

    References
    ----------
    Ye, Chen, Ji. Discriminant kernel and regularization parameter learning via
    semidefinite programming. ICML 2007.

    Yan, Kittler, Mikolajczyk, Tahir. Non-sparse multiple kernel learning for Fisher
    discriminant analysis. ICDM 2009.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from kernelweave import MultipleKernelFDA
    >>> X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    >>> views = [
    ...     ("mean", "auto", slice(0, 10)),
    ...     ("error", "auto", slice(10, 20)),
    ...     ("worst", "auto", slice(20, 30)),
    ... ]
    >>> model = MultipleKernelFDA(views).fit(X[::3], y[::3])
    >>> max(model.view_weights_, key=model.view_weights_.get)
    'worst'
    >>> model.certificate_.gap < 1e-6
    True
    """

    views: Any = None
    _: KW_ONLY
    norm: float | Literal["loo"] = "loo"
    alpha: float | Literal["learn", "loo", "cv"] = "loo"
    interactions: bool = False
    class_weight: Any = None
    priors: Any = None
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
        """Learn from rows and labels.

        Parameters
        ----------
        X : array-like, DataFrame or sparse array of shape (n, d), precomputed kernels \
of shape (n, n) or (n, n, p), Dask array or DataFrame, pyarrow data set, or iterator
            Training rows. An iterator yields pairs (X, y) of portions.
        y : array-like of shape (n,), or str
            Targets; the name of their column if X is a Dask DataFrame or a pyarrow
            data set; omitted if X is an iterator.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows: one of weight 2 counts like two equal rows, one of
            weight 0 not at all. A row is always left out with all of its weight.
            Not for rows in portions, see :meth:`partial_fit`.
        groups : array-like of shape (n,), default=None
            Rows with the same value are left out together by every leave-one-out error
            (``loo_error_``, ``loo_score_``, and those by which alpha and norm are
            chosen), since repeated measurements of one subject would give each other
            away. Refused where only moments are kept, from which no group can be left
            out.

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

        The first call fixes kernel parameters, landmarks and scalings from its rows,
        and ``views``, ``class_weight`` and how features are made for all calls; later
        calls add to the second moments. The result is the same however later rows are
        divided into portions. If a call is interrupted or refused, its rows do not
        count and all earlier ones are kept.

        Without rows, the model is solved with its current parameters: after
        ``set_params(norm=..., alpha=...)`` the rows are not needed again. The exception
        is cross-validation: ``alpha="cv"`` has to be set before the first call.

        Parameters
        ----------
        X : array-like, sparse array or DataFrame of shape (m, d), default=None
            Rows; None to solve only.
        y : array-like of shape (m,)
            Targets.
        classes : array-like of shape (k,), default=None
            All classes that may occur; any other is refused, in later calls too. If
            None, the classes are those seen so far.
        solve : bool, default=True
            Whether to learn the weights now. The pass over the rows is cheap, solving
            is not: with many portions, solve only at the last one.
        sample_weight : array-like of shape (m,), default=None
            Weights of these rows.

        Returns
        -------
        self : estimator
            Fitted once two classes have been seen.
        """
        check_learner_parameters(self)
        return self._fit_portions(X, y, classes, solve, sample_weight)

    def _learn(self, read: TrainingRows | SummedRows, progress: Progress) -> None:
        """Learn from kernels between rows, or from sums over them, and publish it."""
        if isinstance(read, SummedRows):
            options = self._options(read.classes, progress)
            learned, rows, report = learn_class_moments(read, options)
            self._publish_learned(rows, report, learned, read.classes)
        else:
            classes, codes = np.unique(read.sample.targets, return_inverse=True)
            sample = replace(read.sample, targets=codes)
            options, folds = self._options(classes, progress), None
            learned = learn_discriminant(sample, options)
            if not read.rows.see_targets:
                folds = cross_validate(learn_discriminant, sample, options, learned)
            learned = in_features(learned, sample, read.rows.like)
            self._publish_learned(read.rows, read.report, learned, classes, folds)
        self.candidates_ = _compared(learned.choice)

    def _options(self, classes: np.ndarray, progress: Progress | None) -> Options:
        """What is learned about these classes (k,)."""
        return Options(
            norm=self.norm,
            alpha=self.alpha,
            solver=self.solver,
            tol=self.tol,
            max_iter=self.max_iter,
            learnable=self.scale is not None,
            measure=None if self.scoring is None else Measure(self.scoring, classes),
            priors=check_priors(self.priors, classes),
            cv=self.cv,
            random_state=self.random_state,
            progress=progress,
        )

    def _weight_criterion(
        self, bank: Bank, targets: np.ndarray, design: RowDesign
    ) -> Criterion:
        """Fisher's problem of the classes."""
        options = Options(alpha=self.alpha)
        return unweighted_criterion(ClassTask.of, options, bank, targets, design)


def _compared(choice: Choice) -> dict[float, dict[str, Any]]:
    """``candidates_``: alpha and error of each norm that was compared."""
    return {
        norm: {"alpha": candidate.alpha, "loo_error": candidate.error}
        | ({} if candidate.score is None else {"score": candidate.score})
        | ({} if candidate.n_rows is None else {"n_rows": candidate.n_rows})
        for norm, candidate in choice.candidates.items()
    }
