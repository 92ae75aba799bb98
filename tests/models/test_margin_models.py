"""Support vector machines with learned kernels: oracles, invariances, bad input."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.multiclass import OneVsRestClassifier
from sklearn.svm import SVC

from estimators import in_turn
from kernelweave import MultipleKernelSVC, TransductiveKernelSVC
from kernelweave.kernels import center_and_scale

TIGHT = {"tol": 1e-9}
MODELS = [
    pytest.param(MultipleKernelSVC(C=1.0, **TIGHT), id="l1"),
    pytest.param(MultipleKernelSVC(C=0.05, **TIGHT), id="l1-small-C"),
    pytest.param(MultipleKernelSVC(margin="l2", C=2.0, **TIGHT), id="l2"),
    pytest.param(MultipleKernelSVC(margin="l2", C="learn", **TIGHT), id="l2-learn"),
    pytest.param(MultipleKernelSVC(norm=2, **TIGHT), id="norm2"),
    pytest.param(MultipleKernelSVC(norm=np.inf, **TIGHT), id="uniform"),
]
every_model = pytest.mark.parametrize("model", MODELS)
CLASSES = pytest.mark.parametrize("k", [2, 4])


def combined(model, problem):
    """The learned kernel over the training rows, (n, n)."""
    stack = center_and_scale(np.ascontiguousarray(np.moveaxis(problem.K, -1, 0)))
    return np.tensordot(model.kernel_weights_, stack, axes=1)


@in_turn(model=MODELS, k=[2, 4])
def test_functions_are_support_vector_machines_on_the_learned_kernel(
    model, k, make_problem
):
    problem = make_problem(k)
    model = clone(model).set_params(views=problem.views).fit(problem.X, problem.y)
    K = combined(model, problem)
    price = model.C_
    scores = model.decision_function(problem.X).reshape(len(K), -1)
    for c in range(scores.shape[1]):
        sign = np.where(problem.y == (c if k > 2 else 1), 1, -1)
        if model.margin == "l1":
            oracle = SVC(C=price, kernel="precomputed", tol=1e-9).fit(K, sign)
            expected = oracle.decision_function(K)
        else:  # the 2-norm margin is a hard margin of K + I/C
            ridge = K + np.eye(len(K)) / price
            oracle = SVC(C=1e6, kernel="precomputed", tol=1e-9).fit(ridge, sign)
            shift = np.zeros(len(K))
            shift[oracle.support_] = oracle.dual_coef_[0] / price
            expected = oracle.decision_function(ridge) - shift
        # measured: up to 3e-5 apart
        assert_allclose(scores[:, c], expected, atol=1e-4)


@in_turn(
    solver=["interior_point", "newton", "cutting_plane", "closed_form"],
    margin=["l1", "l2"],
    k=[2, 4, 4],
    tol=[1e-5, 1e-5, 1e-2, 1e-2, 1e-2],  # the last solvers take long to many digits
)
def test_support_vectors_do_not_depend_on_the_solver(
    solver, margin, k, tol, make_problem
):
    """They lie on the margin or on its wrong side, in at least one problem."""
    problem = make_problem(k, n=32)
    model = MultipleKernelSVC(problem.views, margin=margin, solver=solver, tol=tol)
    model.fit(problem.X, problem.y)
    scores = model.decision_function(problem.X).reshape(len(problem.y), -1)
    classes = np.arange(k)[None, :] if k > 2 else np.ones((1, 1))
    inside = np.where(problem.y[:, None] == classes, 1, -1) * scores - 1
    nearest = np.min(inside, axis=1)
    support = np.isin(np.arange(len(nearest)), model.support_)
    # measured: up to 0.003 for support vectors, 0.01 or more for all other rows
    assert np.all(support[nearest < -0.05]) and not np.any(support[nearest > 0.05])


@in_turn(model=MODELS, k=[2, 4])
def test_only_the_best_kernels_have_weight(model, k, make_problem):
    problem = make_problem(k)
    model = clone(model).set_params(views=problem.views).fit(problem.X, problem.y)
    stack = center_and_scale(np.ascontiguousarray(np.moveaxis(problem.K, -1, 0)))
    scores = np.einsum(
        "nc,inm,mc->i", model.dual_coef_, stack, model.dual_coef_, optimize=True
    )
    weights = model.kernel_weights_
    if model.norm_ == 1:
        used = weights > 1e-6
        # equal in theory; measured: up to 4e-8 of the smaller one
        assert np.max(scores) <= np.min(scores[used]) * (1 + 1e-5)
    elif model.norm_ == 2:
        assert_allclose(weights / scores, np.mean(weights / scores), rtol=1e-3)
    assert model.certificate_.converged
    assert model.certificate_.lower_bound <= model.certificate_.value


@pytest.mark.one_seed
@in_turn(model=MODELS, k=[4, 2])
def test_columns_and_kernels_give_the_same_model(model, k, make_problem):
    problem = make_problem(k)
    columns = clone(model).set_params(views=problem.views).fit(problem.X, problem.y)
    kernels = clone(model).set_params(views="precomputed").fit(problem.K, problem.y)
    assert_allclose(kernels.certificate_.value, columns.certificate_.value, rtol=1e-8)
    assert_allclose(
        kernels.decision_function(problem.new_K),
        columns.decision_function(problem.new),
        atol=1e-6,
    )
    assert np.array_equal(kernels.predict(problem.new_K), columns.predict(problem.new))


@pytest.mark.one_seed
@every_model
def test_order_and_scale_of_kernels_and_rows_do_not_matter(model, make_problem, rng):
    problem = make_problem(3)
    model = clone(model).set_params(views="precomputed")
    reference = clone(model).fit(problem.K, problem.y)
    order, rows = rng.permutation(5), rng.permutation(len(problem.y))
    scale = np.exp(rng.normal(scale=3, size=5))
    moved = (problem.K * scale)[:, :, order][np.ix_(rows, rows)]
    other = clone(model).fit(moved, problem.y[rows])
    assert_allclose(other.certificate_.value, reference.certificate_.value, rtol=1e-7)
    new = (problem.new_K * scale)[:, :, order][:, rows]
    assert_allclose(
        other.decision_function(new),
        reference.decision_function(problem.new_K),
        atol=1e-4,
    )


def test_swapping_two_classes_changes_the_sign(make_problem):
    problem = make_problem(2)
    model = MultipleKernelSVC(problem.views, tol=1e-9)
    one = clone(model).fit(problem.X, problem.y)
    other = clone(model).fit(problem.X, 1 - problem.y)
    assert_allclose(
        other.decision_function(problem.new),
        -one.decision_function(problem.new),
        atol=1e-5,
    )


@pytest.mark.parametrize("table", [False, True])
def test_weights_of_each_class_come_from_one_against_the_rest(make_problem, table):
    """scikit-learn's; the columns of the views stay theirs, also in a table by name."""
    problem = make_problem(3)
    X, new, views = problem.X, problem.new, problem.views
    if table:
        names = np.array([f"x{j}" for j in range(X.shape[1])])
        X, new = (pd.DataFrame(rows, columns=names) for rows in (X, new))
        views = [(name, kernel, names[part].tolist()) for name, kernel, part in views]
    each = OneVsRestClassifier(MultipleKernelSVC(views, tol=1e-9)).fit(X, problem.y)
    shared = MultipleKernelSVC(views, tol=1e-9).fit(X, problem.y)
    total = sum(model.certificate_.value for model in each.estimators_)
    assert total <= shared.certificate_.value * (1 + 1e-9)
    shares = []
    for c, model in enumerate(each.estimators_):
        alone = MultipleKernelSVC(views, tol=1e-9).fit(
            X, np.where(problem.y == c, 1, 0)
        )
        assert model.view_weights_ == alone.view_weights_
        assert model.view_weights_.keys() == {name for name, *_ in views}
        shares.append(list(model.view_shares_.values()))
        assert_array_equal(
            each.decision_function(new)[:, c], alone.decision_function(new)
        )
    assert np.ptp(shares, axis=0).max() > 0.01  # the classes do differ
    assert_array_equal(
        each.predict(new), np.argmax(each.decision_function(new), axis=1)
    )


def test_negative_weights_can_only_help(make_problem):
    problem = make_problem(2, n=40)
    views = [problem.views[0], ("second", problem.views[1][1], [3, 4, 5])]
    nonneg = MultipleKernelSVC(views).fit(problem.X, problem.y)
    signed = MultipleKernelSVC(views, signed=True).fit(problem.X, problem.y)
    assert signed.certificate_.value <= nonneg.certificate_.value * (1 + 1e-5)
    K = np.tensordot(
        signed.kernel_weights_,
        center_and_scale(np.moveaxis(problem.K, -1, 0)[:3].copy()),
        axes=1,
    )
    assert np.linalg.eigvalsh(K)[0] >= -1e-6 * len(K)
    assert_allclose(np.sum(signed.kernel_weights_), 1.0)


def test_the_hard_margin_separates_or_says_why_not(make_problem, rng):
    problem = make_problem(2, separation=4.0)
    model = MultipleKernelSVC(problem.views, margin="hard").fit(problem.X, problem.y)
    signs = np.where(problem.y == 1, 1, -1)
    # measured: 1 up to 6e-7
    assert np.min(signs * model.decision_function(problem.X)) > 1 - 1e-3
    assert np.isinf(model.C_)
    X, y = np.concatenate([problem.X, problem.X[:1]]), problem.y
    with pytest.raises(ValueError, match=r"MultipleKernelSVC: infeasible.*separa"):
        model.fit(X, np.append(y, 1 - y[0]))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"margin": "soft"}, "'margin' parameter of MultipleKernelSVC must be one of"),
        ({"C": 0.0}, "'C' parameter.*finite number > 0"),
        ({"C": "learn"}, "C='learn' needs margin='l2'"),
        ({"norm": 0.5}, "'norm' parameter.*a number >= 1"),
        ({"norm": 2, "signed": True}, "signed=True.*norm=1; got norm=2"),
        ({"signed": "yes"}, "'signed' parameter.*bool; got 'yes'"),
        ({"solver": "magic"}, "'solver' parameter.*'interior_point'"),
        ({"tol": 0}, "'tol' parameter"),
        ({"max_iter": 0}, "'max_iter' parameter"),
        ({"weight_bound": 0.5}, "'weight_bound' parameter"),
    ],
)
def test_bad_parameters_are_named(parameters, message, make_problem):
    problem = make_problem(2, n=20)
    with pytest.raises(ValueError, match=message):
        MultipleKernelSVC(problem.views, **parameters).fit(problem.X, problem.y)


def test_too_few_iterations_are_a_warning_with_the_gap(make_problem):
    problem = make_problem(2)
    model = MultipleKernelSVC(problem.views, max_iter=2)
    with pytest.warns(ConvergenceWarning, match="max_iter=2: relative gap"):
        model.fit(problem.X, problem.y)
    assert not model.certificate_.converged
    assert model.certificate_.gap > model.tol


@CLASSES
@pytest.mark.parametrize("signed", [True, False])
def test_transduction_labels_the_rows_without_labels(k, signed, make_problem):
    problem = make_problem(k, n=36, separation=4.0)
    views = problem.views[:2]
    y = np.where(np.arange(len(problem.y)) % 3 == 0, -1, problem.y)
    model = TransductiveKernelSVC(views, signed=signed, C=10, tol=1e-2)
    model.fit(problem.X, y)
    assert np.array_equal(model.transduction_[y >= 0], y[y >= 0])
    hidden = y < 0
    assert np.array_equal(model.transduction_[hidden], model.predict(problem.X)[hidden])
    # measured: 0.67 to 1
    assert np.mean(model.transduction_[hidden] == problem.y[hidden]) > 0.5
    assert_allclose(np.trace(model.kernel_), len(y), rtol=1e-9)
    assert np.linalg.eigvalsh(model.kernel_)[0] >= -1e-6 * len(y)
    assert np.all(model.dual_coef_[hidden] == 0)
    assert list(model.classes_) == list(range(k))


def as_objects(names, marker):
    """Strings (n,) with ``marker`` in place of "-1", as Python objects."""
    out = names.astype(object)
    out[names == "-1"] = marker
    return out


#: The same string labels in every form they may take; "-1" means unlabelled.
LABELS = {
    "strings": lambda names: names,
    "a list": lambda names: [-1 if name == "-1" else str(name) for name in names],
    "objects, -1": lambda names: as_objects(names, -1),
    "objects, -1.0": lambda names: as_objects(names, np.float64(-1)),
    "objects, '-1'": lambda names: as_objects(names, "-1"),
    "Series": lambda names: pd.Series(names),
    "Series of objects": lambda names: pd.Series(as_objects(names, -1), dtype=object),
    "Series of strings": lambda names: pd.Series(names, dtype="string"),
    "categories": lambda names: pd.Series(names, dtype="category"),
    "mixed categories": lambda names: pd.Series(
        as_objects(names, -1), dtype="category"
    ),
}


@pytest.mark.one_seed
@pytest.mark.parametrize("form", list(LABELS))
def test_transduction_takes_strings_with_minus_one_among_them(form, make_problem):
    problem = make_problem(4, n=20)
    codes = np.where(np.arange(20) % 5 == 0, -1, problem.y)
    plain = TransductiveKernelSVC(problem.views[:1], signed=False, tol=1e-2)
    expected = clone(plain).fit(problem.X, codes)
    names = np.array(["maybe", "never", "no", "yes"])  # in the order of the codes
    partly = np.where(codes < 0, "-1", names[codes])
    model = plain.fit(problem.X, LABELS[form](partly))
    assert list(model.classes_) == list(names)
    assert np.array_equal(model.transduction_, names[expected.transduction_])
    assert_allclose(model.dual_coef_, expected.dual_coef_)


@pytest.mark.parametrize("dtype", ["int8", "float32", "Int64", "Float64", "category"])
def test_transduction_takes_numbers_of_any_kind(dtype, make_problem):
    problem = make_problem(2, n=20)
    codes = np.where(np.arange(20) % 4 == 1, -1, problem.y)
    plain = TransductiveKernelSVC(problem.views[:1], signed=False, tol=1e-2)
    expected = clone(plain).fit(problem.X, codes)
    model = plain.fit(problem.X, pd.Series(codes).astype(dtype))
    assert np.array_equal(model.transduction_, expected.transduction_)


@pytest.mark.parametrize(
    "y",
    [[-1, 1] * 10, [-1] * 20, [-1, 3] * 10, ["-1", "1"] * 10, ["a", -1] * 10],
)
def test_transduction_without_two_classes_says_what_minus_one_means(y, make_problem):
    problem = make_problem(2, n=20)
    with pytest.raises(ValueError, match="'-1' mean unlabelled"):
        TransductiveKernelSVC(problem.views).fit(problem.X, y)


def test_transduction_with_all_labels_is_the_plain_machine(make_problem):
    problem = make_problem(2)
    one = TransductiveKernelSVC(problem.views, signed=False, tol=1e-9)
    other = MultipleKernelSVC(problem.views, tol=1e-9)
    one.fit(problem.X, problem.y)
    other.fit(problem.X, problem.y)
    assert_allclose(
        one.decision_function(problem.new),
        other.decision_function(problem.new),
        atol=1e-6,
    )


HARD_INPUT = {
    "huge": lambda X, y: (1e12 * X, y),
    "tiny": lambda X, y: (1e-12 * X, y),
    "twins": lambda X, y: (  # of opposite classes
        np.concatenate([X, X[:5]]),
        np.concatenate([y, 1 - y[:5]]),
    ),
    "unbalanced": lambda X, y: (X, (np.arange(len(y)) < 2).astype(int)),
}


@pytest.mark.one_seed
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@in_turn(
    change=[  # two for each of the six combinations of the others
        *("huge", "tiny", "twins", "twins", "unbalanced", "huge"),
        *("twins", "unbalanced", "huge", "unbalanced", "tiny", "twins"),
    ],
    parameters=[
        {"C": 1e10},
        {"C": 1e-6},
        {"margin": "l2", "C": 1e10},
        {"margin": "hard"},
        {"C": 1e10},
        {"margin": "hard"},
    ],
    signed=[False, True, True],
)
def test_hard_problems_end_with_an_honest_status(
    change, parameters, signed, make_problem
):
    problem = make_problem(2, n=18)
    X, y = HARD_INPUT[change](problem.X, problem.y)
    views = [("all", ["linear", "rbf"], slice(0, 6))]
    model = MultipleKernelSVC(views, signed=signed, **parameters)
    try:
        model.fit(X, y)
    except ValueError as error:
        assert parameters == {"margin": "hard"}
        assert "infeasible: " in str(error)
        return
    certificate = model.certificate_
    assert certificate.lower_bound <= certificate.value * (1 + 1e-6)
    assert certificate.converged == (abs(certificate.gap) <= model.tol)
    assert certificate.status.startswith(
        "optimal" if certificate.converged else "stopped"
    )
    assert np.all(np.isfinite(model.decision_function(X)))


@pytest.mark.one_seed
def test_newton_says_that_it_works_on_the_cpu(make_problem):
    torch = pytest.importorskip("torch")
    problem = make_problem(2)
    model = MultipleKernelSVC(problem.views, solver="newton")
    model.fit(torch.asarray(problem.X), problem.y)
    assert any("on the CPU" in remark for remark in model.certificate_.remarks)
