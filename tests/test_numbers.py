"""Columns far from zero and numbers of any size give the same answers as ordinary ones.

An offset or a unit of measurement must not change a model's answers. Entries are
multiples of 1/1024, so the offsets used here lose none of their digits, and any change
is due to the computation.
"""

from __future__ import annotations

import functools
import warnings

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import is_classifier, is_regressor
from sklearn.exceptions import ConvergenceWarning

from estimators import ONE_EACH, has, in_turn, is_certified, kinds, lacks, some, takes
from kernelweave import (
    KernelAlignment,
    KernelFDA,
    MixtureKDA,
    MultipleKernelFDA,
    MultipleKernelRidge,
    MultipleKernelSVC,
    ProbabilisticKDA,
)
from kernelweave._array import CHUNK_ENTRIES
from kernelweave.exceptions import KernelWarning
from kernelweave.kernels import RBF, Polynomial
from kernelweave.kernels.features.recipe import far_origin
from kernelweave.kernels.moments import CHUNK_ROWS

ESTIMATORS = kinds()
every_estimator = pytest.mark.parametrize("make", ESTIMATORS)


def product(X, Z):
    """A linear kernel as an opaque function: its columns are not shifted or scaled."""
    return X @ Z.T


VIEWS = {
    "linear": [("a", "linear", [0, 1]), ("b", "linear", [2, 3])],
    "mixed": [("a", ["linear", "rbf"], [0, 1]), ("b", ["linear", "laplacian"], [2, 3])],
    "auto": None,
}
#: Relative to the largest output. Nearly all agree to 1e-12; the interior-point method
#: of the transductive problem stops at a gap, and its answer moved by up to 3e-9.
RTOL = 1e-7


@functools.cache
def table(seed=0):
    """40 rows of two classes, 20 new rows, an output, and labels of all 60 rows."""
    rng = np.random.default_rng(seed)
    labels = np.arange(60) % 2
    X = rng.normal(size=(60, 4))
    X[:, 0] += 2 * labels
    X = np.round(1024 * X) / 1024
    y = X[:, 0] * X[:, 1] + X[:, 2]
    return X[:40], X[40:], y[:40], labels


def outputs(model, X):
    """The output of a model for rows, checked to be finite."""
    names = ("decision_function", "transform", "predict")
    found = getattr(model, next(name for name in names if hasattr(model, name)))(X)
    assert np.all(np.isfinite(found))
    return np.asarray(found)


@functools.cache
def reference(make, views, seed=0, dtype="float64"):
    X, new, _, labels = table(seed)
    model = make(VIEWS[views]).fit(X.astype(dtype), labels[:40])
    return outputs(model, new.astype(dtype)), np.asarray(label_of(model, new, dtype))


def label_of(model, new, dtype="float64"):
    return model.predict(new.astype(dtype)) if hasattr(model, "predict") else []


def assert_close(found, expected, rtol=RTOL):
    assert_allclose(found, expected, rtol=0, atol=rtol * np.abs(expected).max())


# Offsets ------------------------------------------------------------------------------


@in_turn(make=ESTIMATORS, views=list(VIEWS))
def test_columns_far_from_zero(make, views, global_random_seed):
    X, new, _, labels = table(global_random_seed)
    expected, classes = reference(make, views, global_random_seed)
    model = make(VIEWS[views]).fit(X + 1e9, labels[:40])
    assert_close(outputs(model, new + 1e9), expected)
    if not isinstance(model, MultipleKernelRidge):
        assert_array_equal(label_of(model, new + 1e9), classes)


@pytest.mark.measured
@every_estimator
def test_columns_far_from_zero_in_single_precision(make, global_random_seed):
    """Compared with no offset, also in float32."""
    X, new, _, labels = table(global_random_seed)
    X, new = X.astype(np.float32), new.astype(np.float32)
    far, far_new = X + np.float32(1e3), new + np.float32(1e3)
    assert_array_equal(far - np.float32(1e3), X)
    expected, _ = reference(make, "linear", global_random_seed, "float32")
    model = make(VIEWS["linear"]).fit(far, labels[:40])
    # What the guide promises for float32; measured: up to 7e-7.
    assert_close(outputs(model, far_new), expected, 1e-3)


def test_a_column_of_seconds_is_not_constant():
    """A time stamp in seconds, spread over about an hour, separates the classes."""
    rng = np.random.default_rng(0)
    y = np.arange(300) % 2
    time = 1.7e9 + np.round(600 * rng.normal(size=300) + 1800 * y)
    X = np.column_stack([time, rng.normal(size=300)])
    views = [("time", "linear", [0]), ("other", "linear", [1])]
    model = MultipleKernelFDA(views, cv=None).fit(X[:200], y[:200])
    # Two normal classes 3 deviations apart: 0.933 at best; measured: 0.97
    assert model.score(X[200:], y[200:]) > 0.88
    # measured: 1
    assert model.view_weights_["time"] > 0.9


@every_estimator
def test_a_linear_kernel_is_the_product_of_its_columns(make, global_random_seed):
    """Moving the origin changes nothing; for a function as kernel it is not moved."""
    X, new, _, labels = table(global_random_seed)
    X, new = X + 3.0, new + 3.0
    found = [
        outputs(make([("a", kernel, [0, 1]), ("b", kernel, [2, 3])]).fit(X, y), new)
        for kernel in ("linear", product)
        for y in (labels[:40],)
    ]
    assert_close(found[0], found[1])


def test_posterior_weights_compare_rows_by_the_kernel_as_it_is_defined():
    """The cosine of two rows depends on the origin, which must stay at zero."""
    X, new, _, labels = table()
    found = [
        MixtureKDA(
            [("a", kernel, [0, 1]), ("b", kernel, [2, 3])], projection="posterior"
        )
        .fit(X + 1.0, labels[:40])
        .predict_proba(new + 1.0)
        for kernel in ("linear", product)
    ]
    assert_close(found[0], found[1], 1e-10)


def test_variances_come_with_the_kernel_as_it_is_computed():
    X, new, _, labels = table()
    given = np.sum((new + 3.0) ** 2, axis=1)
    found = []
    for kernel in ("linear", product):
        model = ProbabilisticKDA([("a", kernel, slice(None))]).fit(X + 3.0, labels[:40])
        found += [
            model.predict_distribution(new + 3.0),
            model.predict_distribution(new + 3.0, diagonal=given),
        ]
    for mean, variance in found[1:]:
        assert_close(mean, found[0][0])
        assert_close(variance, found[0][1])


@pytest.mark.parametrize("features", ["exact", "nystroem"])
@pytest.mark.parametrize("dtype, offset", [("float64", 1e9), ("float32", 2e3)])
def test_sparse_columns_far_from_zero(features, dtype, offset):
    X, new, _, labels = table()
    options = {"features": features, "n_features": 8, "cv": None}
    found = []
    for shift in (0.0, offset):
        rows, others = (
            sparse.csr_array((part + shift * np.array([1, 0, 0, 1])).astype(dtype))
            for part in (X, new)
        )
        model = MultipleKernelFDA(VIEWS["linear"], **options).fit(rows, labels[:40])
        found.append(outputs(model, others))
    # measured: up to 1.2e-7 in float32
    assert_close(found[1], found[0], 1e-9 if dtype == "float64" else 1e-5)


def test_columns_with_many_zeros_are_not_moved():
    """However large their other entries are, so that sparse rows stay sparse."""
    X = np.random.default_rng(0).normal([0.0, 1e6, 1e6], size=(200, 3))
    X[:2, 1] = 0.0  # one row in a hundred
    assert_array_equal(far_origin(X) != 0, [False, False, True])
    assert_allclose(far_origin(1e300 * X / 1e6)[2], 1e300 * X[:, 2].mean() / 1e6)


# Digits that centring cancels ---------------------------------------------------------


CERTIFIED = (
    *ONE_EACH,
    "MultipleKernelFDA-l2-learn",
    "MultipleKernelSVC-learn",
    "MixtureKDA-stacking",
)


@in_turn(
    model=[
        *some(CERTIFIED, is_certified, views="precomputed", tol=1e-6),
        MixtureKDA("precomputed", weights="shared"),
    ],
    share=[1e-6, 1e-10],
)
def test_the_bounds_allow_for_digits_lost_in_centring(model, share):
    """``1 + e K`` is the same kernel, rounded to 16 digits of which few are left."""
    X, _, _, labels = table()
    K = np.stack([RBF(0.3)(X[:, :2]), RBF(0.3)(X[:, 2:])], axis=-1)
    exact = model.fit(K, labels[:40]).certificate_
    assert not any("digits" in remark for remark in exact.remarks)
    assert "digits" not in exact.status
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = model.fit(1.0 + share * K, labels[:40]).certificate_
    assert found.lower_bound < exact.lower_bound <= exact.value < found.value
    assert 1e-16 / share < found.gap < 3e-11 / share  # measured: up to 2.2e-11
    digits = round(-np.log10(share))
    assert f"centring cancelled {digits} of the 16 digits" in found.remarks[0]
    assert found.status.endswith(f"digits lost in centring widen it to {found.gap:.1e}")
    if found.tol is not None:
        assert found.converged == (found.gap <= found.tol)
        word = "nearly optimal: " if found.gap <= 1e-2 else "uncertain: "
        assert found.status.startswith("optimal: " if found.converged else word)
    assert bool(caught) == (found.gap > 1e-2)
    for warning in caught:
        assert issubclass(warning.category, KernelWarning)
        assert "subtract a constant from the features" in str(warning.message)


NEARLY_CONSTANT = {
    "MultipleKernelFDA": MultipleKernelFDA("precomputed", norm=1, alpha=0.01, cv=None),
    "MultipleKernelSVC": MultipleKernelSVC("precomputed"),
    "KernelAlignment": KernelAlignment("precomputed"),
}


def five_kernels():
    """Kernels of five columns, (40, 40, 5), and two classes that the first tells."""
    rng = np.random.default_rng(0)
    Z, y = rng.normal(size=(40, 5)), np.arange(40) % 2
    Z[:, 0] += y
    return np.stack([RBF(1.0)(Z[:, [i]]) for i in range(5)], axis=-1), y


@pytest.mark.filterwarnings("ignore")
@in_turn(name=list(NEARLY_CONSTANT))
def test_nearly_constant_kernels_are_judged_by_one_rule(name):
    """``1 + 1e-10 K`` was refused as indefinite, 1e-11 and 1e-12 were "optimal"."""
    K, y = five_kernels()
    before = 0.0
    for share in (1e-8, 1e-9, 1e-10, 1e-11, 1e-12):
        found = NEARLY_CONSTANT[name].fit(1 + share * K, y).certificate_
        assert not found.converged and not found.status.startswith("optimal")
        assert found.gap > before
        before = found.gap
    for share in (1e-13, 1e-14, 1e-15):
        with pytest.raises(ValueError, match="every kernel is constant"):
            NEARLY_CONSTANT[name].fit(1 + share * K, y)


def test_a_wide_gap_says_what_happened_and_what_to_do():
    """It was "optimal" and converged, with a gap of 0.21 and tol=1e-6."""
    K, y = five_kernels()
    wanted = r"uncertain: .*digits lost in centring widen it to .*subtract a constant"
    with pytest.warns(KernelWarning, match=wanted):
        KernelAlignment("precomputed").fit(1 + 1e-12 * K, y)
    with pytest.warns(ConvergenceWarning, match="stopped: .*subtract a constant"):
        NEARLY_CONSTANT["MultipleKernelFDA"].fit(1 + 1e-12 * K, y)
    found = KernelAlignment("precomputed").fit(1 + 1e-8 * K, y).certificate_
    assert found.status.startswith("nearly optimal: ") and found.caution is None
    several = MultipleKernelSVC("precomputed", C=1.0)
    with pytest.warns(KernelWarning, match="uncertain: "):
        several.fit(1 + 1e-11 * K, np.arange(40) % 3)


def test_lost_digits_count_as_often_as_their_rows():
    X, _, _, labels = table()
    K = 1e8 + RBF(0.3)(X)
    gaps = [
        MultipleKernelFDA("precomputed", alpha=0.1, cv=None)
        .fit(K, labels[:40], sample_weight=np.full(40, weight))
        .certificate_.gap
        for weight in (1.0, 10.0)
    ]
    assert gaps[1] > 5 * gaps[0]


def test_a_kernel_that_lost_digits_is_still_a_kernel():
    X, new, _, labels = table()
    K, cross = (RBF(0.3)(rows, X) for rows in (X, new))
    expected = outputs(KernelFDA("precomputed", cv=None).fit(K, labels[:40]), cross)
    model = KernelFDA("precomputed", cv=None).fit(1e12 + K, labels[:40])
    assert_close(outputs(model, 1e12 + cross), expected, 1e-2)  # measured: 9e-4
    assert any("cancelled 12 of the 16" in text for text in model.kernel_map_.remarks)


# Any size -----------------------------------------------------------------------------

#: The ends of the range, and on either side a size whose squares leave or nearly
#: leave it.
SCALES = [1e-300, 1e-160, 1e150, 1e300]


@in_turn(make=ESTIMATORS, views=["mixed", "auto", "auto"], scale=SCALES)
def test_columns_of_any_size(make, views, scale):
    X, new, _, labels = table()
    expected, classes = reference(make, views)
    model = make(VIEWS[views]).fit(X * scale, labels[:40])
    assert_close(outputs(model, new * scale), expected)
    if not isinstance(model, MultipleKernelRidge):
        assert_array_equal(label_of(model, new * scale), classes)


@pytest.mark.parametrize("make", kinds(takes("cv"), cv=2, norm=2))
def test_folds_of_columns_of_any_size(make):
    X, new, y, labels = table()
    y = y if is_regressor(make()) else labels[:40]
    model = make(VIEWS["mixed"])
    expected, score = outputs(model.fit(X, y), new), model.cv_score_
    for change in (lambda rows: 1e300 * rows, lambda rows: rows + 1e9):
        model.fit(change(X), y)
        assert_close(outputs(model, change(new)), expected)
        assert model.cv_score_ == pytest.approx(score)


@in_turn(make=ESTIMATORS, scale=[1e-30, 1e30])
def test_columns_of_any_size_in_single_precision(make, scale):
    X, new, _, labels = table()
    expected, _ = reference(make, "linear", 0, "float32")
    X, new = (rows.astype(np.float32) * np.float32(scale) for rows in (X, new))
    model = make(VIEWS["linear"]).fit(X, labels[:40])
    # measured: up to 7e-7, and 1.4e-4 where linear algebra rounds differently
    assert_close(outputs(model, new), expected, 1e-3)


@in_turn(make=ESTIMATORS, scale=[1e-300, 1e300])
def test_precomputed_kernels_of_any_size(make, scale):
    X, new, _, labels = table()
    K, cross = (np.stack([rows @ X.T, RBF(0.3)(rows, X)], axis=-1) for rows in (X, new))
    expected = outputs(make("precomputed").fit(K, labels[:40]), cross)
    model = make("precomputed").fit(scale * K, labels[:40])
    assert_close(outputs(model, scale * cross), expected)


#: The first with the choice of a norm, which does not depend on how rows are kept.
REPRESENTATIONS = [
    {},
    {"norm": 2, "features": "nystroem", "n_features": 12},
    {"norm": 2, "features": "nystroem", "n_features": 12, "alpha": "cv"},
    {"norm": 2, "features": "random", "n_features": 60},  # more than rows, which stay
    {
        "norm": 2,
        "features": "exact",
        "views": [("a", ["linear", "polynomial"], slice(None))],
    },
]


@in_turn(options=REPRESENTATIONS, scales=[[1e-300, 1e150, 1e-170], [1e-160, 1e300]])
def test_outputs_of_any_size(options, scales):
    X, new, y, _ = table()
    expected = MultipleKernelRidge(**options, cv=None).fit(X, y).predict(new)
    for scale in scales:
        model = MultipleKernelRidge(**options, cv=None).fit(X, scale * y)
        assert_close(model.predict(new) / scale, expected)
        assert model.score(X, scale * y) > 0.3  # measured: 0.99 to 1


@pytest.mark.parametrize("make", kinds(lacks("predict")))
def test_weights_for_outputs_of_any_size(make):
    X, _, y, _ = table()
    y = np.column_stack([y, y[::-1]])
    views = VIEWS["mixed"]
    expected = make(views).fit(X, y)
    for units in ([1e200, 1.0], [1.0, 1e-200]):
        assert_close(
            make(views).fit(X, y * units).kernel_weights_, expected.kernel_weights_
        )
    assert_close(make(views).fit(X, y + 1e6).kernel_weights_, expected.kernel_weights_)
    for constant in (0.1, 1e200):  # whose mean is another number, or overflows
        with pytest.raises(ValueError, match="constant"):
            make(views).fit(X, np.full(len(X), constant))


@pytest.mark.filterwarnings("ignore:.*cannot tell a smaller alpha:UserWarning")
@pytest.mark.parametrize("options", REPRESENTATIONS, ids=str)
def test_outputs_of_any_size_in_single_precision(options):
    """Twelve landmarks would take an alpha below 2e-6, which moves outputs by 0.03."""
    X, new, y, _ = table()
    X, new = X.astype(np.float32), new.astype(np.float32)
    expected = MultipleKernelRidge(**options, cv=None).fit(X, y).predict(new)
    for scale in (1e-30, 1e30):
        found = MultipleKernelRidge(**options, cv=None).fit(X, scale * y).predict(new)
        # measured: up to 9e-5
        assert_close(found / np.float32(scale), expected, 1e-3)


@pytest.mark.parametrize("options", REPRESENTATIONS[1:], ids=str)
@pytest.mark.parametrize("make", kinds(has("partial_fit")))
def test_explicit_features_of_columns_of_any_size(make, options):
    X, new, _, labels = table()
    expected = outputs(make(**options).fit(X, labels[:40]), new)
    first = 0 if is_classifier(make()) else 1
    for scale in SCALES[first::2]:
        found = outputs(make(**options).fit(scale * X, labels[:40]), scale * new)
        assert_close(found, expected, 1e-6)  # measured: up to 1e-7


@in_turn(
    features=["exact", "nystroem", "random"] * 2,
    n_features=[8, 60],
    make=[each for each in kinds(has("partial_fit")) for _ in "123"],
)
def test_explicit_features_of_columns_far_from_zero(make, features, n_features):
    X, new, _, labels = table()
    kernels = ["linear"] if features == "exact" else ["linear", "rbf"]
    views = [("a", kernels, [0, 1]), ("b", kernels, [2, 3])]
    model = make(views, features=features, n_features=n_features)
    expected = outputs(model.fit(X, labels[:40]), new)
    assert_close(outputs(model.fit(X + 1e9, labels[:40]), new + 1e9), expected, 1e-6)


@pytest.mark.parametrize("scale", SCALES)
def test_sparse_rows_of_any_size(scale):
    X, new, _, labels = table()
    X, new = (np.where(np.abs(rows) > 0.5, rows, 0.0) for rows in (X, new))
    model = MultipleKernelFDA(VIEWS["linear"], features="exact", cv=None)
    expected = outputs(model.fit(sparse.csr_array(X), labels[:40]), new)
    model.fit(sparse.csr_array(X * scale), labels[:40])
    assert_close(outputs(model, sparse.csr_array(new * scale)), expected)


# Entries that no unit can accommodate -------------------------------------------------


@in_turn(make=ESTIMATORS, views=list(VIEWS))
def test_a_new_row_beyond_all_is_named(make, views):
    X, new, _, labels = table()
    model = make(VIEWS[views]).fit(X, labels[:40])
    far = new.copy()
    far[5, 1] = 1e300
    with pytest.raises(ValueError, match=r"^View '\w+': row 5, column 1 holds 1e\+300"):
        outputs(model, far)
    assert_close(outputs(model, new), reference(make, views)[0], 1e-12)


@pytest.mark.parametrize("make", kinds(has("predict")))
def test_rows_of_a_later_chunk_are_counted_from_its_first(make):
    X, new, _, labels = table()
    model = make(VIEWS["linear"]).fit(X, labels[:40])
    second = CHUNK_ENTRIES // 40  # first row of the second portion
    far = np.resize(new, (second + 8, new.shape[1]))
    far[second + 5, 3] = -1e250
    message = (
        rf"portion that starts at row {second:,} .*: View 'b': row 5, column 3 holds "
        r"-1e\+250"
    )
    with pytest.raises(ValueError, match=message):
        outputs(model, far)


def test_rows_are_counted_from_the_chunk_of_features_too(rng):
    """Also where folds have put the rows of a chunk in another order."""
    n, views = CHUNK_ROWS["cpu"], [("all", Polynomial(gamma=1.0), slice(None))]
    model = MultipleKernelFDA(views, features="exact", alpha=0.1, cv=3)
    X, y = rng.normal(size=(n + 100, 2)), rng.integers(2, size=n + 100)
    X[n + 70, 1] = 1e90
    where = r"portion that starts at row {:,} .* row {}, column 1 holds 1e\+90"
    with pytest.raises(ValueError, match=where.format(n, 70)):
        model.fit(iter([(X, y)]))
    model.fit(iter([(X[:n], y[:n])]))
    model.kernel_map_.chunk_entries = 1000 * model.kernel_map_.row_size
    with pytest.raises(ValueError, match=where.format(8000, n + 70 - 8000)):
        model.predict(X)


@pytest.mark.parametrize("options", REPRESENTATIONS[1:4], ids=str)
def test_a_new_row_beyond_all_is_named_by_features_too(options):
    X, new, _, labels = table()
    model = MultipleKernelFDA(**options, cv=None).fit(X, labels[:40])
    far = new.copy()
    far[5, 1] = 1e300
    with pytest.raises(ValueError, match=r"'all': row 5, column 1 holds 1e\+300"):
        model.predict(far)


@in_turn(make=ESTIMATORS, views=list(VIEWS))
def test_an_entry_that_dwarfs_its_column_is_named(make, views):
    X, _, _, labels = table()
    X = X.copy()
    X[7, 2] = -1e300
    with pytest.raises(ValueError, match=r"row 7, column 2 holds -1e\+300, more than"):
        make(VIEWS[views]).fit(X, labels[:40])


def test_an_entry_that_dwarfs_its_column_among_rows_that_lack_views():
    X, _, _, labels = table()
    X = X.copy()
    X[2:5, 2:] = np.nan
    X[7, 2] = 1e300
    with pytest.raises(ValueError, match=r"View 'b': row 7, column 2 holds 1e\+300"):
        KernelFDA(VIEWS["linear"], missing="zero", cv=None).fit(X, labels[:40])


@pytest.mark.parametrize(
    "kernel", [RBF(0.3), Polynomial(gamma=0.5), Polynomial(9, gamma=1e3)], ids=str
)
@pytest.mark.parametrize("make", ESTIMATORS)
def test_a_kernel_with_a_unit_of_its_own_names_the_largest_entry(make, kernel):
    """A fixed gamma refers to the units of the columns, which must not be changed."""
    X, _, _, labels = table()
    frame = pd.DataFrame(np.abs(X) * 1e160, columns=["age", "dose", "g1", "g2"])
    row = int(np.argmax(frame["dose"]))
    frame[["g1", "g2"]] /= 1e160
    views = [("v", kernel, ["age", "dose"])]
    frame["age"] *= 1e-3
    name = type(kernel).__name__
    message = rf"View 'v': row {row}, column 'dose' holds \S+e\+160, .*kernel {name}\("
    with pytest.raises(ValueError, match=message):
        make(views).fit(frame, labels[:40])


def test_outputs_that_predictions_have_no_room_for_are_named():
    X, _, y, _ = table()
    y = np.column_stack([y, y])
    y[3, 1] = 1e40
    with pytest.raises(
        ValueError, match=r"y holds 1e\+40 in row 3, column 1, .*float32"
    ):
        MultipleKernelRidge(cv=None).fit(X.astype(np.float32), y)
    assert np.all(np.isfinite(MultipleKernelRidge(cv=None).fit(X, y).predict(X)))
    y[3, 1] = 1e306
    for options in REPRESENTATIONS[:2]:
        with pytest.raises(ValueError, match=r"y holds 1e\+306 in row 3, column 1"):
            MultipleKernelRidge(**options, cv=None).fit(X, y)


def test_outputs_of_a_later_portion_that_dwarf_the_first_are_refused():
    X, _, y, _ = table()
    model = MultipleKernelRidge(n_features=8, cv=None)
    model.partial_fit(X[:20], y[:20])
    before = model.predict(X)
    with pytest.raises(ValueError, match=r"y holds \S+e\+200, too large"):
        model.partial_fit(X[20:], 1e200 * y[20:]).predict(X)
    assert np.all(np.isfinite(before))
