"""The margin of support vector machines, on kernels and on subspaces."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from typing import ClassVar, Literal, Self

import numpy as np

from kernelweave._array import (
    Array,
    eps,
    from_numpy,
    gram_of_stack,
    in_double,
    inner_products,
    is_numpy,
    namespace,
    robust_cholesky,
    solve_stack,
    solve_triangular,
    tensor_sum,
    to_numpy,
)
from kernelweave._tolerances import NULL_EIGENVALUE, ROUNDING_UNITS
from kernelweave.fits.design import RowDesign
from kernelweave.fits.subspace import RegularizedKernel, SubspaceSVM
from kernelweave.fits.targets import checked_signs, require_both_signs
from kernelweave.inner.saddle import (
    SEPARABLE,
    SaddlePath,
    SaddleProblem,
    require_separable,
)
from kernelweave.inner.svm import (
    VIOLATIONS,
    Machines,
    MarginTerms,
    balanced,
    best_intercepts,
    free_rows,
    libsvm,
    primal_values,
    separate,
    train_machines,
)
from kernelweave.kernels.banks.dense import combine_in_double
from kernelweave.kernels.checks import checked_row_weights
from kernelweave.protocols import (
    Bank,
    CertificateTerms,
    Evaluation,
    InfeasibleError,
    KernelCriterion,
    is_positive,
    require_bank,
    require_positive,
)

#: Relative gap to which the SVMs at given weights are solved, and the step limit.
INNER_GAP = 1e-11
INNER_STEPS = 120
#: The limit for machines without a box, which an active set finds if the path does not
#: reach this gap.
HARD_STEPS = 40
GOOD_GAP = 1e-6
#: With this many rows or more LIBSVM is the better start: with ten Gaussian kernels and
#: up to 2500 rows it takes a tenth to three quarters of the interior point's time if
#: classes are well separated, at any C, and up to 1.8 times if labels are noise.
LIBSVM_FROM = 200
#: Relative gap to which machines from LIBSVM are polished, and the one that is good
#: enough: the interior point, which takes over otherwise, may fare no better.
TRAINED_GAP, GOOD_TRAINED_GAP = 1e-9, 1e-8
#: Share of free rows at the first weights above which the interior point, which factors
#: all rows, but once per step, takes less time.
MOSTLY_FREE = 0.65
#: Maximum number of steps of LIBSVM per row: it needs one to four unless kernels have a
#: low rank.
STEPS_PER_ROW = 20


class NotSuitable(Exception):
    """The polish of LIBSVM's machines has failed, or most rows are free."""


class Margin(KernelCriterion):
    """``J(w) = sum_c max_a 2 e'a - a'(G(w) + tau I) a, 0 <= a <= C, y_c'a = 0``.

    Lanckriet et al. (2002), Eq. 12, with ``G(w) = diag(y) sum_i w_i K_i diag(y)`` over
    the labelled rows; J is the sum over the columns c of the squared inverse margin,
    hard or soft:

    =======  =============  =====  =====  =======================================
    margin   C              bound  tau    primal whose minimum is J
    =======  =============  =====  =====  =======================================
    "hard"   not used       inf    0      ``norm(w)^2``, ``y f >= 1``
    "l1"     a number       C      0      ``norm(w)^2 + 2 C sum xi``
    "l2"     a number       inf    1/C    ``norm(w)^2 + C sum xi^2``
    "l2"     "learn"        inf    w_0    as before, with ``1/C`` a weight
    =======  =============  =====  =====  =======================================

    J is convex in w. With the maximiser ``a`` the gradient is ``-a'G_i a``, and with R
    the inverse of ``G(w) + tau I`` on the rows strictly inside the box and on
    ``y'a = 0``, the Hessian is ``2 a'G_i R G_j a``. Any feasible a bounds J from below;
    any weights, function and intercept bound it from above through the primal.

    Row weights r multiply the slacks: ``sum_i r_i xi_i`` and ``sum_i r_i xi_i^2``. Then
    ``a_i <= C r_i``, and the identity becomes ``diag(1/r)``. A hard margin has no
    slacks, and ignores r. Whole numbers r are copies of rows.

    Parameters
    ----------
    bank : Bank
        The kernels over all rows, used as they are: centring them or scaling them to a
        common trace is up to the caller.
    signs : array of shape (n, k)
        One two-class problem per column: +1 or -1, and 0 for unlabelled rows.
    margin : {"l1", "l2", "hard"}, default="l1"
        The row of the table.
    C : float or "learn", default=1.0
        The penalty on errors. "learn" makes the identity kernel number 0; with kernels
        of trace n over all rows, it shares their trace constraint.
    row_weights : ndarray of shape (n,), optional
        r > 0, for all rows, labelled or not; by default every row counts once.

    Attributes
    ----------
    trains : bool
        Whether machines at given weights come from LIBSVM: many rows in host memory.
    path_steps : int
        Maximum number of steps of the interior point at given weights.
    may_give_up : bool
        Whether these raise :class:`NotSuitable` where another method takes less time.
    """

    may_give_up = False
    offers = frozenset({"hessian", "concave reciprocal", "averages", "parts", "saddle"})
    offers |= {"printed program", "printed dual"}
    identity_name = "1/C"

    def __init__(
        self,
        bank: Bank,
        signs: Array,
        margin: Literal["l1", "l2", "hard"] = "l1",
        C: float | Literal["learn"] = 1.0,
        row_weights: np.ndarray | None = None,
    ) -> None:
        require_bank(bank, type(self).__name__)
        _check_margin(margin, C)
        self.bank, self.margin, self.C = bank, margin, C
        self.learns_identity = margin == "l2" and isinstance(C, str)
        self.signs = checked_signs(signs, bank.n_samples, zeros=True)  # (N, k), NumPy
        require_both_signs(self.signs)
        self.rows = np.flatnonzero(np.any(self.signs != 0, axis=1))
        counts = checked_row_weights(row_weights, bank.n_samples)
        bound = float(C) if margin == "l1" else np.inf
        tau = 1.0 / float(C) if margin == "l2" and not self.learns_identity else 0.0
        self.problem = SaddleProblem(
            bank.restrict(self.rows),
            self.signs[self.rows],
            bound,
            tau,
            self.learns_identity,
            np.ones(len(self.rows)) if margin == "hard" else counts[self.rows],
        )
        _check_range(self.problem, bound, tau)
        self.trains = len(self.rows) >= LIBSVM_FROM and is_numpy(bank.like)
        self.path_steps = INNER_STEPS if np.isfinite(bound) else HARD_STEPS
        self._known: tuple[np.ndarray, Array] | None = None
        self._last: np.ndarray | None = None  # coefficients found by training
        self._work: Array | None = None

    @property
    def preferred_method(self) -> str:
        """Newton's method where machines are trained."""
        return "newton" if self.trains else "interior_point"

    def by_libsvm(self, may_give_up: bool) -> Self:
        """The same problem with machines that are trained, and no kernel copied."""
        other = copy(self)
        other.trains, other.may_give_up, other._last = True, may_give_up, None
        return other

    def evaluate(self, weights: np.ndarray, hessian: bool = True) -> Evaluation:
        """Value, gradient, Hessian and coefficients at weights (m,) of any sign.

        Machines are trained by LIBSVM, or follow from the active sets at the previous
        weights, and are polished. An interior point finds those for which this fails.

        Raises
        ------
        InfeasibleError
            If the margin is hard and no function of this kernel separates the rows.
        FactorizationError
            If the combined kernel is not positive semidefinite.
        """
        weights = np.asarray(weights, dtype=np.float64)
        trained = self._trained(weights) if self.trains else None
        found = self._along_path(weights) if trained is None else trained
        coef = found.coef()
        products = self.problem.products(coef)
        scores = self.problem.scores(coef, products)
        value = self.problem.terms(coef, scores).linear - float(scores @ weights)
        curvature = found.curvature(products) if hessian else None
        full = self.over_all_rows(coef)
        return Evaluation(value, -scores, curvature, full, found.n_factorizations)

    def _trained(self, weights: np.ndarray) -> Machines | None:
        """Machines from LIBSVM or the last active sets; None if not good enough.

        They are trained in host memory: sums of kernels of other array libraries are
        copied there.
        """
        problem = self.problem
        tau, own = problem.split(weights)
        self._work = combine_in_double(problem.bank, own, self._work)
        kernel = np.require(to_numpy(self._work), np.float64, "W")
        kernel[np.diag_indices(len(kernel))] += tau * problem.diagonal
        if np.min(own) < 0.0:  # LIBSVM would not notice an indefinite sum
            size = float(np.max(np.abs(own)) * np.sum(problem.bank.diagonals()))
            # Up to the directions that SignedSum counts as those of no kernel.
            null = max(NULL_EIGENVALUE, self.bank.n_samples * eps(self.bank.like))
            robust_cholesky(kernel, [size * ROUNDING_UNITS * null])
        bounds, steps = problem.bounds, STEPS_PER_ROW * len(kernel)
        start = self._last
        then: tuple[float, ...] = VIOLATIONS
        if start is None:
            start = libsvm(kernel, problem.signs, bounds, steps)
            then = () if self.may_give_up else VIOLATIONS[1:]
            free, _ = free_rows(start * problem.signs, bounds[:, None])
            if self.may_give_up and np.mean(free) > MOSTLY_FREE:
                raise NotSuitable
        found = train_machines(
            kernel, problem.signs, bounds, TRAINED_GAP, start, then, steps
        )
        if max(machine.gap for machine in found) > GOOD_TRAINED_GAP:
            if self.may_give_up:
                raise NotSuitable
            return None
        self._last = found.coef()
        return found

    def _along_path(self, weights: np.ndarray) -> SaddlePath | Machines:
        """The end of the path at weights (m,), or machines where it does not lead."""
        path = SaddlePath(self.problem.at(weights), 1.0, np.ones(1))
        has_box = np.isfinite(path.problem.bound)
        try:
            upper, lower = path.run(INNER_GAP, self.path_steps)
        except InfeasibleError as error:
            error.coef = self.over_all_rows(path.coef())
            raise
        if not (has_box or path.problem.tau > 0.0):
            # Products of huge coefficients, summed up step by step, may be rounding.
            coef = path.coef()
            upper = path.problem.upper(np.ones(1), coef, path.problem.products(coef))
            upper = upper if upper < SEPARABLE * path.size else np.inf
        if has_box or upper - lower <= GOOD_GAP * upper < np.inf:
            return path
        # A path to a tiny margin is long, and lost in rounding errors at its end.
        found = self._separated(path.problem)
        count = found[0].n_factorizations + path.n_factorizations
        found[0] = replace(found[0], n_factorizations=count)
        return found

    def certificate_terms(
        self, weights: np.ndarray, coef: Array, dual: Array
    ) -> MarginTerms:
        """The primal value of ``coef`` and the dual terms of ``dual``, in float64.

        Both may be any arrays of shape (n, k): ``dual`` is first made feasible, for the
        box and then for ``y'a = 0``.
        """
        beta = self._on_labelled(coef)
        products = self._products(beta)
        upper = self.problem.upper(weights, beta, products)
        signs, bounds = self.problem.signs, self.problem.bounds
        feasible = balanced(self._on_labelled(dual), signs, bounds)
        if not np.array_equal(feasible, beta):
            products = self.problem.products(feasible)
        scores = self.problem.scores(feasible, products)
        terms = self.problem.terms(feasible, scores, upper)
        square = float(np.sum(np.maximum(np.abs(beta), np.abs(feasible)) ** 2))
        # Rounding of the kernels moves eigenvalues, also below zero, and functions:
        # these must be scaled up by as much to attain their margins.
        tau, own = self.problem.split(weights)
        means = np.mean(np.abs(self.problem.bank.diagonals()), axis=1)
        share = eps(self.bank.like) * len(self.rows) ** 0.5
        if not (np.isfinite(self.problem.bound) or tau > 0.0):
            share = max(share, NULL_EIGENVALUE)  # zero, where a hard margin is sought
        moved = share * float(np.abs(own) @ means)
        cost = square + (2.0 * upper * square**0.5 if np.isfinite(upper) else 0.0)
        return replace(
            terms,
            rounding=self.rounding(weights, square),
            excess=moved * cost,
            imbalance=float(np.sum(np.abs(np.sum(feasible, axis=0)))),
        )

    def intercept(self, weights: np.ndarray, coef: Array) -> np.ndarray:
        """The best intercept for each column of ``f = K(w) coef``, (k,)."""
        beta = self._on_labelled(coef)
        tau, _ = self.problem.split(weights)
        f = self.problem.functions(weights, self._products(beta))
        loss = "hard" if self.margin == "l2" and not tau > 0.0 else self.margin
        return best_intercepts(f, self.problem.signs, loss, self.problem.counts)

    def remarks(self, weights: np.ndarray) -> tuple[str, ...]:
        """Whether the weights, and a learned C, are identifiable."""
        remarks = super().remarks(weights)
        if self.learns_identity and weights[0] == 0.0:
            remarks += (
                "the learned C is infinite: the hard margin is best for this trace",
            )
        return remarks

    def _separated(self, alone: SaddleProblem) -> Machines:
        """Machines without a box, by active sets.

        A squared slack is that of a hard margin with the kernel ``G + tau D``.

        Raises
        ------
        InfeasibleError
            If the one kernel of ``alone`` has no hard margin.
        """
        kernel = to_numpy(alone.bank.kernel(0)).astype(np.float64)
        ridge = alone.tau * alone.diagonal
        coef, machines = np.zeros_like(alone.signs), Machines()
        for c in range(coef.shape[1]):
            rows = np.flatnonzero(alone.signs[:, c])
            part, y = kernel[rows][:, rows], alone.signs[rows, c]
            found = separate(part, ridge[rows], y)
            own = coef[rows, c] = found.coef
            machines.append(replace(found, coef=coef[:, c], free=rows[found.free]))
            if alone.tau == 0.0:
                total, square = float(np.sum(np.abs(own))), float(own @ (part @ own))
                try:
                    lower = total**2 / square if square > 0.0 else np.inf
                    require_separable(lower, alone.unit())
                except InfeasibleError as error:
                    proof = np.zeros_like(coef)
                    proof[:, c] = coef[:, c] / total
                    error.coef = self.over_all_rows(proof)
                    raise
        return machines

    def over_all_rows(self, coef: np.ndarray) -> Array:
        """Coefficients of the labelled rows as an array (N, k) like the bank's."""
        full = np.zeros(self.signs.shape)
        full[self.rows] = coef
        return in_double(full, self.bank.like)

    def _on_labelled(self, coef: Array) -> np.ndarray:
        return to_numpy(coef).astype(np.float64)[self.rows]

    def _products(self, beta: np.ndarray) -> Array:
        """``G_i beta``, remembered: a solution is judged several times at its end."""
        if self._known is None or not np.array_equal(self._known[0], beta):
            self._known = beta, self.problem.products(beta)
        return self._known[1]


def _check_margin(margin: str, C: float | str) -> None:
    if margin not in ("l1", "l2", "hard"):
        raise ValueError(f"margin must be 'l1', 'l2' or 'hard', got {margin!r}")
    if isinstance(C, str):
        if C != "learn":
            raise ValueError(f"C must be a float > 0 or 'learn', got {C!r}")
        if margin == "l1":
            raise ValueError(
                "C='learn' needs margin='l2', whose 1/C is the weight of a kernel; "
                "got margin='l1'"
            )
    elif margin != "hard" and not is_positive(C):
        raise ValueError(
            f"C must be a finite float > 0 or 'learn', got {C!r}; "
            "margin='hard' allows no errors"
        )


#: Squares, and products of squares with kernels, of the variables stay in float64 for
#: kernels whose mean diagonal, and C in its units, lie between this and its inverse.
RANGE = 1e-100


def _check_range(problem: SaddleProblem, bound: float, tau: float) -> None:
    """Refuse kernels, and values of C, whose squares leave the range of float64."""
    size = float(np.max(np.mean(problem.bank.diagonals(), axis=1)))
    if size and not RANGE < size < 1.0 / RANGE:
        raise ValueError(
            f"the mean of a kernel's diagonal is {size:.3g}, whose square leaves the "
            "range of float64; rescale the kernels, and C by the inverse factor"
        )
    price = bound if np.isfinite(bound) else 1.0 / tau if tau else 1.0
    if not RANGE < price * (size or 1.0) < 1.0 / RANGE:
        raise ValueError(
            f"C={price:.3g} is out of range for kernels whose mean diagonal is "
            f"{size:.3g}; their product must lie between {RANGE:.0e} and "
            f"{1.0 / RANGE:.0e}"
        )


def functions_of(bank: Bank, weights: np.ndarray, coef: np.ndarray) -> np.ndarray:
    """``K(w) coef`` (n, c), without intercepts."""
    columns = in_double(coef, bank.like)
    return to_numpy(tensor_sum(weights, bank.apply(columns)))


def margins_of(functions: np.ndarray, coef: np.ndarray) -> np.ndarray:
    """``1 / norm(w_c)`` with ``norm(w_c)^2 = a_c' K a_c`` for each column, (c,)."""
    squared = np.sum(coef * functions, axis=0)
    with np.errstate(divide="ignore"):  # a constant function has no finite margin
        return 1.0 / np.sqrt(np.maximum(squared, 0.0))


def support_vectors(
    functions: np.ndarray, signs: np.ndarray, coef: np.ndarray
) -> np.ndarray:
    """Which rows (n,) lie on the margin of a column, or on its wrong side.

    Parameters are decision functions, signs and coefficients, each (n, c). At an
    optimum a row has either no coefficient or no distance from the margin. An interior
    point has a little of both, so the larger of the two decides, coefficients in units
    of the largest one.
    """
    sizes = np.abs(coef)
    beyond = signs * functions - 1.0
    largest = np.max(sizes, axis=0, initial=0.0)
    return np.any((sizes > 0.0) & (sizes >= largest * beyond), axis=1)


class SubspaceProblem:
    """Machines on subspaces of a sum of kernels, with C in the units of the problem.

    The parameters are those of :class:`SubspaceMargin`.
    """

    uncorrelated: ClassVar[bool]  # Eq. 20 in place of Eq. 9

    def __init__(
        self,
        bank: Bank,
        signs: np.ndarray,
        alpha: float,
        C: float,
        tol: float = 1e-9,
        design: RowDesign | None = None,
    ) -> None:
        require_bank(bank, type(self).__name__)
        require_positive(alpha=alpha, C=C)
        signs = checked_signs(signs, bank.n_samples)
        require_both_signs(signs)
        self.design = design or RowDesign(len(signs))
        self.bank, self.signs = bank, signs
        self.alpha, self.C, self.tol = float(alpha), float(C), tol
        self.bounds = self.C * self.design.each

    def at(self, weights: np.ndarray) -> SubspaceSVM:
        """The problem of a single kernel, the sum at these weights (p,)."""
        gram = self.bank.combine(weights)
        kernel = RegularizedKernel(gram, self.alpha, self.design)
        return SubspaceSVM(kernel, self.signs, self.C, self.uncorrelated, self.tol)


class SubspaceMargin(SubspaceProblem, KernelCriterion):
    """``v(w) = max_A sum(a) - tr(A' T(w) A) / 2``, ``T(w) = G (G + alpha I)^-1``.

    The joint problem of Chen et al. (2008), Eqs. 39 and 40, with the subspace (of at
    least k dimensions) eliminated: the best one for the dual variables A (n, k) of the
    k support vector machines, ``0 <= a <= C`` and ``y'a = 0`` with ``A = Y a``, turns
    the subspace kernel into T, which is concave in ``G = sum_i w_i G_i``. So v is
    convex. With ``B = alpha (G + alpha I)^-1 A``::

        v(w)    = max_{A,B}  sum(a) - norm(A - B)^2 / 2 - sum_i w_i tr(B'G_iB) / 2alpha
        dv/dw_i = -tr(B' G_i B) / (2 alpha)
        v(w)   <= norm(F)^2 / 2 + tr(B'F) / 2 + C hinge(F + b)    any B, F = G B / alpha

    The last line is the primal: SVMs penalised by half of ``norm(f)^2`` over the
    training rows plus alpha times the squared norm of f in the space of G. The Hessian
    is that for fixed A plus the contribution of the free support vectors as they move;
    where a variable reaches or leaves its bound, the gradient of v has a kink.

    Row weights r count a row as r copies, whose variables add up to ``a_i <= C r_i``.
    With ``D = diag(sqrt(r))`` and ``G~ = D G D`` the copies have the kernel
    ``U G~ U'``, where U repeats rows and has orthonormal columns, so in all
    formulas G is ``G~``, the SVMs use the kernel ``D^-1 T~ D^-1``, A enters as
    ``D^-1 A`` except in sum(a), and the outputs are ``D^-1 F``.

    Parameters
    ----------
    bank : Bank
        Centred kernels of trace n.
    signs : ndarray of shape (n, m)
        +1 and -1, one column per SVM.
    alpha : float
        Regularisation xi, relative to the mean eigenvalue of a kernel.
    C : float
        The bound on the dual variables. T has eigenvalues below 1, so values of order
        n here correspond to values of order 1 for other kernels.
    tol : float, default=1e-9
        Relative gap of the SVMs.
    design : RowDesign, optional
        Row weights; the kernels are then ``D G_i D``.
    """

    uncorrelated = True
    #: No concave reciprocal: where every variable is at a bound, v is nearly linear.
    offers = frozenset({"hessian", "averages", "parts"})

    def evaluate(self, weights: np.ndarray, hessian: bool = True) -> Evaluation:
        """Value, gradient, Hessian and (A, B) from one factorisation and m SVMs."""
        problem = self.at(weights)
        machines, factor = problem.closed_form(), problem.kernel.factor
        a = machines.coef()
        scaled = self.design.unscale(a)  # D^-1 A
        b = self.alpha * problem.kernel.solve(from_numpy(scaled, self.bank.like))
        products = self.bank.apply(b)
        scores = inner_products(products, b) / (2.0 * self.alpha)
        b_host = to_numpy(b).astype(np.float64)
        explained = float(np.sum(scaled * (scaled - b_host)))
        value = float(np.sum(a * self.signs)) - 0.5 * explained
        curvature = None
        if hessian:
            half = solve_stack(factor, products)
            curvature = gram_of_stack(half) / self.alpha
            # u_i = dT/dw_i a, the derivatives of the SVMs' outputs
            flat = namespace(half).reshape(half, (half.shape[0], -1))
            moved = to_numpy(solve_triangular(factor, flat, transpose=True))
            moved = moved.astype(np.float64).reshape(half.shape)  # (n, p, m)
            moved /= np.sqrt(self.design.each)[:, None, None]
            curvature += 0.5 * machines.curvature(np.moveaxis(moved, 1, 0))
        return Evaluation(value, -scores, curvature, np.concatenate([a, b_host], 1))

    def certificate_terms(
        self, weights: np.ndarray, coef: Array, dual: Array
    ) -> CertificateTerms:
        """The bounds of the class docstring, in float64, for any points (n, 2 m)."""
        upper = self.primal(weights, coef)
        a, b = self.split(dual)
        products = self._products(b)
        scores = inner_products(products, from_numpy(b, products))
        a = balanced(a, self.signs, self.bounds)
        apart = self.design.unscale(a) - b
        linear = float(np.sum(a * self.signs)) - 0.5 * float(np.sum(apart**2))
        # A rounding error of y'a = 0 costs its size times the intercept.
        intercept = 1.0 + float(np.max(np.abs(self.design.unscale(apart))))
        linear -= intercept * float(np.sum(np.abs(np.sum(a, axis=0))))
        scores = scores / (2.0 * self.alpha)
        # An error of F changes the primal value by its product with A, B or F = A - B.
        own, size = (np.linalg.norm(each) for each in (self.design.unscale(a), b))
        size = max(size, np.linalg.norm(self.split(coef)[1]))
        rounding = self.rounding(weights, float(size * max(size, own))) / self.alpha
        # A is the best for outputs with such errors; each of them may cost C.
        wrong = self.rounding(weights, float(max(size, own))) / self.alpha
        excess = self.C * float(np.sqrt(self.design.total * a.shape[1])) * wrong
        return CertificateTerms(upper, linear, scores, rounding=rounding, excess=excess)

    def primal(self, weights: np.ndarray, coef: Array) -> float:
        """The primal value of ``f = G B / alpha``, or of a multiple that is better.

        Where C is large, the smallest error in a function that separates the rows costs
        more than the multiple of it that attains all margins.
        """
        _, b = self.split(coef)
        f = to_numpy(tensor_sum(weights, self._products(b))) / self.alpha
        # norm(f)^2 + tr(B'f) = tr(slope' outputs)
        outputs, slope = self.design.unscale(f), self.design.scale(f + b)
        values = primal_values(outputs, slope, self.signs, self.bounds)
        return 0.5 * float(np.sum(values))

    def split(self, coef: Array) -> tuple[np.ndarray, np.ndarray]:
        """A and B (n, m) of a dual point (n, 2 m)."""
        points = np.asarray(coef, dtype=np.float64)
        m = self.signs.shape[1]
        return points[:, :m], points[:, m:]

    def _products(self, b: np.ndarray) -> Array:
        """``G_i B`` (p, n, m) in float64."""
        return self.bank.apply(in_double(b, self.bank.like))
