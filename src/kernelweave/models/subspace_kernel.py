"""Subspace kernels that depend as strongly as possible on the labels."""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from kernelweave._array import DOUBLE_EPS, Array, eps, from_numpy
from kernelweave.criteria.fisher import Fisher
from kernelweave.exceptions import KernelWarning
from kernelweave.fits.design import RowDesign
from kernelweave.fits.subspace import RegularizedKernel, Subspace, decorrelated
from kernelweave.learn.sample import RowMap
from kernelweave.learn.search import STOPPED, Choice, Options, Task, choose_weights
from kernelweave.models.shared.base import (
    FisherSolver,
    KernelModel,
    KernelTransformer,
    Missing,
    Progress,
    Psd,
    fit_method,
    of_rows,
)
from kernelweave.models.shared.inputs import (
    IDENTITY,
    Rule,
    check_parameters,
    map_rows,
    number,
    one_of,
    positive,
    read_label_factor,
    read_numbers_or_labels,
    read_views,
    refuse_unscaled,
)
from kernelweave.protocols import Bank
from kernelweave.solvers.local.subspace import (
    AlignmentResult,
    align_subspace,
    best_plain_kernel,
)
from kernelweave.solvers.solve import fitting_methods
from kernelweave.weights import Simplex

#: Default iteration limit of the alignment, and the stationarity it should reach.
ALIGNMENT_ITER = 2000
STATIONARY = 1e-2
#: Values that the parameters may take.
SUBSPACE_RULES = {
    "norm": number("a number >= 1", lambda v: v >= 1, "loo"),
    "alpha": positive("learn", "loo"),
    "solver": one_of("auto", *fitting_methods(Fisher, Simplex)),
    "method": one_of("hsic", "alignment"),
    "weights": one_of("uncorrelated", "plain"),
}
#: Values of ``label_kernel``, if it is a string and otherwise.
NAMED = one_of("normalized", "indicator", "linear")
GIVEN = Rule(
    "a name, a matrix over the classes or a callable",
    lambda v: not (v is None or np.isscalar(v)),
)


@dataclass(repr=False, eq=False)
class SubspaceKernel(KernelTransformer, KernelModel):
    """The few features of many kernels that depend most on the labels.

    With a centred kernel G of trace n, or a learned sum of several, and a label kernel
    ``H = L L'``, finds (Chen et al. 2008, Theorems 3.1 and 4.1)::

        max_W  tr( (W' (G + alpha I) W)^-1 W' G H G W )
        max_Q  tr( Q' G H G Q )   s.t.  Q' (G G + alpha G) Q = I    (uncorrelated=True)

    by one Cholesky factorisation and an eigenproblem as large as the number of
    classes. New rows have the features ``G(x) W``, and the subspace kernel is their
    inner product. With several kernels the weights minimise
    ``tr( H (I + sum_i w_i G_i / alpha)^-1 )`` (Eqs. 23 to 38), with a certificate, for
    both: the first maximum is convex in the weights, so over weights that sum to
    one it is attained at a single kernel, which ``weights="plain"`` finds.

    Parameters
    ----------
    views : None, "precomputed" or list of (name, kernel, columns), default=None
        Column groups and their kernels; see :class:`MultipleKernelFDA`.
    n_components : int, default=None
        Maximum number of features; None keeps all ``rank(G L)`` of them, at most k - 1
        for k classes.
    method : {"hsic", "alignment"}, default="hsic"
        "alignment" maximises the alignment of the subspace kernel with H instead, by
        local search from the "hsic" solution (Wu and Farquhar 2007): the paper's
        baseline, which is not convex and has no certificate.
    uncorrelated : bool, default=False
        Whether features are uncorrelated with each other. Their variances are then at
        most one: the kernel is n times that of Eq. 18, so that the usual values of C
        suit an SVM on it.
    weights : {"uncorrelated", "plain"}, default="uncorrelated"
        Which problem chooses the weights. "uncorrelated": that of the uncorrelated
        features (Eq. 27), whatever the features. "plain": the first maximum above, over
        weights that sum to one; it needs ``norm=1`` and ``uncorrelated=False``, and
        always selects a single kernel.
    label_kernel : {"normalized", "indicator", "linear"}, array of shape (k, k) or \
callable, default="normalized"
        H: "indicator" is ``Y Y'`` with the class indicators Y, "normalized" is
        ``Y (Y'Y)^-1 Y'``, which gives all classes equal weight, and a matrix holds the
        similarities of the classes, in sorted order. "linear" treats y as one or
        several numeric columns, each centred and scaled: H = y y'. The default does the
        same if y has fractional parts or several columns. A callable, such as a kernel
        of :mod:`kernelweave.kernels`, is called with the distinct labels (u, 1), or
        distinct rows of outputs, as both arguments and returns a matrix (u, u).
    norm : float >= 1 or "loo", default="loo"
        1 gives sparse kernel weights, larger norms more even ones, ``inf`` the uniform
        mean. "loo" tries 1, 4/3, 2 and inf and keeps the one with the smallest
        leave-one-out error of kernel ridge regression on L.
    alpha : float, "learn" or "loo", default="loo"
        Regularisation, relative to the mean eigenvalue of a kernel. "learn" learns it
        as the weight of an identity kernel, "loo" then minimises the leave-one-out
        error of kernel ridge regression on L over it.
    solver : {"auto", "newton", "closed_form", "cutting_plane", "working_set", \
"qcqp", "sdp"}, default="auto"
        How the weights are found; "cutting_plane" is the SILP (35) of the paper, "sdp"
        its semidefinite program (30), and "qcqp" the dual of that.
    tol : float, default=1e-6
        Relative gap to reach; 1e-4 for float32 input, if rounding allows no less.
    max_iter : int, default=None
        Maximum number of iterations; None leaves it to the solver.
    centre : bool, default=True
        Whether the trace that ``scale`` sets to n is that of the centred kernels.
        The dependence on the labels is that of centred kernels in
        either case: ``False`` takes the trace of the kernels as given, and changes
        nothing else. See :doc:`/user_guide/fisher`.
    scale : {"trace", None}, default="trace"
        "trace" multiplies every kernel by a number that makes its trace n. None takes
        kernels as they are: their sizes then matter, and a number for alpha, or "loo",
        is in the same units.
    psd : {"error", "clip", "trust"}, default="error"
        What to do with a kernel that is not positive semidefinite: refuse it, set its
        negative eigenvalues to zero, or skip the check.
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
    classes_ : ndarray of shape (k,)
        Class labels, if y holds classes.
    n_components_ : int
        r, the number of features.
    dual_coef_ : array of shape (n, r)
        W or Q. Features are ordered by their dependence on the labels, strongest
        first; signs are such that the largest overlap with any column of L is positive.
    embedding_ : array of shape (n, r)
        Features of the training rows.
    kernel_ : array of shape (n, n)
        The subspace kernel between the training rows.
    dependence_ : array of shape (r,)
        Contribution of each feature to the maximised trace.
    kernel_weights_ : array of shape (p,)
        The learned weight of each kernel.
    kernel_names_ : list of str
        Name of each kernel.
    view_weights_ : dict
        Sum of the weights of each view's kernels.
    view_shares_ : dict
        ``view_weights_`` scaled to sum to one: each view's part of the trace of the
        combined kernel, whatever the norm.
    alpha_ : float
        The regularisation used.
    norm_ : float
        The norm used.
    certificate_ : Certificate
        Value, lower bound, relative gap and status of the weights.
    alignment_ : float
        Alignment of the subspace kernel with H, for ``method="alignment"``.
    n_iter_ : int
        Factorisations for the weights, and iterations of the alignment.
    column_summary_ : list of dict
        What each view does with each of its columns; see :doc:`/user_guide/tables`.
    n_features_in_ : int
        Number of features (of training rows if precomputed).
    feature_names_in_ : ndarray of shape (d,)
        Names of the features, if X has string column names.

    See Also
    --------
    SubspaceKernelSVC : Learns the subspace together with a classifier.
    KernelFDA : The same subspace as ``uncorrelated=True``, on other axes, with a
        classifier.

    References
    ----------
    Chen, Ji, Ceran, Li, Wu, Ye. Learning subspace kernels for classification. KDD 2008.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from sklearn.pipeline import make_pipeline
    >>> from kernelweave import SubspaceKernel
    >>> X, y = load_wine(return_X_y=True)
    >>> model = make_pipeline(SubspaceKernel(uncorrelated=True), KNeighborsClassifier())
    >>> model.fit(X[::2], y[::2]).score(X[1::2], y[1::2]) > 0.95
    True
    >>> model[0].n_components_
    2
    """

    _multi_output = True

    views: Any = None
    _: KW_ONLY
    n_components: int | None = None
    method: Literal["hsic", "alignment"] = "hsic"
    uncorrelated: bool = False
    weights: Literal["uncorrelated", "plain"] = "uncorrelated"
    label_kernel: Any = "normalized"
    norm: float | Literal["loo"] = "loo"
    alpha: float | Literal["learn", "loo"] = "loo"
    solver: FisherSolver | Literal["qcqp", "sdp"] = "auto"
    tol: float = 1e-6
    max_iter: int | None = None
    centre: bool = True
    scale: Literal["trace"] | None = "trace"
    psd: Psd = "error"
    missing: Missing = "zero"
    device: str | None = None
    verbose: int = 0

    @fit_method
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the subspace, and the weights of the kernels.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d), or precomputed kernels of shape \
(n, n) or (n, n, p)
            Training rows.
        y : array-like of shape (n,) or (n, n_outputs)
            Class labels, or numbers.
        sample_weight : array-like of shape (n,), default=None
            How often each row counts. Rows of weight 0 are left out, and precomputed
            kernels must not contain any. For ``"loo"`` a row is always left out with
            all of its weight.

        Returns
        -------
        self : estimator
            Fitted estimator.
        """
        self._check_parameters()
        owner, read = type(self).__name__, read_views(self, X)
        given = read_numbers_or_labels(X, y, sample_weight, owner)
        targets, kind, keep, weights = given
        factor, classes = read_label_factor(
            targets, kind, self.label_kernel, owner, weights
        )
        rows = map_rows(self, read.take(self, keep), targets, weights)
        del read  # so that the input is released once the kernels are computed
        progress = Progress(self, X, y, sample_weight)
        bank = rows.kernels(progress.kernel)
        design = rows.levelled(RowDesign(len(targets), weights))
        target = from_numpy(factor, bank.like)
        choice, alpha = self._choose(bank, target, design, progress)
        if self.weights == "plain":
            few, search = self.n_components, choice.certificate
            best, proof = best_plain_kernel(
                bank, target, alpha, few, design, float(self.tol)
            )
            count = choice.n_iter + bank.n_kernels
            choice = replace(choice, weights=best, certificate=proof, n_iter=count)
            if isinstance(self.alpha, str) and search and search.caution is not None:
                reason, category = search.caution
                warnings.warn(
                    f"{type(self).__name__}: alpha={alpha:.3g} comes from a search "
                    f"whose outcome is {reason}",
                    category,
                    stacklevel=4,
                )
        kernel = RegularizedKernel(bank.combine(choice.weights), alpha, design)
        subspace, aligned = self._find(kernel, target, design, progress)
        self._publish(rows, classes, choice, subspace, aligned, progress.stopped)
        progress.end()
        return self

    def _check_parameters(self) -> None:
        named = isinstance(self.label_kernel, str)
        check_parameters(self, **SUBSPACE_RULES, label_kernel=NAMED if named else GIVEN)
        refuse_unscaled(self, "alpha", "learn", IDENTITY)
        if self.method == "alignment" and self.uncorrelated:
            raise ValueError(
                "method='alignment' has no uncorrelated form; use method='hsic'"
            )
        if self.weights == "uncorrelated":
            return
        for name, needed in (("uncorrelated", False), ("method", "hsic"), ("norm", 1)):
            if getattr(self, name) != needed:
                raise ValueError(
                    f"weights='plain' solves the problem of plain subspaces over "
                    f"weights that sum to one; it needs {name}={needed!r}, got "
                    f"{getattr(self, name)!r}. Set that, or weights='uncorrelated'"
                )

    def _choose(
        self, bank: Bank, target: Array, design: RowDesign, progress: Progress
    ) -> tuple[Choice, float]:
        """Weights and alpha by Eq. 27: the Fisher criterion with L (n, r) as target."""
        options = Options(
            # one kernel has the same weight under every norm
            norm=1.0 if bank.n_kernels == 1 else self.norm,
            alpha=self.alpha,
            solver=self.solver,
            tol=self.tol,
            max_iter=self.max_iter,
            learnable=self.scale is not None,
            progress=progress,
        )
        choice = choose_weights(Task(bank, target, design), options)
        # A learned alpha may be zero: use the smallest that can be factored.
        smallest = target.shape[0] * eps(target)
        given, single = not isinstance(self.alpha, str), eps(target) > DOUBLE_EPS
        if given and single and choice.alpha < smallest:
            warnings.warn(
                f"{type(self).__name__}: alpha={choice.alpha:.3g} is below the "
                "rounding of kernels in float32, so features are those of alpha="
                f"{smallest:.3g}: pass the rows in float64, or use a larger alpha",
                KernelWarning,
                stacklevel=5,
            )
        alpha = max(float(choice.alpha), smallest)
        return replace(choice, alpha=alpha), alpha

    def _find(
        self,
        kernel: RegularizedKernel,
        target: Array,
        design: RowDesign,
        progress: Progress,
    ) -> tuple[Subspace, AlignmentResult | None]:
        """The subspace, scaled like its features, and the alignment if requested."""
        target, aligned = design.scale(target), None
        if self.method == "alignment":
            if eps(target) > DOUBLE_EPS:
                warnings.warn(
                    "method='alignment' climbs a function with many maxima, and "
                    "rounding in float32 decides where it ends: pass the rows in "
                    "float64 for features that do not depend on it",
                    KernelWarning,
                    stacklevel=2,
                )
            aligned = align_subspace(
                kernel,
                target,
                self.n_components,
                self.max_iter or ALIGNMENT_ITER,
                STATIONARY,
                progress.iteration,
            )
            subspace = aligned.subspace
        else:
            uncorrelated = bool(self.uncorrelated)
            subspace = kernel.subspace(target, self.n_components, uncorrelated)
        scale = 1.0
        if self.uncorrelated:
            # Eq. 19 gives features of unit norm, not of unit variance.
            subspace = decorrelated(subspace, target, kernel.alpha)
            scale = design.total**0.5
        coef = design.scale(scale * subspace.coef)
        features = design.unscale(scale * subspace.features)
        return replace(subspace, coef=coef, features=features), aligned

    def _publish(
        self,
        rows: RowMap,
        classes: np.ndarray | None,
        choice: Choice,
        subspace: Subspace,
        aligned: AlignmentResult | None,
        stopped: bool,
    ) -> None:
        """Set the fitted attributes; a callback may have ``stopped`` the fit."""
        steepness = subspace.steepness
        self._set_weights(rows, choice.weights, classes)
        self.norm_, self.alpha_ = choice.norm, choice.alpha
        self.n_iter_ = int(choice.n_iter)
        self.dual_coef_, self.embedding_ = subspace.coef, subspace.features
        self.dependence_ = from_numpy(subspace.dependence, subspace.coef)
        self.n_components_ = int(subspace.coef.shape[1])
        if aligned is not None:
            self.alignment_ = aligned.value
            self.n_iter_ += aligned.n_iter
        self._note_rounding(steepness, choice.missed, subspace)
        self._set_certificate(choice.certificate)
        if aligned is not None and not aligned.converged:
            advice = (
                "raise max_iter or lower n_components, or use method='hsic', which "
            )
            advice = STOPPED if stopped else f"{advice}has a closed form"
            warnings.warn(
                f"{type(self).__name__}: the alignment {aligned.value:.6g} is "
                f"stationary to {aligned.stationarity:.1e} only, not {STATIONARY:.0e}, "
                f"after {aligned.n_iter} iterations; {advice}",
                ConvergenceWarning,
                stacklevel=5,
            )

    @property
    def kernel_(self) -> Array:
        """The subspace kernel between the training rows, (n, n)."""
        return self.embedding_ @ self.embedding_.T

    @of_rows
    def transform(self, X: Any) -> np.ndarray:
        """Features of rows, the most dependent on the labels first.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.

        Returns
        -------
        Z : array of shape (m, r)
            Features; their inner products are the subspace kernel.
        """
        return self._predict_target(X, "transform")

    @of_rows
    def kernel(self, X: Any, Z: Any = None) -> Array:
        """The subspace kernel between rows.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.
        Z : like X, with r rows, default=None
            Reference rows; X itself if None.

        Returns
        -------
        K : array of shape (m, r)
            Inner products of the features.
        """
        return self._inner_products(X, Z)
