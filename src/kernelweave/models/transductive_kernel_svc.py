"""Transduction: a kernel and labels learned from labelled and unlabelled rows."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, Self

import numpy as np

from kernelweave._array import Array, at_home, from_numpy, namespace, to_numpy
from kernelweave.fits.targets import signs_of_codes
from kernelweave.learn.sample import RowMap
from kernelweave.models.shared.base import Missing, Progress, Psd, decode, fit_method
from kernelweave.models.shared.inputs import (
    map_rows,
    read_new_rows,
    read_some_labels,
    read_views,
)
from kernelweave.models.shared.margin import (
    MarginClassifier,
    MarginFit,
    MarginOptions,
    MarginSolver,
    check_margin_parameters,
    learn_margin,
    scores_of_classes,
)


@dataclass(repr=False, eq=False)
class TransductiveKernelSVC(MarginClassifier):
    """Support vector machine whose kernel is learned on unlabelled rows too.

    Minimises the squared inverse margin of the labelled rows over weights of kernels
    on *all* rows::

        min_w  J(w)   s.t.   trace( sum_i w_i K_i ) = n,   sum_i w_i K_i >= 0  (psd)

    where n counts all rows (Lanckriet et al. 2002, Eq. 12 and its soft forms). With
    ``signed=True``, as in the paper's experiments, weights may be negative, and the
    unlabelled rows limit how far: the sum must be a kernel on them as well.

    Parameters
    ----------
    views : None, "precomputed" or list of (name, kernel, columns), default=None
        Column groups and their kernels; see :class:`MultipleKernelFDA`.
    margin : {"l1", "l2", "hard"}, default="l1"
        The loss; see :class:`MultipleKernelSVC`.
    C : float or "learn", default=1.0
        The penalty on errors; see :class:`MultipleKernelSVC`.
    signed : bool, default=True
        Whether weights may be negative.
    norm : float >= 1, default=1
        The norm of the weights, if ``signed=False``.
    class_weight : None, "balanced" or dict of class to weight, default=None
        Multiplies C for the labelled rows of each class; "balanced" gives every class
        the same total weight. It multiplies ``sample_weight``.
    solver : {"auto", "spectral_cuts", "sdp"}, default="auto"
        How the convex problem is solved; with ``signed=False``, a solver of
        :class:`MultipleKernelSVC`.
    tol : float, default=1e-5
        Relative gap to reach.
    max_iter : int, default=None
        Maximum number of iterations; None leaves it to the solver.
    weight_bound : float, default=100
        The largest absolute weight if ``signed=True``, up to 1e10. Without a bound,
        kernels that are nearly combinations of others have no optimal weights; the
        certificate says when the bound is active.
    centre : bool, default=True
        Whether kernels are centred. Centring does not change the margin, but it does
        change the trace that ``scale`` sets to n and, with ``signed=True``, which sums
        are positive semidefinite. ``False`` is (12) as printed.
    scale : {"trace", None}, default="trace"
        "trace" multiplies every kernel by a number that makes its trace n. None takes
        kernels as they are, with C in the same units; the weights, not the trace, then
        sum to one.
    psd : {"error", "clip", "trust"}, default="error"
        What to do with a kernel that is not positive semidefinite.
    missing : {"zero", "available", "error"}, default="zero"
        What to do with a row that lacks a view (its entries there are all NaN): fill
        its entries in that view's kernels with zeros, so that the view adds nothing,
        or with the mean over the available kernels, or refuse it. See
        :doc:`/user_guide/missing_views`.
    device : str, default=None
        Where kernels are computed if X is in host memory: "cuda" sends rows to a GPU
        through torch (CuPy if torch is not installed), "cupy" through CuPy. Results
        are returned to where X is.
    verbose : int, default=0
        Print progress: 1 for iterations, 2 for kernels too.

    Attributes
    ----------
    transduction_ : array of shape (n,)
        The label of every row passed to ``fit``, predicted where none was given. In the
        namespace of X if labels are numbers, otherwise NumPy.
    kernel_ : array of shape (n, n)
        The learned kernel over all rows, centred unless ``centre=False``.
    classes_ : ndarray of shape (k,)
        Class labels, excluding -1 and "-1".
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
    margin_ : array of shape (1,) or (k,)
        ``1 / norm(w)`` for each two-class problem.
    certificate_ : Certificate
        Value, lower bound, relative gap and status of the weights.
    dual_coef_ : array of shape (n, 1) or (n, k)
        Signed coefficients; zero for unlabelled rows.
    intercept_ : array of shape (1,) or (k,)
        Intercepts.
    support_ : array of int
        Indices of the support vectors: rows on the margin, or on its wrong side, in at
        least one two-class problem.
    n_iter_ : int
        Factorisations.
    column_summary_ : list of dict
        What each view does with each of its columns; see :doc:`/user_guide/tables`.
    n_features_in_ : int
        Number of features (of training rows if precomputed).
    feature_names_in_ : ndarray of shape (d,)
        Names of the features, if X has string column names.

    See Also
    --------
    MultipleKernelSVC : Labelled rows only.

    References
    ----------
    Lanckriet, Cristianini, Bartlett, El Ghaoui, Jordan. Learning the kernel matrix with
    semi-definite programming. ICML 2002.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_breast_cancer
    >>> from kernelweave import TransductiveKernelSVC
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> X, y = X[::5], y[::5]
    >>> partly = np.where(np.arange(len(y)) % 2, y, -1)
    >>> views = [("mean", "rbf", slice(0, 10)), ("worst", "rbf", slice(20, 30))]
    >>> model = TransductiveKernelSVC(views, C=10).fit(X, partly)
    >>> bool(np.mean(model.transduction_ == y) > 0.9)
    True
    """

    _least_squares = False
    unlabelled = -1
    views: Any = None
    _: KW_ONLY
    margin: Literal["l1", "l2", "hard"] = "l1"
    C: float | Literal["learn"] = 1.0
    signed: bool = True
    norm: float = 1
    class_weight: Any = None
    solver: MarginSolver = "auto"
    tol: float = 1e-5
    max_iter: int | None = None
    weight_bound: float = 100.0
    centre: bool = True
    scale: Literal["trace"] | None = "trace"
    psd: Psd = "error"
    missing: Missing = "zero"
    device: str | None = None
    verbose: int = 0

    @fit_method
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from all rows and the labels of some.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d), or precomputed kernels of shape \
(n, n) or (n, n, p)
            All rows, labelled or not.
        y : array-like of shape (n,)
            Class labels, with -1 for unlabelled rows. Among strings "-1" does the same,
            since ``np.array(["a", "b", -1])`` holds only strings.
        sample_weight : array-like of shape (n,), default=None
            How often each row counts: C of a labelled row is multiplied by its weight,
            and the kernels are centred with the weights of all rows. Rows of weight 0
            are left out; only ``transduction_`` includes them, with the label given or
            predicted. Precomputed kernels must not contain any.

        Returns
        -------
        self : estimator
            Fitted estimator.
        """
        check_margin_parameters(self)
        read = read_views(self, X)
        classes, codes, known, keep, row_weights = read_some_labels(
            self, X, y, sample_weight
        )
        rows = map_rows(self, read.take(self, keep), known, row_weights)
        del read  # so that the input is released once the kernels are computed
        progress = Progress(self, X, y, sample_weight)
        bank = rows.kernels(progress.kernel)
        signs = signs_of_codes(codes[keep], len(classes))
        options = MarginOptions.of(self)
        fit = learn_margin(options, bank, signs, row_weights, progress.iteration)
        like, kernel = rows.like, at_home(bank.combine(fit.weights), rows.like)
        codes = self._completed(codes, keep, X, rows, kernel, fit)
        labels = decode(classes, from_numpy(codes, like, namespace(like).int64))
        self._publish(rows, classes, fit)
        self.kernel_, self.transduction_ = kernel, labels
        progress.end()
        return self

    def _completed(
        self,
        codes: np.ndarray,
        keep: np.ndarray,
        X: Any,
        rows: RowMap,
        kernel: Array,
        fit: MarginFit,
    ) -> np.ndarray:
        """Codes (n,) of all rows, predicted where negative.

        The rows ``keep`` (m,) have the learned ``kernel`` (m, m).
        """
        coef, intercept = (from_numpy(a, rows.like) for a in (fit.coef, fit.intercept))
        scores = to_numpy(kernel @ coef + intercept[None, :])
        if len(keep) < len(codes):  # rows left out are new rows
            known = rows.views, rows.positions, rows.like
            new = read_new_rows(self, X, *known, self.missing)
            if not np.all(new.observed):
                rows.kernel_map.check_gaps(new.observed, self.missing)
            weights, own = rows.kernel_map.spread(fit.weights), scores
            projected = rows.kernel_map.project(new, weights, coef)
            scores = to_numpy(projected + intercept[None, :])
            scores[keep] = own
        predicted = np.argmax(scores_of_classes(scores), axis=1)
        return np.where(codes < 0, predicted, codes)
