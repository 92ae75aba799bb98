"""A subspace kernel learned together with the support vector machines that use it."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from kernelweave._array import dot, eps, from_numpy, namespace
from kernelweave._sklearn import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from kernelweave._text import counted
from kernelweave.criteria.margin import SubspaceMargin
from kernelweave.fits.alpha import LooPath
from kernelweave.fits.design import RowDesign
from kernelweave.fits.subspace import (
    ALWAYS_KEPT,
    RegularizedKernel,
    Subspace,
    label_factor,
    turn_of_axes,
)
from kernelweave.fits.targets import signs_of_codes
from kernelweave.learn.search import weight_set_of_norm
from kernelweave.models.shared.base import (
    Missing,
    Progress,
    Psd,
    all_or_nothing,
    fit_method,
    of_rows,
)
from kernelweave.models.shared.inputs import (
    check_parameters,
    one_of,
    positive,
    read_labelled_rows,
)
from kernelweave.models.shared.margin import MarginClassifier
from kernelweave.protocols import Bank, relative_gap
from kernelweave.solvers.local.subspace import (
    JointSolution,
    PlainSubspaceMargin,
    solve_joint,
    solve_plain,
)
from kernelweave.solvers.loop import Callback
from kernelweave.solvers.solve import (
    Certificate,
    error_of_value,
    reachable,
    solve,
)

#: ``alpha="auto"`` for uncorrelated subspaces.
AUTO_ALPHA = 10.0
#: Machines are trained to this share of the gap to reach.
MACHINE_SHARE = 1e-2
#: Singular values above this share of the largest are more than rounding in float64.
LEAST_SINGULAR = 1e-7
#: Values that the parameters may take.
JOINT_RULES = {
    "C": positive(),
    "alpha": positive("loo", "auto"),
    "solver": one_of("auto", "newton", "closed_form", "cutting_plane"),
}


@dataclass(frozen=True, kw_only=True)
class LearnedWeights:
    """Kernel weights for subspaces of any dimension, and what is known about them.

    Attributes
    ----------
    weights : ndarray of shape (p,)
        The weights.
    duals : ndarray of shape (n, m) or None
        The dual variables of the closed form, if they are known.
    are_only : bool
        Whether no other weights are allowed.
    lower_bound : float
        No subspace has a smaller value at any allowed weights.
    converged : bool
        Whether the search for them is complete.
    status : str
        How it ended.
    remarks : tuple of str
        Notes for anyone who interprets the weights.
    n_factorizations : int
        What it took.
    certificate : Certificate or None
        The proof, if the problem is convex.
    is_local : bool
        Whether other weights, beyond the local minimum, may be better.
    """

    weights: np.ndarray
    duals: np.ndarray | None = None
    are_only: bool = False
    lower_bound: float = -np.inf
    converged: bool = True
    status: str = ""
    remarks: tuple[str, ...] = ()
    n_factorizations: int = 0
    certificate: Certificate | None = None
    is_local: bool = False


@dataclass(repr=False, eq=False)
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

    On noise, a kernel of low rank may help no machine: all of them are constant, and
    predict the larger class. Every subspace is then optimal, and the one that depends
    most on the classes is taken.

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
    class_weight : None, "balanced" or dict, default=None
        Factor for the weights of each class's rows: "balanced" gives every class the
        same total weight; classes not in the dict have factor 1.
    solver : {"auto", "newton", "closed_form", "cutting_plane"}, default="auto"
        How the weights are learned if ``uncorrelated``; otherwise only "auto" is
        allowed.
    tol : float, default=1e-6
        Relative gap to reach; 1e-4 for float32 input, if rounding allows no less.
    max_iter : int, default=None
        Maximum number of iterations; None leaves it to the solver.
    centre : bool, default=True
        Whether the trace that ``scale`` sets to n is that of the centred kernels.
        The subspace is one of centred kernels in either case: ``False`` takes the trace
        of the kernels as given, and changes nothing else.
    scale : {"trace", None}, default="trace"
        "trace" multiplies every kernel by a number that makes its trace n. None takes
        kernels as they are: their sizes then matter, alpha is in the same units, and C
        is that of Eqs. 9 and 20.
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
    column_summary_ : list of dict
        What each view does with each of its columns; see :doc:`/user_guide/tables`.
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

    views: Any = None
    _: KW_ONLY
    n_components: int | None = None
    uncorrelated: bool = True
    C: float = 1.0
    alpha: float | Literal["loo", "auto"] = "auto"
    norm: float = 1
    class_weight: Any = None
    solver: Literal["auto", "newton", "closed_form", "cutting_plane"] = "auto"
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
        """Learn from rows and labels.

        Parameters
        ----------
        X : array-like or DataFrame of shape (n, d), or precomputed kernels of shape \
(n, n) or (n, n, p)
            Training rows.
        y : array-like of shape (n,)
            Class labels: numbers, strings or booleans.
        sample_weight : array-like of shape (n,), default=None
            How often each row counts, in the subspace and in the slacks of the
            machines, whose C is multiplied by this weight. Rows of weight 0 are left
            out, and attributes have no entries for them. Precomputed kernels must not
            contain any. For ``alpha="loo"`` a row is always left out with all of its
            weight.

        Returns
        -------
        self : estimator
            Fitted estimator.
        """
        self._check_parameters()
        rows, classes, codes, design = read_labelled_rows(self, X, y, sample_weight)
        progress = Progress(self, X, y, sample_weight)
        bank = rows.kernels(progress.kernel)
        design = rows.levelled(design)
        signs = signs_of_codes(codes, len(classes))
        n_classes, n_machines = len(classes), signs.shape[1]
        alpha, unit = alpha_and_unit(
            bank, codes, n_classes, design, self.alpha, self.uncorrelated, self.scale
        )
        C, goals = float(self.C) * unit, reachable(self.tol, bank.like)

        kind = SubspaceMargin if self.uncorrelated else PlainSubspaceMargin
        problem = kind(bank, signs, alpha, C, MACHINE_SHARE * goals["aim"], design)
        learned = self._learn_weights(problem, goals, progress.iteration)

        is_few = self.n_components is not None and self.n_components < n_machines
        is_closed_form = learned.certificate is not None and not is_few
        joint = solve_joint(
            problem.at(learned.weights),
            self.n_components,
            duals=learned.duals,
            tol=goals["aim"],
            max_iter=self.max_iter,
            callback=None if is_closed_form else progress.iteration,
        )
        subspace, duals = joint.point.subspace, joint.point.duals
        is_stopped = is_few and progress.stopped

        certificate = learned.certificate
        if certificate is None or is_few:
            certificate = bounded(learned, joint, is_few, is_stopped, goals["tol"])
        # Eigenvalues t of G enter by t / (t + alpha), or t^2 / (t + alpha).
        steepest = 1.0 / alpha if self.uncorrelated else 1.0
        slope = 0.5 * steepest * float(np.sum(duals**2)) / abs(certificate.value)
        certificate = certificate.widened(error_of_value(bank, learned.weights, slope))
        certificate = replace(certificate, problem=self._problem(alpha, design))

        coef, steepness = design.scale(subspace.coef) * unit**0.5, subspace.steepness
        doubted = _doubted(subspace, duals, self.n_components)
        self._set_weights(rows, learned.weights, classes)
        self.alpha_, self.n_iter_ = alpha, learned.n_factorizations + joint.n_iter
        self.subspace_coef_, self.n_components_ = coef, int(coef.shape[1])
        self.dual_coef_ = joint.point.coef
        self.intercept_ = from_numpy(joint.point.intercepts, self.dual_coef_)
        self._note_rounding(steepness, subspace=doubted)
        # A gap that remains after a complete local search is not a failure.
        is_complete = learned.converged and not is_stopped
        is_local = is_few or learned.is_local
        self._set_certificate(certificate, warn=not (is_local and is_complete))
        progress.end()
        return self

    fit_transform = all_or_nothing(TransformerMixin.fit_transform)

    def _check_parameters(self) -> None:
        check_parameters(self, **JOINT_RULES)
        if not self.uncorrelated and self.solver != "auto":
            raise ValueError(
                f"solver={self.solver!r} is for uncorrelated=True, where learning the "
                "weights is a convex problem; use 'auto'"
            )

    def _learn_weights(
        self,
        problem: SubspaceMargin | PlainSubspaceMargin,
        goals: dict[str, Any],
        callback: Callback,
    ) -> LearnedWeights:
        """The weights of Eq. 39, for a subspace of any dimension."""
        weight_set = weight_set_of_norm(float(self.norm), fixed=True)
        p = problem.bank.n_kernels
        are_only = weight_set.is_point(p)
        if isinstance(problem, SubspaceMargin):
            solution = solve(
                problem,
                weight_set,
                method=self.solver,
                max_iter=self.max_iter,
                callback=callback,
                **goals,
            )
            return LearnedWeights(
                weights=solution.weights,
                duals=problem.split(solution.coef)[0],
                are_only=are_only,
                lower_bound=solution.lower_bound,
                converged=solution.converged,
                status=solution.status,
                remarks=solution.remarks,
                n_factorizations=solution.n_factorizations,
                certificate=Certificate.of(solution, ""),
            )
        if are_only:
            return LearnedWeights(weights=weight_set.start(p), are_only=True)
        local = solve_plain(
            problem,
            weight_set,
            tol=goals["aim"],
            max_iter=self.max_iter,
            callback=callback,
        )
        return LearnedWeights(
            weights=local.weights,
            duals=local.coef,
            lower_bound=local.lower_bound,
            converged=local.converged,
            status=local.status,
            remarks=problem.remarks(local.weights),
            n_factorizations=local.n_factorizations,
            is_local=True,
        )

    def _problem(self, alpha: float, design: RowDesign) -> str:
        """The problem in words, for the certificate."""
        kind = "an uncorrelated" if self.uncorrelated else "a"
        few = self.n_components
        size = "" if few is None else f" of at most {counted(few, 'dimension')}"
        return (
            f"SVMs on {kind} subspace kernel{size}, C={float(self.C):.3g}, "
            f"alpha={alpha:.3g}, l{float(self.norm):.3g} weights"
            f"{'' if design.weights is None else ', weighted rows'}"
        )

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    @of_rows
    def transform(self, X: Any) -> np.ndarray:
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
        return self._projected(X, "transform", "subspace_coef_")


def bounded(
    learned: LearnedWeights,
    joint: JointSolution,
    is_few: bool,
    is_stopped: bool,
    tol: float,
) -> Certificate:
    """The certificate of weights and subspace together, one of which is a local search.

    Parameters
    ----------
    learned, joint : LearnedWeights, JointSolution
        What was found for the weights, and then for the subspace.
    is_few : bool
        Whether the subspace has fewer dimensions than there are machines.
    is_stopped : bool
        Whether a callback has stopped the search for it.
    tol : float
        The gap to reach.
    """
    lower = learned.lower_bound
    if learned.are_only:
        lower = max(lower, joint.lower_bound)
    gap = relative_gap(joint.value, lower)
    if learned.is_local:
        status = f"{learned.status}; the problem is not convex in the weights, and "
    elif is_few:
        status = "the best of a local search: with fewer dimensions than machines "
    else:
        status = f"{joint.status}; "
    status += f"no optimum is certified; the relative gap of the bounds is {gap:.1e}"
    if not learned.converged and not learned.is_local:
        status += f"; the search for the weights {learned.status}"
    elif learned.converged and is_stopped:
        status += f"; the search for the subspace {joint.status}"
    if gap <= tol:
        status = f"optimal: the relative gap {gap:.1e} is within tol={tol:.0e}"
    return Certificate(
        value=joint.value,
        lower_bound=lower,
        gap=gap,
        status=status,
        converged=gap <= tol,
        problem="",
        remarks=learned.remarks,
        tol=tol,
    )


def alpha_and_unit(
    bank: Bank,
    codes: np.ndarray,
    n_classes: int,
    design: RowDesign,
    alpha: float | str,
    uncorrelated: bool,
    scale: str | None,
) -> tuple[float, float]:
    """Alpha, and C of Eqs. 9 and 20 in units of the parameter.

    ``bank`` holds centred kernels of trace n, ``codes`` (n,) the classes of the rows;
    the other arguments are parameters of :class:`SubspaceKernelSVC`. The unit is
    ``n / tr(K)`` for the mean kernel G and ``K = G (G + alpha I)^-1 G``, or without the
    last G if uncorrelated; with row weights n is their sum, and the kernels are scaled
    by the roots.
    """
    uniform = np.full(bank.n_kernels, 1.0 / bank.n_kernels)
    if alpha == "auto":
        alpha = AUTO_ALPHA * design.level if uncorrelated else "loo"
    if alpha == "loo":
        factor = label_factor(codes, n_classes, weights=design.weights)
        labels = from_numpy(factor, bank.like)
        alpha = LooPath(bank.combine(uniform), labels, design).best_alpha()
    if scale is None:
        return float(alpha), 1.0
    gram = bank.combine(uniform)
    smooth = RegularizedKernel(gram, float(alpha), design).solve(gram)
    if uncorrelated:
        trace = float(namespace(smooth).linalg.trace(smooth))
    else:
        trace = dot(gram, smooth)
    return float(alpha), design.total / trace


def _doubted(
    subspace: Subspace, duals: np.ndarray, n_components: int | None
) -> Subspace:
    """The subspace with what rounding may have changed about its features.

    Directions are those of the dual variables A (n, m), and sorted by eigenvalues that
    are about the squares of A's singular values: float32 loses small ones, which
    float64 keeps, and rotates features whose eigenvalues are nearly the same.
    """
    sizes = np.linalg.svd(duals, compute_uv=False)
    small = (sizes < ALWAYS_KEPT**0.5 * sizes[0]) & (sizes > LEAST_SINGULAR * sizes[0])
    kept = len(subspace.dependence)
    most = min(duals.shape[1], n_components or duals.shape[1])
    n_lost = min(int(np.sum(small)), most - kept)
    values = subspace.dependence / np.max(subspace.dependence)
    turned = turn_of_axes(0.5 * eps(subspace.coef), values)
    n_doubtful = max(subspace.n_doubtful, n_lost)
    return replace(subspace, n_doubtful=n_doubtful, turned=turned)
