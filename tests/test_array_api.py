"""The estimators give the same results on other array libraries as on NumPy arrays."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone, is_classifier

from estimators import (
    EXPLICIT,
    ONE_EACH,
    OWN_WAYS,
    ask,
    documented,
    every_estimator,
    in_turn,
    is_certified,
    some,
    unless,
)
from kernelweave import KernelFDA, MultipleKernelRidge, SubspaceKernelSVC
from kernelweave._array import device, namespace, to_numpy
from kernelweave.kernels import RBF, Chi2, Cosine, Laplacian, Linear, Polynomial

#: Solved to many digits, so that results can be compared between libraries.
TIGHT = (
    *ONE_EACH,
    "MultipleKernelFDA-l2-learn",
    "MultipleKernelSVC-learn",
    "KernelAlignment-features",
)
OTHERS = (
    "KernelFDA-fixed",
    "MultipleKernelFDA",
    "MultipleKernelFDA-closed",
    "MultipleKernelFDA-cutting",
    "SubspaceKernelSVC-plain",
)
COLUMNS = some(TIGHT, unless(SubspaceKernelSVC), tol=1e-9, n_components=2)
COLUMNS += some(("SubspaceKernelSVC-fixed", *OTHERS))  # these are slow to gain digits
CHEAP = [param for param in COLUMNS if param.id in ONE_EACH]

# Kernels that differ enough for their weights to be determined to many digits.
VIEWS = [
    ("left", [RBF(), Laplacian(0.05)], [0, 1, 2]),
    ("right", [Linear(), RBF(2.0)], slice(3, 6)),
]


@pytest.fixture
def data(rng):
    """Three classes, six columns; a training and a test part."""
    y = np.arange(36) % 3
    X = rng.normal(size=(36, 6))
    X[:, 0] += 2 * (y == 1)
    X[:, 3] -= 2 * (y == 2)
    return X[:27], y[:27], X[27:]


def methods_of(model):
    names = ("transform", "decision_function", "predict_proba", "predict_log_proba")
    return [name for name in (*names, "predict") if hasattr(model, name)]


def assert_home(found, like, dtype=None):
    assert namespace(found) is namespace(like)
    assert device(found) == device(like)
    assert dtype is None or found.dtype == dtype


@in_turn(
    estimator=CHEAP,
    other_backend=["torch", "array_api_strict"],
    indirect=["other_backend"],
)
def test_float64_equals_numpy(estimator, data, other_backend):
    check_equals_numpy(estimator, VIEWS, data, other_backend)


@in_turn(
    estimator=[param for param in COLUMNS if param not in CHEAP],
    other_backend=["torch", "array_api_strict"],
    indirect=["other_backend"],
)
def test_float64_equals_numpy_in_other_settings(estimator, data, other_backend):
    check_equals_numpy(estimator, VIEWS, data, other_backend)


@in_turn(
    estimator=CHEAP,
    other_backend=["array_api_strict", "torch"],
    indirect=["other_backend"],
)
def test_float64_kernels_equal_numpy(estimator, data, other_backend):
    """Kernels are read in the same way whatever the other settings are."""
    X, y, new = data
    X, new = (
        np.stack([A[:, c : c + 2] @ X[:, c : c + 2].T for c in (0, 2, 4)], axis=-1)
        for A in (X, new)
    )
    check_equals_numpy(estimator, "precomputed", (X, y, new), other_backend)


def check_equals_numpy(estimator, views, data, other_backend):
    X, y, new = data
    expected = clone(estimator).set_params(views=views).fit(X, y)
    there, new_there = other_backend.asarray(X), other_backend.asarray(new)
    # results follow X, in library and dtype, whatever y is
    model = clone(expected).fit(there, other_backend.asarray(y, "int64"))
    atol = 1e-7
    if model.C is not None:
        atol = 1e-4  # functions are accurate to the square root of the gap, 1e-9
    weights = model.kernel_weights_
    assert_home(weights, there, there.dtype)
    assert_allclose(to_numpy(weights), expected.kernel_weights_, atol=atol)
    if hasattr(model, "alpha_"):
        assert_allclose(model.alpha_, expected.alpha_, rtol=1e-6)
    if hasattr(expected, "certificate_"):
        assert_allclose(
            model.certificate_.value,
            expected.certificate_.value,
            rtol=1e-9,
        )
        assert model.certificate_.converged == expected.certificate_.converged
    for name in methods_of(model):
        found, wanted = getattr(model, name)(new_there), getattr(expected, name)(new)
        assert_home(found, there)
        assert_allclose(
            to_numpy(found), wanted, rtol=10 * atol, atol=atol * np.abs(wanted).max()
        )
    if hasattr(model, "score"):
        assert model.score(new_there, expected.predict(new)) > 1 - 1e-6


@in_turn(
    estimator=some(),
    other_backend=["array_api_strict", "torch"],
    indirect=["other_backend"],
)
def test_float32_stays_float32(estimator, data, other_backend):
    X, y, new = data
    there = other_backend.asarray(X, "float32")
    new_there = other_backend.asarray(new, "float32")
    views = [("left", RBF(), [0, 1, 2]), ("right", Linear(), [3, 4, 5])]
    model = clone(estimator).set_params(views=views).fit(there, y)
    for attribute in ("kernel_weights_", "dual_coef_"):
        if hasattr(model, attribute):
            assert_home(getattr(model, attribute), there, there.dtype)
    expected = clone(model).fit(X, y)
    for name in methods_of(model):
        found = getattr(model, name)(new_there)
        assert_home(found, there)
        if name != "predict" or isinstance(model, MultipleKernelRidge):
            assert found.dtype == there.dtype
    transform = "transform" if hasattr(model, "transform") else "predict"
    wanted = getattr(expected, transform)(new)
    found = to_numpy(getattr(model, transform)(new_there))
    # What the guide promises for float32; measured: up to 4e-5.
    assert_allclose(found, wanted, atol=1e-3 * np.abs(wanted).max())


@in_turn(
    estimator=some(ONE_EACH, is_certified, tol=1e-6),
    other_backend=["array_api_strict", "torch"],
    indirect=["other_backend"],
)
def test_certificate_of_float32_is_float64(estimator, data, other_backend):
    X, y, _ = data
    there = other_backend.asarray(X, "float32")
    views = [("left", RBF(), [0, 1, 2]), ("right", Linear(), [3, 4, 5])]
    model = clone(estimator).set_params(views=views).fit(there, y)
    certificate = model.certificate_
    assert certificate.converged, certificate
    for name in ("value", "lower_bound", "gap"):
        assert type(getattr(certificate, name)) is float
    exact = clone(model).fit(np.asarray(X, dtype=np.float32).astype(float), y)
    assert_allclose(certificate.value, exact.certificate_.value, rtol=1e-3)
    assert -1e-9 < certificate.gap <= 1e-4
    # Sums in float32 could not produce these digits.
    assert float(np.float32(certificate.value)) != certificate.value


@every_estimator
def test_single_and_double_views_mix_to_double(estimator, data):
    pd = pytest.importorskip("pandas")
    X, y, _ = data
    frame = pd.DataFrame(X, columns=list("abcdef"))
    frame[["a", "b", "c"]] = frame[["a", "b", "c"]].astype(np.float32)
    views = [("left", "rbf", ["a", "b", "c"]), ("right", "rbf", ["d", "e", "f"])]
    model = clone(estimator).set_params(views=views).fit(frame, y)
    assert model.kernel_weights_.dtype == np.float64


@in_turn(
    estimator=some(),
    other_backend=["array_api_strict", "torch"],
    indirect=["other_backend"],
)
def test_prediction_takes_the_dtype_of_the_fit(estimator, data, other_backend):
    X, y, new = data
    views = [("left", RBF(), [0, 1, 2]), ("right", Linear(), [3, 4, 5])]
    model = clone(estimator).set_params(views=views)
    model.fit(other_backend.asarray(X), y)
    predict = getattr(model, "predict", None) or model.transform
    single = predict(other_backend.asarray(new, "float32"))
    double = predict(other_backend.asarray(new))
    assert single.dtype == double.dtype
    assert_allclose(to_numpy(single), to_numpy(double), atol=1e-4)


@in_turn(
    estimator=some(ONE_EACH, is_classifier),
    other_backend=["array_api_strict", "torch"],
    indirect=["other_backend"],
)
def test_text_labels_come_back_in_numpy(estimator, data, other_backend):
    X, y, new = data
    names = np.array(["a", "b", "c"])
    model = clone(estimator).set_params(views=[("all", RBF(), slice(None))])
    model.fit(other_backend.asarray(X), names[y])
    labels = model.predict(other_backend.asarray(new))
    assert isinstance(labels, np.ndarray) and labels.dtype == names.dtype


@pytest.mark.parametrize(
    "dtype", ["uint16", "uint64", "ulonglong", ">i4", "longdouble", "datetime64[D]"]
)
def test_labels_have_the_type_of_those_given(dtype, data, other_backend):
    X, y, new = data
    labels = y.astype(np.int64).astype(dtype)
    model = KernelFDA(VIEWS, alpha=0.1, cv=None)
    expected = clone(model).fit(X, labels).predict(new)
    assert expected.dtype == labels.dtype
    model.fit(other_backend.asarray(X), labels)
    found = to_numpy(model.predict(other_backend.asarray(new)))
    native = labels.dtype.newbyteorder("=")  # other libraries have no byte orders
    assert found.dtype == native and np.array_equal(found, expected)


KERNELS = [RBF(), Chi2(), Cosine(), Laplacian(), Polynomial(2), "auto"]


@pytest.mark.parametrize("estimator", some((*ONE_EACH, *EXPLICIT)))
def test_rows_with_gradients_leave_their_graph(estimator, data):
    torch = pytest.importorskip("torch")
    X, y, new = (torch.asarray(part) for part in data)
    model = clone(estimator).set_params(views=VIEWS)
    expected = ask(clone(model).fit(X, y), new)
    found = ask(model.fit(X.clone().requires_grad_(), y), new.clone().requires_grad_())
    assert not found.requires_grad and torch.equal(found, expected)


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_kernels(kernel, data, other_backend):
    X, y, new = (np.abs(a) for a in data)
    model = KernelFDA([("all", kernel, slice(None))], alpha=0.1, cv=None)
    expected = clone(model).fit(X, y).transform(new)
    model.fit(other_backend.asarray(X), y)
    found = model.transform(other_backend.asarray(new))
    assert_allclose(to_numpy(found), expected, rtol=1e-8, atol=1e-10)


def test_callable_may_leave_the_library(data, other_backend):
    def through_numpy(X, Z):
        return to_numpy(X) @ to_numpy(Z).T

    X, y, new = data
    views = [("all", through_numpy, slice(None))]
    expected = KernelFDA([("all", Linear(), slice(None))], alpha=0.1, cv=None).fit(X, y)
    model = KernelFDA(views, alpha=0.1, cv=None).fit(other_backend.asarray(X), y)
    found = model.transform(other_backend.asarray(new))
    assert_allclose(to_numpy(found), expected.transform(new), rtol=1e-8, atol=1e-10)


@in_turn(
    estimator=some(
        [
            *ONE_EACH,
            *OWN_WAYS,
            *EXPLICIT,
            "MultipleKernelFDA",
            "KernelAlignment-features",
        ]
    ),
    other_backend=["torch", "array_api_strict"],
    indirect=["other_backend"],
)
def test_attributes_are_what_the_docstring_says(estimator, other_backend, data):
    """An "array" is in the namespace of X, an "ndarray" NumPy's."""
    X, y, _ = (other_backend.asarray(part) for part in data)
    model = clone(estimator).set_params(views=VIEWS).fit(X, y)
    sizes = {"n": 27, "d": 6, "p": 4, "k": 3, "k - 1": 2, "n_outputs": 1}
    kinds = dict(documented(model))
    own = {name for name in vars(model) if name.endswith("_")} - {"kernel_map_"}
    assert own <= kinds.keys()
    for name in own:
        kind, found = kinds[name], getattr(model, name)
        if not hasattr(found, "shape"):
            assert "array" not in kind or kind.startswith(f"{type(found).__name__} or ")
            continue
        assert isinstance(found, np.ndarray) == ("ndarray" in kind), name
        shapes = re.findall(r"\(([^()]+?),?\)", kind)
        stated = [[sizes.get(one) for one in shape.split(", ")] for shape in shapes]
        assert not stated or any(
            len(found.shape) == len(shape)
            and all(a in (None, b) for a, b in zip(shape, found.shape, strict=True))
            for shape in stated
        ), (name, kind, found.shape)
