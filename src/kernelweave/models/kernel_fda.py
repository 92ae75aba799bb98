"""Regularised kernel discriminant analysis on one kernel or a given sum of several."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np

from kernelweave.kernels.maps.kernel_map import NothingVariesError
from kernelweave.learn.discriminant import learn_with_weights
from kernelweave.learn.folds import cross_validate
from kernelweave.learn.measure import Measure
from kernelweave.learn.sample import Sample
from kernelweave.learn.search import Options
from kernelweave.models.shared.base import (
    KernelDiscriminant,
    Missing,
    Progress,
    Psd,
    announce_duration,
    fit_method,
)
from kernelweave.models.shared.inputs import (
    check_parameters,
    check_priors,
    positive,
    read_kernel_weights,
    read_weighted_rows,
)


@dataclass(repr=False, eq=False)
class KernelFDA(KernelDiscriminant):
    """Regularised kernel discriminant analysis (RKDA) with given kernel weights.

    Finds the directions W that maximise::

        trace( (W' (S_t + alpha I) W)^-1 W' S_b W )

    (Ye et al. 2007, Eqs. 13 and 24), via ``B = (G + alpha I)^-1 H``, where G is the
    mean of all kernels, each centred and scaled to trace n, or their sum with the
    weights that are given. New rows project to ``G(x) B`` and are classified by
    Gaussians in that space, fitted to leave-one-out projections.

    Parameters
    ----------
    views : None, "precomputed" or list of (name, kernel, columns), default=None
        Column groups and their kernels. None means one view of all columns with the
        kernel "auto" (linear, and Gaussian at two widths around the median distance,
        each on raw and on standardised columns).
        With "precomputed", X is an (n, n) kernel, an (n, n, p) stack of kernels, or a
        dict of named (n, n) kernels; ("precomputed", names) names those of a stack.
    alpha : float or "loo", default="loo"
        Regularisation, relative to the mean eigenvalue of the kernel; "loo" minimises
        the exact leave-one-out error, which has a closed form.
    kernel_weights : array-like of shape (p,) or dict, default=None
        Weights of the kernels, not negative and not all zero: one for each, in the
        order of ``kernel_names_``, or a dict by the name of a view, whose weight is
        divided equally among its kernels, or of a kernel; what a dict leaves out has
        the weight 0. None gives all kernels that vary the same weight, with sum 1.
        The weights of any problem that :func:`kernelweave.solve` solves can be used
        here. They are taken as they are, and alpha belongs to them: multiplying all of
        them and a number for alpha by the same factor changes no prediction. Only if
        they sum to one is alpha relative to the mean eigenvalue of the sum of kernels.
    interactions : bool, default=False
        Whether to add products of kernels of different views, as one more view named
        "between views"; see :class:`MultipleKernelFDA`.
    class_weight : dict or "balanced", default=None
        Weight of each class, by which the weights of its rows are multiplied; classes
        that a dict lacks have weight 1. "balanced" stands for N / (k N_c), where N_c is
        the sum of the sample weights of class c and N that of all. The class
        proportions of predictions are those of the weighted rows, unless ``priors`` are
        given.
    priors : array-like of shape (k,), default=None
        Probabilities of the classes among new rows, in the order of ``classes_``. None
        takes the proportions of the (weighted) training rows.
    cv : int, splitter, iterable of splits or None, default=5
        Folds for ``cv_score_`` and the temperature of the probabilities: alpha is
        chosen again without the rows of each fold, for about two to three times the
        cost of the fit alone. There are fewer if every class has fewer rows, or with
        ``scoring`` any class of two or more. The folds of an int depend on what the
        rows hold, not on their order. None skips them: the temperature then comes from
        rows left out one by one, at the alpha that was chosen with them.
    scoring : str or callable, default=None
        The measure of predictions for rows left out by which alpha is chosen, in place
        of the squared error: the name of a scikit-learn scorer such as
        "balanced_accuracy", "neg_log_loss" or "average_precision", or a callable
        ``scorer(estimator, X, y)``, whose X holds predictions, not rows. Among settings
        with the same score, the one with the smallest squared error is taken.
        ``cv_score_`` is then the mean of this measure over the folds. See
        :doc:`/user_guide/honest_scores`.
    centre : bool, default=True
        Whether the trace that ``scale`` sets to n is that of the centred kernels.
        Fisher's criterion has a free intercept, so it is the same for a kernel and its
        centred version: ``False`` takes the trace of the kernels as given, and changes
        nothing else. See :doc:`/user_guide/fisher`.
    scale : {"trace", None}, default="trace"
        "trace" multiplies every kernel by a number that makes its trace n. None takes
        kernels as they are: their sizes then matter, and alpha is in the same units.
    psd : {"error", "clip", "trust"}, default="error"
        What to do with a kernel that is not positive semidefinite: refuse it, set its
        negative eigenvalues to zero, or skip the check, which costs one factorisation
        per precomputed or callable kernel.
    missing : {"zero", "available", "error"}, default="zero"
        What to do with a row that lacks a view (its entries there are all NaN): fill
        its entries in that view's kernels with zeros, so that the view adds nothing,
        or with the mean over the available kernels, or refuse it. See
        :doc:`/user_guide/missing_views`.
    features : {"auto", "on_the_fly"}, default="auto"
        How kernels are held: "auto" keeps n x n matrices if they fit into memory;
        otherwise, and with "on_the_fly", kernels are recomputed on every pass, and the
        memory is that of one matrix. See :doc:`/user_guide/scale`.
    device : str, default=None
        Where kernels are computed if X is in host memory: "cuda" sends rows to a GPU
        through torch (CuPy if torch is not installed), "cupy" through CuPy. Results
        are returned to where X is.
    verbose : int, default=0
        Print progress.

    Attributes
    ----------
    classes_ : ndarray of shape (k,)
        Class labels.
    kernel_weights_ : array of shape (p,)
        Weight of each kernel, uniform or as given; 0 for constant kernels.
    kernel_names_ : list of str
        Name of each kernel.
    view_weights_ : dict
        Sum of the weights of each view's kernels.
    view_shares_ : dict
        ``view_weights_`` scaled to sum to one: each view's part of the trace of the
        combined kernel, whatever the norm.
    alpha_ : float
        The regularisation used.
    dual_coef_ : array of shape (n, k - 1)
        Coefficients of the training rows, columns in order of discrimination.
    cv_score_, cv_standard_error_ : float
        Accuracy on folds in which alpha was chosen without the held-out rows, and its
        standard error: what to expect on new rows. Only the parameters of kernels,
        such as widths, were set on all rows, without their labels. Absent for
        ``cv=None``, and if a transformer in ``views`` needs the targets.
    loo_error_, loo_score_ : float
        Leave-one-out squared error on the class targets, and accuracy. Each row is left
        out of its projection, its class mean and the class proportions; weights and
        alpha stay fixed. A class's only row counts as an error. If there is no evidence
        for the classes, predictions rest on class proportions alone; with classes of
        equal size these are always wrong, as the class of the row left out is smaller.
        With only two groups the accuracy is NaN, and a remark says so.
    gaussians_ : ClassGaussians
        Class means, variance and prior in the projected space.
    n_iter_ : int
        Number of factorisations.
    column_summary_ : list of dict
        What each view does with each of its columns; see :doc:`/user_guide/tables`.
    n_features_in_ : int
        Number of features (of training rows if precomputed).
    feature_names_in_ : ndarray of shape (d,)
        Names of the features, if X has string column names.

    See Also
    --------
    MultipleKernelFDA : Learns the weights of the kernels too.
    kernelweave.solve : Weights from any criterion and set of weights.

    References
    ----------
    Ye, Chen, Ji. Discriminant kernel and regularization parameter learning via
    semidefinite programming. ICML 2007.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from kernelweave import KernelFDA
    >>> X, y = load_wine(return_X_y=True)
    >>> model = KernelFDA().fit(X, y)
    >>> model.transform(X).shape
    (178, 2)
    >>> round(model.loo_score_, 2)
    0.99
    """

    views: Any = None
    _: KW_ONLY
    alpha: float | Literal["loo"] = "loo"
    kernel_weights: Any = None
    class_weight: Any = None
    priors: Any = None
    interactions: bool = False
    cv: Any = 5
    scoring: Any = None
    centre: bool = True
    scale: Literal["trace"] | None = "trace"
    psd: Psd = "error"
    missing: Missing = "zero"
    features: Literal["auto", "on_the_fly"] = "auto"
    device: str | None = None
    verbose: int = 0

    @fit_method
    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None
    ) -> Self:
        """Learn from rows and labels.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d), or precomputed kernels of shape \
(n, n) or (n, n, p)
            Training rows.
        y : array-like of shape (n,)
            Class labels: numbers, strings or booleans.
        sample_weight : array-like of shape (n,), default=None
            Weights of the rows: one of weight 2 counts like two equal rows, one of
            weight 0 not at all. A row is always left out with all of its weight.
        groups : array-like of shape (n,), default=None
            Rows with the same value are left out together by every leave-one-out error
            (``loo_error_``, ``loo_score_``, and that by which alpha is chosen), since
            repeated measurements of one subject would give each other away.

        Returns
        -------
        self : estimator
            Fitted estimator.
        """
        check_parameters(self, alpha=positive("loo"))
        rows, labels, design = read_weighted_rows(self, X, y, sample_weight, groups)
        kernel_map, weights = rows.kernel_map, None
        if self.kernel_weights is not None:
            weights = read_kernel_weights(
                self.kernel_weights, kernel_map.names, kernel_map.view_names
            )
        progress = Progress(self, X, y, sample_weight)
        announce_duration(self, rows, labels, progress, norm=np.inf)
        bank = rows.kernels(progress.kernel)
        if weights is not None:
            weights = weights[kernel_map.active]
            if not np.any(weights):
                raise NothingVariesError(
                    "every kernel with a weight in kernel_weights is constant on the "
                    "training rows; give others a weight, or check the features"
                )
        classes, codes = np.unique(labels, return_inverse=True)
        sample = Sample(bank, codes, rows.levelled(design), weights)
        options = Options(
            alpha=self.alpha,
            measure=None if self.scoring is None else Measure(self.scoring, classes),
            priors=check_priors(self.priors, classes),
            cv=self.cv,
            progress=progress,
        )
        learned = learn_with_weights(sample, options)
        folds = None
        if not rows.see_targets:
            folds = cross_validate(learn_with_weights, sample, options, learned)
        self._publish_learned(rows, None, learned, classes, folds)
        progress.end()
        return self
