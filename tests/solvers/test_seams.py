"""Problems that fit are solved and certified; others are refused with a reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from estimators import in_turn
from kernelweave import (
    Alignment,
    CappedSimplex,
    Fisher,
    LpBall,
    Margin,
    SignedSum,
    Simplex,
    solve,
)
from kernelweave.criteria import BlockFisher, WithinFisher
from kernelweave.criteria.margin import SubspaceMargin
from kernelweave.criteria.mixture import MixtureLikelihood
from kernelweave.kernels import DenseBank, center_and_scale
from kernelweave.protocols import (
    CosineCriterion,
    Criterion,
    CutSet,
    ExpansionCriterion,
    Iterate,
    LinearSet,
    Method,
    NormSet,
    Polyhedron,
    SaddleCriterion,
    ScoredCriterion,
    WeightSet,
)
from kernelweave.solvers.reference import printed_program
from kernelweave.solvers.solve import (
    GENERAL_METHODS,
    METHODS,
    _note_gap,
    fitting_methods,
)
from kernelweave.weights import GroupBall, PolyhedralSet, Uniform

N, P = 22, 5
SIGNS = np.where(np.arange(N) % 2, 1.0, -1.0)[:, None]
CODES = np.arange(N) % 2


class Budgets(PolyhedralSet):
    """No weight below 0.02, none above 0.7, and the first two share at most 0.3."""

    def polyhedron(self, m):
        first = (np.arange(m) < 2).astype(float)[None, :]
        return Polyhedron.sum_to_one(m, 0.02, 0.7, first, np.array([0.3]))


def bank():
    rng = np.random.default_rng(3)
    X = rng.normal(size=(N, P))
    X[:, 0] += 1.5 * SIGNS[:, 0]
    X[:, 1] += SIGNS[:, 0]
    squared = (X.T[:, :, None] - X.T[:, None, :]) ** 2
    return DenseBank(center_and_scale(np.exp(-squared)))


CRITERIA = {
    "fisher": lambda: Fisher(bank(), SIGNS, 0.5),
    "learned": lambda: Fisher(bank(), SIGNS, "learn"),
    "within": lambda: WithinFisher(bank(), SIGNS, 0.5, CODES),
    "block": lambda: BlockFisher(bank(), np.hstack([SIGNS, -SIGNS]), 0.5),
    "l1": lambda: Margin(bank(), SIGNS, "l1", 0.5),
    "l2": lambda: Margin(bank(), SIGNS, "l2", 1.0),
    "subspace": lambda: SubspaceMargin(bank(), SIGNS, 0.5, 2.0),
}
POLYHEDRA = [CappedSimplex(0.25), CappedSimplex(0.8), Budgets()]
every_polyhedron = pytest.mark.parametrize(
    "weight_set", POLYHEDRA, ids=["0.25", "0.8", "budgets"]
)


@in_turn(name=list(CRITERIA), weight_set=POLYHEDRA)
def test_linear_constraints_are_solved_with_a_certificate(name, weight_set):
    criterion = CRITERIA[name]()
    best = solve(criterion, weight_set, tol=1e-7)
    assert (best.method, best.converged) == ("newton", True)
    assert weight_set.violation(best.weights) <= 1e-9
    cuts = solve(criterion, weight_set, method="cutting_plane", tol=1e-4)
    assert cuts.converged
    assert cuts.value == pytest.approx(best.value, rel=2e-4)
    # The linearised criterion cannot decrease over the set: the optimality conditions.
    slope = -criterion.evaluate(best.weights).gradient
    gain = weight_set.support(slope) - slope @ best.weights
    assert gain <= 1e-5 * abs(best.value)


@every_polyhedron
def test_fisher_agrees_with_cvxpy(weight_set):
    cp = pytest.importorskip("cvxpy")
    criterion = CRITERIA["fisher"]()
    w, allowed = cp.Variable(P), weight_set.polyhedron(P)
    total = sum(w[i] * criterion.bank.kernel(i) for i in range(P))
    value = cp.matrix_frac(SIGNS[:, 0], total + 0.5 * np.eye(N))
    low, high = allowed.limits.T
    constraints = [cp.sum(w) == 1, w >= low, w <= high]
    if len(allowed.below):
        constraints.append(allowed.below @ w <= allowed.below_to)
    expected = 0.5 * cp.Problem(cp.Minimize(value), constraints).solve("CLARABEL")
    found = solve(criterion, weight_set)
    assert found.value == pytest.approx(expected, rel=1e-6)
    # measured: up to 1e-5 apart
    np.testing.assert_allclose(found.weights, w.value, atol=1e-4)


@pytest.mark.parametrize("name", ["l1", "l2"])
def test_margins_agree_with_the_semidefinite_program(name):
    pytest.importorskip("cvxpy")
    criterion = CRITERIA[name]()
    exact = solve(criterion, CappedSimplex(0.4), method="sdp", tol=1e-5)
    found = solve(criterion, CappedSimplex(0.4))
    assert exact.converged
    assert found.value == pytest.approx(exact.value, rel=1e-5)


def test_a_loose_cap_is_no_cap():
    criterion = CRITERIA["fisher"]()
    loose, free = solve(criterion, CappedSimplex(1.0)), solve(criterion, Simplex())
    assert loose.value == pytest.approx(free.value, rel=1e-7)
    tight = solve(criterion, CappedSimplex(1.0 / P))
    assert tight.value == pytest.approx(solve(criterion, Uniform()).value, rel=1e-12)
    assert tight.n_factorizations == 1


#: A problem, a method that does not fit it, and what the error message must name.
REFUSALS = [
    (
        "fisher",
        CappedSimplex(0.3),
        "closed_form",
        "Fisher over CappedSimplex",
        "'norm'",
    ),
    ("l1", CappedSimplex(0.3), "interior_point", "Margin over CappedSimplex", "'norm'"),
    ("fisher", Simplex(), "em", r"Fisher over Simplex\(\)", "'likelihood'"),
    ("block", LpBall(2), "qcqp", r"BlockFisher over LpBall\(2\)", "'printed dual'"),
    ("block", Simplex(), "working_set", "BlockFisher", "'kernel scores'"),
    ("subspace", Simplex(), "interior_point", "SubspaceMargin", "'saddle'"),
    ("fisher", Simplex(), "spectral_cuts", "Fisher", "'cuts' of the weight set"),
]


@pytest.mark.parametrize(("name", "weight_set", "method", "problem", "need"), REFUSALS)
def test_what_does_not_fit_is_refused_by_name(name, weight_set, method, problem, need):
    criterion = CRITERIA[name]()
    criterion.evaluate = None  # no work is done
    message = rf"one of \[.*\] for {problem}.*, got '{method}'; it needs .*{need}"
    with pytest.raises(ValueError, match=message):
        solve(criterion, weight_set, method=method)


@every_polyhedron
def test_alignment_agrees_with_cvxpy(weight_set):
    """The value is the same for all multiples of the weights: a problem over a cone."""
    cp = pytest.importorskip("cvxpy")
    criterion = Alignment(bank(), SIGNS)
    found = solve(criterion, weight_set)
    assert (found.method, found.converged) == ("active_set", True)
    u, allowed = cp.Variable(P), weight_set.polyhedron(P)
    low, high = allowed.limits.T
    root = np.linalg.cholesky(criterion.correlations)
    constraints = [
        cp.norm(root.T @ cp.multiply(criterion.norms, u)) <= 1,
        u >= low * cp.sum(u),
        u <= high * cp.sum(u),
    ]
    if len(allowed.below):
        constraints.append(allowed.below @ u <= allowed.below_to * cp.sum(u))
    gain = (criterion.cosines * criterion.norms) @ u
    expected = cp.Problem(cp.Maximize(gain), constraints).solve("CLARABEL")
    assert -found.value == pytest.approx(expected, rel=1e-6)


def test_a_problem_without_any_method_is_refused_by_name(rng):
    mixture = MixtureLikelihood(rng.normal(size=(20, P)))
    words = (
        r"minimises MixtureLikelihood over SignedSum.*'spectral_cuts' needs 'averages' "
        r"of the criterion.*kernelweave\.protocols say how to offer more"
    )
    with pytest.raises(ValueError, match=words):
        solve(mixture, SignedSum(bank()))
    with pytest.raises(ValueError, match="needs a weight set whose weights are >= 0"):
        solve(mixture, SignedSum(bank()), method="frank_wolfe")


def test_every_method_fits_some_problem_of_its_name():
    """... and only sets described by nothing else depend on the general methods."""
    kinds = [Fisher, WithinFisher, BlockFisher, Margin, Alignment, MixtureLikelihood]
    sets = [Simplex, LpBall, Uniform, CappedSimplex, SignedSum, GroupBall]
    pairs = [(kind, some) for kind in kinds for some in sets]
    for methods in (METHODS, GENERAL_METHODS):
        fitting = [fitting_methods(*pair, methods).values() for pair in pairs]
        for method in methods:
            assert any(method in names for names in fitting)
    none = [pair for pair in pairs if not fitting_methods(*pair)]
    assert none == [
        *((kind, GroupBall) for kind in kinds[:-1]),
        (MixtureLikelihood, SignedSum),
        (MixtureLikelihood, GroupBall),
    ]
    none = [pair for pair in pairs if not fitting_methods(*pair, GENERAL_METHODS)]
    assert none == [(kind, SignedSum) for kind in kinds]


def test_a_method_of_ones_own_and_its_count():
    """Each iterate counts its factorisations; the solution sums them."""

    def vertices(criterion, weight_set):
        for i in range(criterion.n_weights):
            weights = weight_set.maximizer(np.eye(criterion.n_weights)[i])
            state = criterion.evaluate(weights, hessian=False)
            assert state.n_factorizations == 1
            yield Iterate(
                weights, state.value, state.gradient, state.coef, None, None, 3
            )

    method = Method("vertices", vertices, 100, frozenset({"parts"}))
    solution = solve(CRITERIA["fisher"](), Simplex(), method=method)
    assert (solution.method, solution.n_iter) == ("vertices", P)
    assert solution.n_factorizations == 3 * P
    with pytest.raises(ValueError, match="got 'vertices'; it needs 'parts' of"):
        solve(Alignment(bank(), SIGNS), Simplex(), method=method)


#: The protocols that the tables of offers refer to; other offers concern numbers.
OFFERED = {
    "kernel scores": ScoredCriterion,
    "expansion": ExpansionCriterion,
    "saddle": SaddleCriterion,
    "cosines": CosineCriterion,
    "norm": NormSet,
    "polyhedron": LinearSet,
    "cuts": CutSet,
}


class Only:
    """An object with just the members of what it offers, taken from ``whole``."""

    def __init__(self, whole, offers, base):
        protocols = [base, *(OFFERED[offer] for offer in offers if offer in OFFERED)]
        kinds = {kind for protocol in protocols for kind in protocol.__mro__[:-1]}
        names = {name for kind in kinds for name in (*vars(kind), *_annotated(kind))}
        self.__dict__ |= {"whole": whole, "offers": frozenset(offers), "base": base}
        self.__dict__["names"] = {name for name in names if not name.startswith("_")}

    def __getattr__(self, name):
        if name not in self.names:
            raise AttributeError(f"{name!r} is not part of {sorted(self.offers)}")
        member = getattr(self.whole, name)
        if name in ("by_libsvm", "restricted"):
            return lambda which: Only(member(which), self.offers, self.base)
        if name == "evaluate" and "hessian" not in self.offers:
            return lambda *args, **options: replace(
                member(*args, **options), hessian=None
            )
        return member


def _annotated(kind):
    return vars(kind).get("__annotations__", {})


def problem_for(method):
    """A criterion and a set that the method fits, reduced to what it needs of them."""
    mixture = MixtureLikelihood(np.random.default_rng(0).normal(size=(30, P)))
    criteria = [*(make() for make in CRITERIA.values()), Alignment(bank(), SIGNS)]
    sets = [SignedSum(bank()), CappedSimplex(0.8), Simplex()]  # by what they offer
    pairs = ((c, s) for c in [*criteria, mixture] for s in sets)
    criterion, weight_set = next(pair for pair in pairs if not method.lacks(*pair))
    criterion = Only(criterion, method.needs, Criterion)
    return criterion, Only(weight_set, method.set_needs, WeightSet)


@pytest.mark.parametrize(
    "method", METHODS + GENERAL_METHODS, ids=lambda m: f"{m.name}, {m.run.__name__}"
)
def test_methods_use_only_what_they_declare(method):
    criterion, weight_set = problem_for(method)
    if {"printed program", "printed dual"} & method.needs:
        pytest.importorskip("cvxpy")
        with pytest.raises(ValueError, match=r"Only has no program in .*\.register\("):
            solve(criterion, weight_set, method=method)
    else:
        assert solve(criterion, weight_set, method=method, tol=1e-4).converged


@pytest.mark.parametrize("name", ["fisher", "within"])
def test_the_semidefinite_program_agrees_for_weights_of_any_sign(name):
    pytest.importorskip("cvxpy")
    exact = solve(CRITERIA[name](), SignedSum(bank()), method="sdp", tol=1e-4)
    cuts = solve(CRITERIA[name](), SignedSum(bank()), tol=1e-4)
    assert exact.converged and cuts.method == "spectral_cuts"
    assert cuts.value == pytest.approx(exact.value, rel=2e-4)


def test_a_criterion_of_ones_own_may_join_the_printed_programs():
    pytest.importorskip("cvxpy")

    class Own(Fisher):
        """The same criterion, but halved in the program."""

    @printed_program.register(Own)
    def halved(criterion, cp, weights):
        value, constraints = printed_program.dispatch(Fisher)(criterion, cp, weights)
        return 0.5 * value, constraints

    own = solve(Own(bank(), SIGNS, 0.5), Simplex(), method="sdp", tol=1e-5)
    known = solve(CRITERIA["fisher"](), Simplex(), tol=1e-5)
    assert own.converged and own.value == pytest.approx(known.value, rel=1e-5)


def test_a_method_says_itself_whether_precisions_lead_to_the_same_point():
    single = Fisher(DenseBank(np.float32(bank().stack)), np.float32(SIGNS), 0.5)
    ours = fitting_methods(single, Simplex())["newton"]
    own = Method("newton", ours.run, 60, ours.needs, ours.set_needs)
    assert _note_gap(single, ours, 1e-7) == ()
    assert "relative gap of 1e-07" in _note_gap(single, own, 1e-7)[0]


class Plain(Criterion):
    """Fisher's criterion, as a class written after the recipe would state it."""

    offers, n_kernels = frozenset({"hessian"}), P

    def __init__(self, fisher):
        self.bank, self.evaluate = fisher.bank, fisher.evaluate
        self.certificate_terms = fisher.certificate_terms


def test_every_criterion_on_float32_kernels_says_so():
    single = DenseBank(bank().stack.astype(np.float32))
    found = [
        solve(criterion, Simplex(), max_iter=3)
        for criterion in (Fisher(single, SIGNS, 0.5), Plain(Fisher(single, SIGNS, 0.5)))
    ]
    for solution in found:
        assert any("pass the rows in float64" in note for note in solution.remarks)


def test_a_method_without_iterates_is_refused_by_name():
    criterion = Fisher(bank(), SIGNS, 1.0)
    silent = Method("silent", lambda criterion, weight_set: iter([]), 10)
    with pytest.raises(ValueError, match=r"'silent' has yielded no Iterate.*at least"):
        solve(criterion, Simplex(), method=silent)
