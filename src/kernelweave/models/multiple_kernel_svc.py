"""Support vector machines that learn which kernels matter."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np

from kernelweave._array import from_numpy
from kernelweave.criteria.margin import Margin
from kernelweave.fits.design import RowDesign
from kernelweave.fits.targets import signs_of_codes
from kernelweave.models.shared.base import Missing, Progress, Psd, fit_method
from kernelweave.models.shared.inputs import (
    number,
    positive,
    read_labelled_rows,
)
from kernelweave.models.shared.margin import (
    MarginClassifier,
    MarginOptions,
    MarginSolver,
    check_margin_parameters,
    learn_margin,
    settled_by_folds,
)
from kernelweave.protocols import Bank, Criterion


@dataclass(repr=False, eq=False)
class MultipleKernelSVC(MarginClassifier):
    """Support vector machine on the weighted sum of kernels with the largest margin.

    Minimises the squared inverse margin over weights w of centred kernels of trace n::

        J(w) = sum_c min_f  norm(f)^2 + loss(f),   f in the space of sum_i w_i K_i
        "l1":  2 C sum xi      "l2":  C sum xi^2      "hard":  no errors, y f >= 1

    subject to ``w >= 0`` and ``norm_q(w) <= 1`` (Lanckriet et al. 2002, Eq. 12, and its
    soft forms), with a certificate of optimality. The sum is over the two-class
    problems: one for two classes, else each class against the rest. Weights of rows
    multiply ``xi`` and ``xi^2``; they do not affect a hard margin other than through
    the means and traces of the kernels.

    Parameters
    ----------
    views : None, "precomputed" or list of (name, kernel, columns), default=None
        Column groups and their kernels; see :class:`MultipleKernelFDA`.
    margin : {"l1", "l2", "hard"}, default="l1"
        The loss. "l1" with ``norm=1`` is the problem of SimpleMKL, with ``norm > 1``
        that of lp-norm MKL. "hard" ignores C and raises an error if no weights separate
        the classes.
    C : float, "auto", "learn" or "cv", default="auto"
        The penalty on errors, as in :class:`sklearn.svm.SVC` on a kernel whose diagonal
        has mean one (J is twice the usual objective, with the same solution).
        "learn", with ``margin="l2"``, learns 1/C as the weight of an identity kernel.
        "cv" takes the one among 9 values between 0.01 and 100 with the best accuracy
        on five folds, with the mean of all kernels; rows, and so classes, count by
        their weights. With few rows of a class, 1.0 is often far too large: "auto" is
        1.0, but "cv" if ``class_weight`` is given (with weights that are not signed,
        and a soft margin).
    norm : float >= 1, "auto" or "cv", default="auto"
        1 gives sparse weights, larger norms more even ones, ``inf`` the uniform mean.
        "cv" chooses among 1, 2 and ``inf``, with weights learned again in each of five
        folds; the more even are preferred unless a difference exceeds its standard
        error.
        "auto" is 1, or "cv" where ``C="auto"`` means "cv".
    signed : bool, default=False
        Whether weights may be negative as long as the sum of kernels is positive
        semidefinite on the training rows. It need not be on new rows;
        :class:`TransductiveKernelSVC` includes those in the constraint.
    class_weight : None, "balanced" or dict of class to weight, default=None
        Multiplies C for the rows of each class; "balanced" gives every class the same
        total weight. It multiplies ``sample_weight``.
    solver : {"auto", "interior_point", "newton", "cutting_plane", "closed_form", \
"qcqp", "sdp", "spectral_cuts"}, default="auto"
        How the convex problem is solved; all reach the same certified optimum.
        ``signed=True`` allows "auto", "sdp" and "spectral_cuts", which is for it alone.
    tol : float, default=1e-5
        Relative gap to reach; 1e-4 for float32 input, if rounding allows no less.
    max_iter : int, default=None
        Maximum number of iterations; None leaves it to the solver.
    weight_bound : float, default=100
        With ``signed=True``: the largest absolute weight, up to 1e10. Without a bound,
        kernels that are nearly combinations of others have no optimal weights; the
        certificate says when the bound is active.
    interactions : bool, default=False
        Whether to add products of kernels of different views, as one more view named
        "between views"; see :class:`MultipleKernelFDA`.
    centre : bool, default=True
        Whether kernels are centred. Centring does not change the margin, but it does
        change the trace that ``scale`` sets to n and, with ``signed=True``, which sums
        are positive semidefinite. ``False`` is (12) as printed.
    scale : {"trace", None}, default="trace"
        "trace" multiplies every kernel by a number that makes its trace n. None takes
        kernels as they are, with C in the same units; the weights, not the trace, then
        sum to one.
    psd : {"error", "clip", "trust"}, default="error"
        What to do with a kernel that is not positive semidefinite: refuse it, set its
        negative eigenvalues to zero, or skip the check.
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
        combined kernel, whatever the norm; of the absolute weights, if signed.
    C_ : float
        The penalty on errors, learned or given.
    norm_ : float
        The norm used.
    margin_ : array of shape (1,) or (k,)
        ``1 / norm(w)`` for each two-class problem: half the gap between the classes if
        they are separable.
    certificate_ : Certificate
        Value, lower bound, relative gap and status of the weights.
    dual_coef_ : array of shape (n, 1) or (n, k)
        Signed coefficients of the training rows.
    intercept_ : array of shape (1,) or (k,)
        Intercepts.
    support_ : array of int
        Indices of the support vectors: rows on the margin, or on its wrong side, in at
        least one two-class problem.
    n_iter_ : int
        Factorisations, or support vector machines trained, depending on the solver.
    column_summary_ : list of dict
        What each view does with each of its columns; see :doc:`/user_guide/tables`.
    n_features_in_ : int
        Number of features (of training rows if precomputed).
    feature_names_in_ : ndarray of shape (d,)
        Names of the features, if X has string column names.

    See Also
    --------
    MultipleKernelFDA : Chooses its own regularisation and predicts probabilities.
    TransductiveKernelSVC : Learns from unlabelled rows too.
    KernelAlignment : Weights in closed form, for any kernel method.

    References
    ----------
    Lanckriet, Cristianini, Bartlett, El Ghaoui, Jordan. Learning the kernel matrix with
    semi-definite programming. ICML 2002.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from kernelweave import MultipleKernelSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> views = [("mean", "auto", slice(0, 10)), ("worst", "auto", slice(20, 30))]
    >>> model = MultipleKernelSVC(views, C=10).fit(X[::3], y[::3])
    >>> model.certificate_.converged
    True
    >>> model.score(X[1::3], y[1::3]) > 0.94
    True
    """

    _least_squares = False
    views: Any = None
    _: KW_ONLY
    margin: Literal["l1", "l2", "hard"] = "l1"
    C: float | Literal["auto", "learn", "cv"] = "auto"
    norm: float | Literal["auto", "cv"] = "auto"
    signed: bool = False
    class_weight: Any = None
    solver: MarginSolver = "auto"
    tol: float = 1e-5
    max_iter: int | None = None
    weight_bound: float = 100.0
    interactions: bool = False
    centre: bool = True
    scale: Literal["trace"] | None = "trace"
    psd: Psd = "error"
    missing: Missing = "zero"
    features: Literal["auto", "on_the_fly"] = "auto"
    device: str | None = None
    verbose: int = 0

    @fit_method
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from rows and labels.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d), or precomputed kernels of shape \
(n, n) or (n, n, p)
            Training rows.
        y : array-like of shape (n,)
            Class labels: numbers, strings or booleans.
        sample_weight : array-like of shape (n,), default=None
            How often each row counts: its C is multiplied by this weight. Rows of
            weight 0 are left out, and attributes have no entries for them. Precomputed
            kernels must not contain any.

        Returns
        -------
        self : estimator
            Fitted estimator.
        """
        check_margin_parameters(
            self,
            C=positive("auto", "learn", "cv"),
            norm=number("a number >= 1", lambda v: v >= 1, "auto", "cv"),
        )
        rows, classes, codes, design = read_labelled_rows(self, X, y, sample_weight)
        progress = Progress(self, X, y, sample_weight)
        bank = rows.kernels(progress.kernel)
        signs = signs_of_codes(codes, len(classes))
        options = settled_by_folds(MarginOptions.of(self), bank, codes, signs, design)
        fit = learn_margin(options, bank, signs, design.weights, progress.iteration)
        self._publish(rows, classes, fit)
        self.norm_ = float(options.norm)
        progress.end()
        return self

    def _weight_criterion(
        self, bank: Bank, targets: np.ndarray, design: RowDesign
    ) -> Criterion:
        """The problem of all classes."""
        classes, codes = np.unique(targets, return_inverse=True)
        price: Any = self.C
        if price in ("auto", "cv"):
            price = self.C_
        signs = from_numpy(signs_of_codes(codes, len(classes)), bank.like)
        return Margin(bank, signs, self.margin, price, design.weights)
