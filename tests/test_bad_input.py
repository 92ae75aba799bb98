"""Bad input and faults: one clear error or warning, or an unchanged answer."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score

from bad_input_cases import CASES, fitted
from estimators import (
    EXPLICIT,
    NOT_CONVERGED,
    ONE_EACH,
    SETTINGS,
    ask,
    every_estimator,
    in_turn,
    is_certified,
    kinds,
    of,
    output,
    some,
    takes,
    unless,
)
from kernelweave import (
    KernelAlignment,
    KernelFDA,
    MixtureKDA,
    MultipleKernelFDA,
    MultipleKernelRidge,
    _array,
)
from kernelweave.exceptions import KernelWarning, MemoryRefusedError
from kernelweave.kernels import RBF

#: Refusals do not depend on the settings; odd but valid data reach more of the code.
FITTED = (
    *ONE_EACH,
    "MultipleKernelFDA",
    "SubspaceKernel-uncorrelated",
)
every_setting = pytest.mark.parametrize("estimator", some(FITTED))

VIEWS = [("left", RBF(), [0, 1, 2]), ("right", ["linear", RBF()], [3, 4, 5])]
PLAIN = [("left", "linear", [0, 1, 2]), ("right", "linear", [3, 4, 5])]


def draw_table(rng):
    """40 rows of two classes, with six columns; 0 and 3 depend on the class."""
    y = np.tile([0, 1], 20)
    X = rng.normal(size=(40, 6))
    X[:, 0] += 2 * y
    X[:, 3] += y
    return X, y


def kernels_of(X):
    """Two linear kernels on such a table, (40, 40, 2)."""
    return np.stack([X[:, :3] @ X[:, :3].T, X[:, 3:] @ X[:, 3:].T], axis=-1)


@pytest.fixture
def table():
    """A fixed table for tests of messages, which do not depend on random draws."""
    return draw_table(np.random.default_rng(0))


@pytest.fixture
def stack(table):
    X, y = table
    return kernels_of(X), y


@pytest.fixture
def any_table(rng):
    """One table per seed, for tests of results."""
    return draw_table(rng)


@pytest.fixture
def any_stack(any_table):
    X, y = any_table
    return kernels_of(X), y


def with_views(estimator, views):
    return clone(estimator).set_params(views=views)


def assert_sane(model, X):
    """Finite weights in [0, 1] up to rounding, and finite predictions."""
    assert np.all(np.isfinite(model.kernel_weights_))
    assert np.all(model.kernel_weights_ >= 0)
    for name in ("loo_error_", "alpha_"):
        assert np.isfinite(getattr(model, name, 0.0))
    assert np.all(np.isfinite(output(model, X)))


#: Accuracy after a search, of alpha or of weights with the least leave-one-out error;
#: up to 4e-5 with 70 seeds.
SEARCHED = 1e-3


def assert_same_model(one, other, X_one, X_other=None, rtol=1e-6):
    """Equal predictions, and equal certificates where there are any."""
    X_other = X_one if X_other is None else X_other
    expected, found = output(one, X_one), output(other, X_other)
    assert_allclose(found, expected, rtol=rtol, atol=rtol * np.max(np.abs(expected)))
    if hasattr(one, "certificate_"):
        found, expected = other.certificate_, one.certificate_
        convex = expected.stationarity is None
        assert_allclose(found.value, expected.value, rtol=1e-8 if convex else rtol)


# Refusals -----------------------------------------------------------------------------


GROUPS = sorted({case.group for case in CASES})


def faults_of(case):
    """What is wrong with the messages of a case, by every estimator it concerns."""
    if not case.models:
        yield "applies to no estimator"
    for name in case.models:
        try:
            kind, message = case.refusal(name)
        except pytest.skip.Exception:  # it needs a library that is not installed
            return
        except AssertionError as accepted:
            yield str(accepted)
            continue
        if not issubclass(kind, case.error):
            yield f"{name}: {kind.__name__}: {message}"
        for words in case.words(name):
            if not (words and words in message):
                yield f"{name}: {words!r} not in {message!r}"
        if " at 0x" in message:
            yield f"{name}: an address in memory"


@pytest.mark.parametrize("group", GROUPS)
def test_messages(group):
    """What was found, where, and what to do; the cases of a group in one test."""
    cases = [case for case in CASES if case.group == group]
    faults = [f"{case.wrong}: {fault}" for case in cases for fault in faults_of(case)]
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("name", EXPLICIT)
@pytest.mark.parametrize("group", ["X as a whole", "Targets"])
def test_messages_are_the_same_with_explicit_features(group, name):
    for case in CASES:
        if case.group == group and all(
            meets(SETTINGS[name]) for meets in case.conditions
        ):
            kind, message = case.refusal(name)
            assert issubclass(kind, case.error), case.wrong
            assert [w for w in case.words(name) if w not in message] == [], message


def test_table_of_cases():
    """Cases have different names; the valid problem itself is accepted."""
    assert len({case.wrong for case in CASES}) == len(CASES) >= 150
    assert {name for case in CASES for name in case.models} == set(ONE_EACH)
    for form in ("views", "named", "precomputed"):
        for name in ONE_EACH:
            fitted(name, form)


def test_page_of_messages():
    """The page of the user guide is what its script writes."""
    script = Path(__file__).parents[1] / "docs" / "_scripts" / "error_messages.py"
    page = runpy.run_path(str(script))
    assert page["PAGE"].read_text(encoding="utf-8") == page["text"](), (
        "run docs/_scripts/error_messages.py"
    )


# Matrices that are not kernels --------------------------------------------------------


@every_setting
def test_clipping_must_be_asked_for(estimator, stack):
    K, y = stack
    K[:, :, 1] -= np.eye(len(y))
    model = with_views(estimator, "precomputed").set_params(psd="clip")
    with pytest.warns(KernelWarning, match=r"kernel_1.*indefinite.*clipping"):
        model.fit(K, y)
    assert_sane(model, K)
    assert any("kernel_1" in remark for remark in model.kernel_map_.remarks)
    if hasattr(model, "certificate_"):
        assert any("clipping" in remark for remark in model.certificate_.remarks)


@every_setting
def test_indefinite_within_rounding_is_noted(estimator, stack):
    K, y = stack
    exact = with_views(estimator, "precomputed").fit(K, y)
    K = K.copy()
    K[:, :, 1] -= 2e-7 * np.trace(K[:, :, 1]) / len(y) * np.eye(len(y))
    model = with_views(estimator, "precomputed").fit(K, y)
    (remark,) = model.kernel_map_.remarks
    assert "kernel_1" in remark and "was added to its diagonal" in remark
    if hasattr(model, "certificate_"):
        assert remark in model.certificate_.remarks
        assert remark in str(model.certificate_)
    assert_allclose(output(model, K), output(exact, K), atol=1e-4)


@every_setting
def test_asymmetric_within_rounding(estimator, stack):
    K, y = stack
    model = with_views(estimator, "precomputed")
    rounded = K.copy()
    rounded[3, 5, 1] += 1e-12
    assert_same_model(model.fit(K, y), clone(model).fit(rounded, y), K)


# Repeated, constant and badly scaled data ---------------------------------------------


@pytest.mark.one_seed
@every_setting
def test_duplicated_rows(estimator, any_table):
    X, y = any_table
    twice, labels = np.vstack([X, X]), np.concatenate([y, y])
    model = with_views(estimator, VIEWS).fit(twice, labels)
    assert_sane(model, X)
    if hasattr(model, "certificate_"):
        assert model.certificate_.converged, model.certificate_


@pytest.mark.parametrize("norm", [1, 2])
def test_duplicated_rows_keep_the_weights(any_table, norm):
    X, y = any_table
    once = MultipleKernelFDA(PLAIN, norm=norm, alpha=0.5, tol=1e-9, cv=None).fit(X, y)
    twice = clone(once).set_params(alpha=1.0)  # both the kernel sums and n are doubled
    twice.fit(np.vstack([X, X]), np.concatenate([y, y]))
    assert_allclose(twice.kernel_weights_, once.kernel_weights_, atol=1e-5)


@pytest.mark.parametrize("estimator", some(FITTED, is_certified))
def test_duplicated_kernels(estimator, any_stack):
    K, y = any_stack
    plain = with_views(estimator, "precomputed").fit(K, y)
    doubled = np.concatenate([K, 7.0 * K[:, :, :1]], axis=2)
    model = clone(plain).fit(doubled, y)
    assert_sane(model, doubled)
    assert model.certificate_.converged
    weights = model.kernel_weights_
    if isinstance(model, KernelAlignment):  # an active set keeps one of the two
        assert_allclose(weights[0] + weights[2], plain.kernel_weights_[0], rtol=1e-6)
    else:
        assert_allclose(weights[0], weights[2], rtol=1e-6)
    if isinstance(model, MixtureKDA):  # experts are not compared
        return
    remarks = " ".join(model.certificate_.remarks)
    assert "'kernel_0' and 'kernel_2' are the same up to scale" in remarks
    # (a copy changes the mean kernel, and with it the unit of C)
    if getattr(model, "norm_", None) == getattr(plain, "norm_", None) == 1:
        assert_allclose(
            model.certificate_.value, plain.certificate_.value, rtol=2 * model.tol
        )


@pytest.mark.one_seed
@every_setting
def test_constant_view(estimator, any_table):
    X, y = any_table
    X[:, 3:] = [1.0, -2.0, 1 / 3]
    model = with_views(estimator, VIEWS)
    with pytest.warns(KernelWarning) as caught:
        model.fit(X, y)
    (message,) = (str(warning.message) for warning in caught)  # one for the whole view
    assert "view 'right'" in message and "constant" in message and "weight 0" in message
    assert message in model.kernel_map_.remarks
    assert_allclose(model.kernel_weights_[1:], 0.0)
    assert model.view_weights_["right"] == 0.0
    assert_sane(model, X)
    alone = with_views(estimator, VIEWS[:1]).fit(X, y)
    assert_same_model(alone, model, X)


@every_setting
def test_constant_column(estimator, table):
    X, y = table
    X[:, 4] = 1 / 3
    model = with_views(estimator, None).fit(X, y)
    alone = with_views(estimator, None).fit(np.delete(X, 4, axis=1), y)
    assert_same_model(alone, model, np.delete(X, 4, axis=1), X)


@in_turn(estimator=some(FITTED), value=[0.0, 5.0, 1 / 3])
def test_kernel_without_content(estimator, value, stack):
    K, y = stack
    alone = with_views(estimator, "precomputed").fit(K[:, :, :1], y)
    K = K.copy()
    model = with_views(estimator, "precomputed")
    number = 0 if isinstance(model, MixtureKDA) else 1  # there each kernel is a view
    K[:, :, 1] = value
    wanted = rf"kernel {number} \('kernel_1'\).*constant.*weight 0"
    with pytest.warns(KernelWarning, match=wanted):
        model.fit(K, y)
    assert_allclose(model.kernel_weights_[1], 0.0)
    assert_sane(model, K)
    assert_same_model(alone, model, K[:, :, :1], K)
    if hasattr(model, "certificate_"):
        assert any("kernel_1" in remark for remark in model.certificate_.remarks)


@pytest.mark.one_seed
@in_turn(estimator=some(FITTED), power=[12, 150])
def test_scale_of_a_kernel(estimator, any_stack, power):
    K, y = any_stack
    one = with_views(estimator, "precomputed").fit(K, y)
    for scale in (10.0**power, 10.0**-power):
        scaled = K * np.array([1.0, scale])
        assert_same_model(one, clone(one).fit(scaled, y), K, scaled, SEARCHED)


@pytest.mark.one_seed
@in_turn(estimator=some(FITTED), scale=[1e6, 1e-6, 1e100])
def test_scale_of_a_view(estimator, any_table, scale):
    X, y = any_table
    views = [("left", "auto", [0, 1, 2]), ("right", ["linear", RBF()], [3, 4, 5])]
    one = with_views(estimator, views).fit(X, y)
    scaled = X * np.array([1.0, 1.0, 1.0, scale, scale, scale])
    assert_same_model(one, clone(one).fit(scaled, y), X, scaled, SEARCHED)


# Types --------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", some(FITTED, is_certified, tol=1e-6))
def test_float32(estimator, any_table):
    X, y = any_table
    X32 = X.astype(np.float32)
    model = with_views(estimator, VIEWS).fit(X32, y)
    wide = with_views(estimator, VIEWS).fit(X32.astype(np.float64), y)
    for name in ("kernel_weights_", "dual_coef_"):
        if hasattr(model, name):
            assert getattr(model, name).dtype == np.float32
            assert getattr(wide, name).dtype == np.float64
    certificate = model.certificate_
    assert certificate.converged
    assert isinstance(certificate.value, float)
    assert_allclose(certificate.value, wide.certificate_.value, rtol=1e-3)
    rounding = 1e-12 * abs(certificate.value)
    assert certificate.lower_bound <= certificate.value + rounding
    assert certificate.gap <= 1e-4
    if not isinstance(model, KernelAlignment | MixtureKDA):  # these need no search
        assert "tol=1e-04" in certificate.status


@in_turn(estimator=some(), dtype=[np.int8, np.int64, np.uint16, np.object_, np.bool_])
def test_other_types_of_numbers(estimator, dtype, table):
    X, y = table
    same = np.abs(np.round(4 * X)) if dtype is not np.bool_ else X > 0.5
    floats, same = same.astype(float), same.astype(dtype)
    expected = with_views(estimator, PLAIN).fit(floats, y)
    assert_same_model(expected, clone(expected).fit(same, y), floats, same)


HUGE = dict.fromkeys(("alpha", "norm", "noise"), 1e20)


@pytest.mark.parametrize(
    "model",
    some(
        ONE_EACH,
        lambda model: any(takes(name)(model) for name in HUGE),
        **HUGE,
    ),
)
def test_parameters_may_be_whole_numbers_of_more_than_64_bits(model, table):
    X, y = table
    model.set_params(views=PLAIN)
    given = [k for k, v in model.get_params(deep=False).items() if v == 1e20]
    same = clone(model).set_params(**dict.fromkeys(given, 10**20)).fit(X, y)
    assert_allclose(output(same, X), output(model.fit(X, y), X), rtol=1e-12)
    too_large = clone(model).set_params(**dict.fromkeys(given, 10**400))
    with pytest.raises(ValueError, match=r"parameter of .* must be .* got 1000"):
        too_large.fit(X, y)


@every_estimator
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.longdouble])
def test_parameters_may_be_numbers_of_numpy(estimator, dtype, table):
    X, y = table
    model = clone(estimator).set_params(views=PLAIN)
    exact = {"alpha": 0.5, "C": 0.5, "noise": 0.5, "tol": 0.125, "norm": 2.0}
    given = {k: v for k, v in exact.items() if takes(k)(model)}
    same = clone(model).set_params(**{k: dtype(v) for k, v in given.items()}).fit(X, y)
    model.set_params(**given).fit(X, y)
    assert_allclose(output(same, X), output(model, X), rtol=1e-12)


# Classes and rows ---------------------------------------------------------------------


@pytest.mark.one_seed
@pytest.mark.parametrize("estimator", some(FITTED, unless(MultipleKernelRidge)))
def test_class_with_one_member(estimator, any_table):
    X, y = any_table
    y = np.where(np.arange(len(y)) == 5, 2, y)
    model = with_views(estimator, VIEWS).fit(X, y)
    assert_sane(model, X)
    if hasattr(model, "predict_proba"):
        proba = model.predict_proba(X)
        assert proba.shape == (len(y), 3) and np.all(np.isfinite(proba))
        assert np.isfinite(model.loo_score_)


def test_class_with_one_member_in_cross_validation(table):
    X, y = table
    y = np.where(np.arange(len(y)) == 5, 2, y)
    model = MultipleKernelFDA(PLAIN, norm=1, alpha=0.1, cv=None)
    with pytest.warns(UserWarning, match="least populated class"):
        scores = cross_val_score(model, X, y, cv=4, error_score="raise")
    assert np.all(np.isfinite(scores))


@pytest.mark.one_seed
@in_turn(estimator=some(FITTED) * 2, n=[2, 3, 4])
def test_few_rows(estimator, any_table, n):
    X, y = any_table
    model = with_views(estimator, VIEWS).fit(X[:n], y[:n])
    assert_sane(model, X)
    assert len(output(model, X)) == len(X)
    if hasattr(model, "certificate_"):
        assert model.certificate_.converged


# Size ---------------------------------------------------------------------------------


@every_estimator
def test_memory_is_refused_before_it_is_taken(estimator, table, monkeypatch):
    X, y = table
    computed = []

    def kernel(X, Z):
        computed.append(X.shape)
        return X @ Z.T

    views = [("left", [kernel, kernel], [0, 1, 2]), ("right", kernel, [3, 4, 5])]
    held = 2 if isinstance(estimator, MixtureKDA) else 3  # one view's kernels at a time
    needed, free = (held + 4) * 40 * 40 * 8, 40 * 40 * 8  # one matrix, for no kernel
    monkeypatch.setattr(_array, "_host_bytes", lambda: free)
    model = with_views(estimator, views)
    if takes("n_features")(model):  # "auto" would switch to features
        model.set_params(features="exact")
    with pytest.raises(MemoryRefusedError) as caught:
        model.fit(X, y)
    message = str(caught.value)
    assert f"{needed:,} bytes" in message and f"{free:,} bytes" in message
    assert f"{held} kernels over 40 rows" in message
    assert "fewer kernels or rows" in message and "float32" in message
    assert not computed
    monkeypatch.setattr(_array, "_host_bytes", lambda: needed)
    with_views(estimator, views).fit(X, y)


# Shapes and names ---------------------------------------------------------------------


def test_as_many_kernels_as_rows_are_read_as_kernels_last(rng):
    X = rng.normal(size=(6, 6))
    y = np.array([0, 1, 0, 1, 0, 1])
    K = np.stack([np.outer(column, column) for column in X.T], axis=-1)
    model = KernelFDA("precomputed", alpha=0.1, cv=None).fit(K, y)
    table = KernelFDA([(f"v{j}", "linear", [j]) for j in range(6)], alpha=0.1, cv=None)
    assert_allclose(model.transform(K), table.fit(X, y).transform(X), atol=1e-10)


# Parameters and limits ----------------------------------------------------------------


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("alpha", [0.01, "learn"])
@pytest.mark.parametrize("kind", kinds(of(MultipleKernelFDA, MultipleKernelRidge)))
def test_max_iter(kind, any_table, norm, alpha):
    X, y = any_table
    model = with_views(kind(norm=norm, alpha=alpha), VIEWS)
    best = clone(model).set_params(tol=1e-10).fit(X, y).certificate_
    model.set_params(max_iter=1)
    wanted = r"stopped at max_iter=1: relative gap .*, not 1e-06"
    with pytest.warns(ConvergenceWarning, match=wanted):
        model.fit(X, y)
    certificate = model.certificate_
    assert not certificate.converged
    assert "optimal" not in certificate.status and "max_iter=1" in certificate.status
    assert certificate.gap > 1e-6
    # The bounds are valid: the optimum lies between them.
    assert certificate.lower_bound <= best.value * (1 + 1e-9)
    assert certificate.value >= best.lower_bound * (1 - 1e-9)
    gap = (certificate.value - certificate.lower_bound) / abs(certificate.value)
    assert_allclose(certificate.gap, gap)
    assert_sane(model, X)


@pytest.mark.parametrize("name", NOT_CONVERGED)
def test_max_iter_of_every_search(name, any_table):
    X, y = any_table
    model = with_views(SETTINGS[name], VIEWS)
    best = clone(model).set_params(tol=1e-9).fit(X, y).certificate_
    model.set_params(**NOT_CONVERGED[name])
    with pytest.warns(ConvergenceWarning, match="stopped at max_iter=1"):
        model.fit(X, y)
    certificate = model.certificate_
    assert not certificate.converged and "optimal" not in certificate.status
    assert certificate.gap > model.tol
    slack = 1e-8 * abs(best.value)
    assert certificate.lower_bound <= best.value + slack
    assert certificate.value >= best.lower_bound - slack
    assert_sane(model, X)


# Memory layout and libraries ----------------------------------------------------------


@every_estimator
def test_sparse(estimator, table):
    """Every format is read; a model takes new rows in the other form as well."""
    X, y = table
    model = with_views(estimator, VIEWS).fit(X, y)
    expected = output(model, X)
    for kind in (sparse.csr_array, sparse.csc_matrix, sparse.coo_array):
        assert_allclose(output(model, kind(X)), expected, rtol=1e-6, atol=1e-8)
    thin = clone(model).fit(kind(X), y)
    for rows in (X, kind(X)):
        assert_allclose(output(thin, rows), expected, rtol=1e-4, atol=1e-5)


def layouts(array, path):
    """The same numbers in other memory layouts and containers: three and three."""
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]))
    wide[..., ::2] = array
    np.save(path, array)
    frozen = array.copy()
    frozen.flags.writeable = False
    return [
        np.asfortranarray(array),
        wide[..., ::2],
        np.load(path, mmap_mode="r"),
        array[::-1].copy()[::-1],
        array.tolist(),
        frozen,
    ]


@in_turn(estimator=some(), precomputed=[True, False], turn=[0, 0, 1, 1])
def test_memory_layout(estimator, table, stack, precomputed, turn, tmp_path):
    X, y = stack if precomputed else table
    model = with_views(estimator, "precomputed" if precomputed else VIEWS)
    expected = clone(model).fit(X, y)
    for other in layouts(X, tmp_path / "X.npy")[turn::2]:
        kept = np.array(other)
        assert_same_model(expected, clone(model).fit(other, y), X, other, rtol=1e-7)
        assert np.array_equal(np.asarray(other), kept), "the input was changed"


@pytest.mark.one_seed
@in_turn(estimator=some(FITTED), precomputed=[False, True])
def test_torch_needs_no_switch(estimator, any_table, any_stack, precomputed):
    torch = pytest.importorskip("torch")
    X, y = any_stack if precomputed else any_table
    model = with_views(estimator, "precomputed" if precomputed else VIEWS)
    expected = clone(model).fit(X, y)
    tensor = torch.from_numpy(X)
    found = clone(model).fit(tensor, torch.from_numpy(y))
    assert isinstance(ask(found, tensor), torch.Tensor)
    assert_same_model(expected, found, X, tensor)


@every_estimator
def test_fitted_elsewhere(estimator, table):
    torch = pytest.importorskip("torch")
    X, y = table
    tensor = torch.from_numpy(X)
    with pytest.raises(ValueError, match=r"fitted on .*torch.*but X is .*numpy"):
        output(with_views(estimator, VIEWS).fit(tensor, y), X)


@every_estimator
def test_mixed_devices(estimator, table):
    strict = pytest.importorskip("array_api_strict")
    X, y = table
    here = strict.asarray(X, device=strict.Device("CPU_DEVICE"))
    there = strict.asarray(X, device=strict.Device("device1"))
    model = with_views(estimator, VIEWS).fit(here, y)
    with pytest.raises(ValueError, match=r"fitted on .*CPU_DEVICE.*X is .*device1"):
        output(model, there)
    # everything follows X, wherever y comes from
    moved = clone(model).fit(there, strict.asarray(y))
    assert ask(moved, there).device == there.device
    assert_same_model(model, moved, here, there)
