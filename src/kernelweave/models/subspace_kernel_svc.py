"""A subspace kernel learned together with the support vector machines that use it."""

from __future__ import annotations

from typing import Any

from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin

from kernelweave._array import Array, from_numpy, to_numpy
from kernelweave.models.shared.base import Progress, all_or_nothing, fit_method
from kernelweave.models.shared.inputs import (
    boolean,
    check_parameters,
    number,
    one_of,
    positive,
    read_options,
    whole,
)
from kernelweave.models.shared.joint_subspace import JointOptions, fit_joint
from kernelweave.models.shared.margin import MarginClassifier

__all__ = ["SubspaceKernelSVC"]

#: Values that the parameters may take.
RULES = {
    "C": positive(),
    "alpha": positive("loo", "auto"),
    "norm": number("a number >= 1", lambda v: v >= 1),
    "solver": one_of("auto", "newton", "closed_form", "cutting_plane"),
    "tol": number("a number > 0", lambda v: v > 0),
    "max_iter": whole(1, optional=True),
    "n_components": whole(1, optional=True),
    "uncorrelated": boolean(),
}


class SubspaceKernelSVC(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, MarginClassifier
):
    """Support vector machines and the subspace kernel they share, learned jointly.

    With one machine per class, ``A = Y a`` their dual variables and K_S the kernel of a
    subspace S of the space of G (Chen et al. 2008, Eqs. 9, 20 and 39)::

        min_{w, S}  max_A  sum(a) - tr( A' K_S A ) / 2    s.t.  0 <= a <= C,  y'a = 0

    With as many dimensions as machines S has a closed form: the machines are those on
    the kernel ``G (G + alpha I)^-1 G``, or ``G (G + alpha I)^-1`` if uncorrelated, and
    the subspace follows from their dual variables. In the uncorrelated case the problem
    is convex in the kernel weights too, and comes with a certificate. Otherwise it is
    not: the weights are a local minimum, and the certificate takes its lower bound from
    a convex underestimator; the bound is attained if that selects a single kernel.

    Parameters
    ----------
    views : None, "precomputed" or list of (name, kernel, columns), default=None
        Column groups and their kernels; see :class:`MultipleKernelFDA`.
    n_components : int, default=None
        Largest dimension of the subspace; None takes as many as there are machines: k,
        or 1 for two classes. With fewer the problem is not convex: the truncated closed
        form is improved by local search, and the certificate holds the value reached
        and a lower bound over all subspaces, between which a gap may remain.
    uncorrelated : bool, default=True
        Whether the subspace kernel is that of Eq. 18 instead of Eq. 6.
    C : float, default=1.0
        Penalty on errors, for subspace kernels scaled such that the regularised mean
        kernel, ``G (G + alpha I)^-1 G`` or ``G (G + alpha I)^-1``, has trace n like all
        kernels here: the C of Eqs. 9 and 20 is this C times n over that trace.
    alpha : float, "loo" or "auto", default="auto"
        Regularisation of the subspace, relative to the mean eigenvalue of a kernel;
        "loo" minimises the leave-one-out error of kernel ridge regression on the
        classes with the mean of all kernels. "auto" is 10 if uncorrelated, else "loo":
        the best choice on a few data sets, see the user guide.
    norm : float >= 1, default=1
        1 gives sparse kernel weights, larger norms more even ones, ``inf`` the uniform
        mean.
    solver : {"auto", "newton", "closed_form", "cutting_plane"}, default="auto"
        How the weights are learned if ``uncorrelated``; otherwise only "auto" is
        allowed.
    tol : float, default=1e-6
        Relative gap to reach (1e-4 at best for float32 input).
    max_iter : int, default=None
        Maximum number of iterations; None leaves it to the solver.
    psd : {"error", "clip", "trust"}, default="error"
        What to do with a kernel that is not positive semidefinite: refuse it, set its
        negative eigenvalues to zero, or skip the check.
    missing : {"error", "available", "zero"}, default="error"
        What to do with a row that lacks a view, all of whose entries there are NaN:
        refuse it, or fill its entries in that view's kernels with the mean over the
        available kernels, or with zeros. See :doc:`/user_guide/missing_views`.
    verbose : int, default=0
        Print progress: 1 for iterations, 2 for kernels too.

    Attributes
    ----------
    classes_ : ndarray of shape (k,)
        Class labels.
    kernel_weights_ : ndarray of shape (p,)
        The learned weight of each kernel.
    kernel_names_ : list of str
        Name of each kernel.
    view_weights_ : dict
        Sum of the weights of each view's kernels.
    alpha_ : float
        The regularisation used.
    certificate_ : Certificate
        Value, lower bound, relative gap and status of the joint problem.
    n_components_ : int
        r, the dimension of the subspace.
    subspace_coef_ : array of shape (n, r)
        W or Q, scaled as described at C: features are ``G(x) subspace_coef_``.
    dual_coef_ : array of shape (n, m)
        ``G(x) dual_coef_ + intercept_`` is the decision function, with m = 1 machine
        for two classes and k otherwise.
    intercept_ : array of shape (m,)
        Intercepts.
    n_iter_ : int
        Factorisations for the weights, plus rounds for the subspace.
    n_features_in_ : int
        Number of features (of training rows if precomputed).
    feature_names_in_ : ndarray of shape (d,)
        Names of the features, if X has string column names.

    See Also
    --------
    SubspaceKernel : The subspace alone, from the labels.
    MultipleKernelSVC : Support vector machines on the sum of kernels itself.

    References
    ----------
    Chen, Ji, Ceran, Li, Wu, Ye. Learning subspace kernels for classification. KDD 2008.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from kernelweave import SubspaceKernelSVC
    >>> X, y = load_wine(return_X_y=True)
    >>> model = SubspaceKernelSVC().fit(X[::2], y[::2])
    >>> model.score(X[1::2], y[1::2]) > 0.95
    True
    >>> model.certificate_.converged
    True
    """

    def __init__(
        self,
        views: Any = None,
        *,
        n_components: int | None = None,
        uncorrelated: bool = True,
        C: float = 1.0,
        alpha: float | str = "auto",
        norm: float = 1,
        solver: str = "auto",
        tol: float = 1e-6,
        max_iter: int | None = None,
        psd: str = "error",
        missing: str = "error",
        verbose: int = 0,
    ) -> None:
        self.views = views
        self.n_components = n_components
        self.uncorrelated = uncorrelated
        self.C = C
        self.alpha = alpha
        self.norm = norm
        self.solver = solver
        self.tol = tol
        self.max_iter = max_iter
        self.psd = psd
        self.missing = missing
        self.verbose = verbose

    @fit_method
    def fit(self, X: Any, y: Any) -> SubspaceKernelSVC:
        """Learn from rows and labels.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d), or precomputed kernels of shape \
(n, n) or (n, n, p)
            Training rows.
        y : array-like of shape (n,)
            Class labels: numbers, strings or booleans.

        Returns
        -------
        self : estimator
            Fitted estimator.
        """
        self._check_parameters()
        source = self._open(X)
        codes = self._encode(X, y)
        progress = Progress(self, X, y)
        bank = self._fit_bank(source, progress)
        options = read_options(JointOptions, self)
        fit = fit_joint(bank, codes, len(self.classes_), options, progress.iteration)
        self._set_weights(fit.weights)
        self.alpha_, self.n_iter_ = fit.alpha, fit.n_iter
        self.subspace_coef_ = fit.subspace_coef
        self.n_components_ = int(fit.subspace_coef.shape[1])
        self.dual_coef_ = fit.coef
        self.intercept_ = from_numpy(fit.intercepts, fit.coef)
        if fit.searched:  # not convex: a remaining gap is not a failure
            self.certificate_ = fit.certificate.with_remarks(self.kernel_map_.remarks)
        else:
            self._set_certificate(fit.certificate)
        progress.end()
        return self

    fit_transform = all_or_nothing(TransformerMixin.fit_transform)

    def _check_parameters(self) -> None:
        check_parameters(self, RULES)
        if not self.uncorrelated and self.solver != "auto":
            raise ValueError(
                f"solver={self.solver!r} is for uncorrelated=True, where learning the "
                "weights is a convex problem; use 'auto'"
            )

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def transform(self, X: Any) -> Array:
        """Features of rows in the learned subspace, the largest weight first.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), or kernels of shape (m, n[, p])
            Rows.

        Returns
        -------
        Z : array of shape (m, r)
            Features.
        """
        rows = self._rows(X, "transform")
        weights = to_numpy(self.kernel_weights_)
        return self.kernel_map_.project(rows, weights, self.subspace_coef_)
