"""Explicit features in the estimators: rows in portions, and the resulting fits."""

from __future__ import annotations

import functools
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectKBest

from kernelweave import MultipleKernelFDA, MultipleKernelRidge
from kernelweave import _array as memory
from kernelweave.exceptions import KernelWarning, MemoryRefusedError
from kernelweave.kernels import RBF, Linear, Pipe, Polynomial, Standardizer
from kernelweave.kernels.features import maps
from kernelweave.kernels.maps.kernel_map import FASTER_FROM, SHARED_BY
from kernelweave.kernels.moments import CHUNK_ROWS, ChunkRecipe, RowAccumulator
from kernelweave.models.shared.base import why_features
from kernelweave.models.shared.inputs import _learns_once
from kernelweave.models.streaming.intake import SAMPLE_ROWS, draw_sample

CHUNK = CHUNK_ROWS["cpu"]

EXACT = [
    ("left", [Linear(), Polynomial(2)], [0, 1, 2]),
    ("right", [Pipe(Standardizer(), Linear())], [3, 4, 5]),
]
MIXED = [("left", ["linear", RBF()], [0, 1, 2]), ("right", RBF(), [3, 4, 5])]


def draw(rng, n=240, k=3):
    y = rng.integers(k, size=n)
    X = rng.normal(size=(n, 6)) + 4.0
    X[:, 0] += 2 * (y == 1)
    X[:, 4] -= 2 * (y == 2)
    return X, y


@pytest.fixture
def table(rng):
    return draw(rng)


def portions(X, y, size):
    return ((X[i : i + size], y[i : i + size]) for i in range(0, len(y), size))


# The same model -----------------------------------------------------------------------


@pytest.mark.one_seed
@pytest.mark.parametrize(
    ("k", "alpha", "norm"), [(2, 0.3, 1), (2, "learn", 2), (3, 0.3, 2), (3, "learn", 1)]
)
def test_exact_features_give_the_model_of_the_kernels(k, alpha, norm, rng):
    X, y = draw(rng, k=k)
    kernels = MultipleKernelFDA(EXACT, norm=norm, alpha=alpha, tol=1e-9, cv=None)
    kernels.fit(X, y)
    moments = clone(kernels).set_params(features="exact").fit(portions(X, y, 100))
    assert kernels.features_.representation == "kernels"
    assert moments.features_.representation == "moments"
    assert moments.certificate_.value == pytest.approx(
        kernels.certificate_.value, rel=1e-8
    )
    assert_allclose(moments.kernel_weights_, kernels.kernel_weights_, atol=1e-4)
    assert moments.alpha_ == pytest.approx(kernels.alpha_, rel=1e-4)
    scale = np.abs(kernels.transform(X)).max()
    assert_allclose(moments.transform(X), kernels.transform(X), atol=1e-4 * scale)
    assert np.mean(moments.predict(X) == kernels.predict(X)) > 0.98  # measured: 1
    # generalised cross-validation, and leave-one-out; measured: up to 0.01
    assert moments.loo_error_ == pytest.approx(kernels.loo_error_, rel=0.1)
    assert moments.view_weights_.keys() == kernels.view_weights_.keys()


def test_exact_features_give_the_ridge_of_the_kernels(rng):
    X, _ = draw(rng)
    Y = np.stack([X[:, 0] + 1e4, 100 * X[:, 4] + rng.normal(size=240)], axis=1)
    kernels = MultipleKernelRidge(EXACT, norm=1, alpha=0.3, tol=1e-9, cv=None).fit(X, Y)
    moments = clone(kernels).set_params(features="exact").fit(portions(X, Y, 77))
    assert_allclose(moments.predict(X), kernels.predict(X), rtol=1e-5, atol=1e-2)
    # measured: up to 0.012
    assert moments.loo_error_ == pytest.approx(kernels.loo_error_, rel=0.1)
    flat = clone(moments).fit(portions(X, Y[:, 0], 50))
    assert flat.predict(X).shape == (240,)


@functools.cache
def exact_model(seed):
    """Rows and labels, new ones, and the model of the exact kernels."""
    rng = np.random.default_rng(seed)
    X, y = draw(rng, n=500)
    return X, y, *draw(rng, n=400), MultipleKernelFDA(MIXED, norm=1, cv=None).fit(X, y)


@pytest.mark.one_seed
@pytest.mark.parametrize(
    ("features", "alpha"),
    [("nystroem", "loo"), ("random", "cv"), ("nystroem", "learn"), ("random", 0.5)],
)
def test_approximate_features_come_close(features, alpha, global_random_seed):
    X, y, new, truth, exact = exact_model(global_random_seed)
    model = MultipleKernelFDA(
        MIXED, norm=1, alpha=alpha, features=features, n_features=80, cv=None
    ).fit(X, y)
    assert model.features_.representation == "moments"
    assert model.certificate_.converged
    # measured: 0 to 0.013
    assert abs(model.score(new, truth) - exact.score(new, truth)) < 0.08
    # measured: 0.52 to 0.55, and 0.77 to 0.79
    assert 0 < model.loo_error_ < 1 and 0.5 < model.loo_score_ <= 1
    proba = model.predict_proba(new)
    assert_allclose(proba.sum(axis=1), 1.0)
    loss = -np.mean(np.log(proba[np.arange(400), truth]))
    reference = -np.mean(np.log(exact.predict_proba(new)[np.arange(400), truth]))
    assert loss < reference + 0.1  # measured: by 0.083 at least


def test_fewer_rows_than_features_are_kept_as_rows(table):
    X, y = table
    model = MultipleKernelFDA(
        MIXED, features="nystroem", n_features=200, norm=2, cv=None
    )
    model.fit(X, y)
    assert model.features_.representation == "rows"
    exact = clone(model).set_params(features="exact").fit(X, y)
    # every row may be a landmark: exact up to rounding
    assert_allclose(model.transform(X), exact.transform(X), atol=1e-5)
    assert model.loo_error_ == pytest.approx(exact.loo_error_, rel=1e-6)


def test_norm_and_alpha_are_chosen_by_cross_validation(table):
    X, y = table
    model = MultipleKernelFDA(MIXED, alpha="cv", n_features=20, cv=None).fit(X, y)
    errors = {norm: c["loo_error"] for norm, c in model.candidates_.items()}
    assert len(errors) == 4 and model.norm_ == min(errors, key=errors.get)
    assert model.loo_error_ == pytest.approx(min(errors.values()))


# Forms of input -----------------------------------------------------------------------


def same_model(one, other, X):
    assert np.array_equal(one.feature_coef_, other.feature_coef_)
    assert np.array_equal(one.predict(X), other.predict(X))


def fit_by_parts(model, X, y, sizes):
    model = clone(model)
    start = 0
    for size in sizes:
        last = start + size >= len(y)
        model.partial_fit(X[start : start + size], y[start : start + size], solve=last)
        start += size
    return model


@pytest.mark.one_seed
def test_all_ways_in_give_the_same_bits(rng, tmp_path):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.dataset
    import pyarrow.parquet

    pd = pytest.importorskip("pandas")
    X, y = draw(rng, n=2 * CHUNK + 3000)
    model = MultipleKernelFDA(MIXED, n_features=8, norm=1, alpha=0.1, cv=None)
    reference = clone(model).fit(portions(X, y, SAMPLE_ROWS))
    for size in (SAMPLE_ROWS + 123, len(y)):
        same_model(clone(model).fit(portions(X, y, size)), reference, X)
    sizes = [SAMPLE_ROWS, 1, 999, CHUNK + 1, len(y)]
    same_model(fit_by_parts(model, X, y, sizes), reference, X)
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(label=y)
    table = pa.Table.from_pandas(frame)
    pyarrow.parquet.write_table(table, tmp_path / "rows.parquet")
    data = pyarrow.dataset.dataset(tmp_path / "rows.parquet")
    views = [("left", ["linear", RBF()], list("abc")), ("right", RBF(), list("def"))]
    for source in (data, table):
        arrow = clone(model).set_params(views=views).fit(source, "label")
        assert np.array_equal(arrow.feature_coef_, reference.feature_coef_)
        assert arrow.feature_names_in_.tolist() == list("abcdef")
    with pytest.raises(ValueError, match="y is the name of the column"):
        model.fit(data, "colour")


def test_memory_maps_and_frames_are_arrays(table, tmp_path):
    pd = pytest.importorskip("pandas")
    X, y = table
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    model = MultipleKernelFDA(
        MIXED, features="nystroem", n_features=8, alpha="learn", cv=None
    )
    reference = clone(model).fit(X, y)
    same_model(clone(model).fit(mapped, y), reference, X)
    same_model(clone(model).fit(X.tolist(), y.tolist()), reference, X)
    frame = clone(model).fit(pd.DataFrame(X), y)
    assert np.array_equal(frame.feature_coef_, reference.feature_coef_)
    single = clone(model).fit(X.astype(np.float32), y)
    assert single.transform(X.astype(np.float32)).dtype == np.float32
    # measured: up to 6.4e-6 apart
    assert_allclose(single.certificate_.value, reference.certificate_.value, rtol=1e-4)


def test_other_array_libraries(table, xp_backend):
    X, y = table
    model = MultipleKernelFDA(
        MIXED, features="nystroem", n_features=8, alpha=0.1, cv=None
    )
    model.set_params(norm=1)
    reference = clone(model).fit(X, y)
    there = xp_backend.asarray(X)
    found = clone(model).fit(there, y)
    assert type(found.feature_coef_) is type(there)
    assert found.certificate_.value == pytest.approx(reference.certificate_.value)
    Z = found.transform(there)
    assert type(Z) is type(there)
    assert_allclose(memory.to_numpy(Z), reference.transform(X), atol=1e-6)


def test_rows_outside_the_library_are_refused(table, other_backend):
    X, y = table
    model = MultipleKernelFDA(MIXED, n_features=8, norm=1, alpha=0.1, cv=None)
    model.partial_fit(other_backend.asarray(X), y)
    for rows in (X, X.tolist(), sparse.csr_array(X)):
        for call in (model.predict, lambda rows: model.partial_fit(rows, y)):
            with pytest.raises(ValueError, match="must use the same namespace"):
                call(rows)


def test_rows_sent_to_a_device_come_back(table):
    pytest.importorskip("torch")
    X, y = table
    model = MultipleKernelFDA(
        MIXED, features="nystroem", n_features=8, alpha=0.1, norm=1, device="cpu"
    )
    reference = clone(model).set_params(device=None).fit(X, y)
    model.fit(X, y)
    assert isinstance(model.transform(X), np.ndarray)
    assert type(model.kernel_map_.like).__module__ == "torch"
    assert_allclose(model.transform(X), reference.transform(X), atol=1e-8)
    with pytest.raises(ValueError, match="device='nowhere' cannot be used"):
        model.set_params(device="nowhere").fit(X, y)
    with pytest.raises(ValueError, match="'device' parameter"):
        model.set_params(device=3).fit(X, y)


@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csc_matrix])
def test_sparse_rows(kind, rng):
    X, y = draw(rng, n=300)
    X = (X - 4.0) * (rng.random(X.shape) < 0.4)
    views = [("left", [Linear(), RBF()], [0, 1, 2]), EXACT[1]]
    model = MultipleKernelFDA(
        views, features="nystroem", n_features=20, alpha=0.1, cv=None
    )
    dense = clone(model).fit(X, y)
    thin = clone(model).fit(kind(X), y)
    # landmarks come from the same rows; only the order of sums differs
    assert thin.certificate_.value == pytest.approx(dense.certificate_.value, rel=1e-8)
    assert_allclose(thin.transform(kind(X)), dense.transform(X), atol=1e-6)
    assert_allclose(thin.transform(X), dense.transform(kind(X)), atol=1e-6)
    mixed = (
        clone(model).partial_fit(X[:150], y[:150]).partial_fit(kind(X[150:]), y[150:])
    )
    thin = (
        clone(model).partial_fit(kind(X[:150]), y[:150]).partial_fit(X[150:], y[150:])
    )
    assert_allclose(mixed.transform(X), thin.transform(X), atol=1e-6)
    broken = kind(X).astype(float)
    broken.data[5] = np.nan
    with pytest.raises(ValueError, match="Input X contains NaN: view"):
        clone(model).fit(broken, y)


# partial_fit --------------------------------------------------------------------------


def test_partial_fit_goes_on_where_it_was(table):
    X, y = table
    model = MultipleKernelFDA(MIXED, n_features=8, norm=1, alpha=0.1, cv=None)
    model.partial_fit(X[:100], y[:100], solve=False)
    with pytest.raises(NotFittedError):
        model.predict(X)
    later = pickle.loads(pickle.dumps(model))
    for some in (model, later):
        some.partial_fit(X[100:], y[100:])
    same_model(model, later, X)
    first = model.certificate_.value
    model.partial_fit(X, y)
    assert model.certificate_.value != first
    model.fit(X, y)  # starts afresh
    assert model._portions is None
    model.partial_fit(X, y, solve=False)  # so does this
    with pytest.raises(NotFittedError):
        model.predict(X)


@pytest.mark.one_seed
def test_other_norms_and_alphas_need_no_second_pass(rng, monkeypatch):
    X, y = draw(rng, n=2 * CHUNK)
    settings = {"features": "nystroem", "n_features": 8, "alpha": "cv"}
    model = MultipleKernelFDA(MIXED, **settings, cv=None)
    with pytest.raises(ValueError, match="there were none"):
        model.partial_fit()
    model.partial_fit(X, y, solve=False)  # two chunks, no row is left waiting
    monkeypatch.setattr(ChunkRecipe, "__call__", None)
    found = {}
    for norm, alpha in ((1, "cv"), (2, "loo"), (1, "learn"), (2, 1.0)):
        model.set_params(norm=norm, alpha=alpha).partial_fit()
        found[norm, alpha] = model.kernel_weights_, model.alpha_, model.predict(X)
    monkeypatch.undo()
    for (norm, alpha), (weights, chosen, labels) in found.items():
        fresh = clone(model).set_params(norm=norm, alpha=alpha).partial_fit(X, y)
        assert_allclose(weights, fresh.kernel_weights_, atol=1e-4)
        assert chosen == pytest.approx(fresh.alpha_, rel=1e-3)
        assert np.mean(labels == fresh.predict(X)) > 0.99  # measured: 1
    fresh.set_params(alpha="cv")
    with pytest.raises(ValueError, match="before the first call"):
        fresh.partial_fit()


def test_one_class_so_far_is_no_error(table):
    X, y = table
    model = MultipleKernelFDA(MIXED, n_features=8, cv=None)
    model.partial_fit(X[y == 0], y[y == 0])
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.partial_fit(X[y != 0], y[y != 0])
    assert model.classes_.tolist() == [0, 1, 2]


def test_bad_portions_are_refused_and_forgotten(table):
    X, y = table
    views = [("left", RBF(), [0, 1, 2]), ("right", Linear(), [3, 4, 5])]
    model = MultipleKernelFDA(views, n_features=8, norm=1, alpha=0.1, cv=None)
    model.partial_fit(X[:100], y[:100], classes=[0, 1, 2])
    before = model.feature_coef_.copy()
    hole = X[100:].copy()
    hole[3, 4] = np.nan
    bad = [
        (hole, y[100:], "starts at row 100.*view 'right', row 3, column 4"),
        (X[100:, :5], y[100:], "5 features.*expecting 6"),
        (X[100:].astype(str), y[100:], "not a number"),
        (X[100:], y[101:], "inconsistent numbers of samples"),
        (
            X[100:],
            np.where(y[100:] == 2, 7, y[100:]),
            "contains 7, which is not one of",
        ),
        (X[100:], y[100:].astype(str), "starts at row 100.*y holds text, but"),
    ]
    for rows, labels, message in bad:
        with pytest.raises(ValueError, match=message):
            model.partial_fit(rows, labels)
    assert np.array_equal(model.feature_coef_, before)
    model.partial_fit(X[100:].astype(np.float32), y[100:])  # another dtype is fine
    clean = clone(model).partial_fit(X[:100], y[:100], solve=False)
    clean.partial_fit(X[100:].astype(np.float32), y[100:])
    same_model(model, clean, X)


@pytest.mark.one_seed
def test_an_interrupt_loses_nothing(rng, monkeypatch):
    X, y = draw(rng, n=4 * CHUNK)
    first = CHUNK + 60
    model = MultipleKernelFDA(MIXED, n_features=8, norm=1, alpha=0.1, cv=None)
    model.partial_fit(X[:first], y[:first])
    recipe = type(model._portions.accumulator.recipe)
    original, calls = recipe.__call__, []

    def interrupting(self, *arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(self, *arguments)

    monkeypatch.setattr(recipe, "__call__", interrupting)
    with pytest.raises(KeyboardInterrupt):
        model.partial_fit(X[first:], y[first:])
    model.predict(X)
    model.partial_fit(X[first:], y[first:])
    monkeypatch.setattr(recipe, "__call__", original)
    same_model(model, fit_by_parts(model, X, y, [first, len(y)]), X)


# Choice and messages ------------------------------------------------------------------


def test_an_error_that_no_row_is_left_to_measure_is_unknown(rng):
    """With every row a landmark it was said to be at most 0."""
    X, y = draw(rng, n=60)
    model = MultipleKernelFDA(
        MIXED, norm=1, features="nystroem", n_features=60, cv=None
    )
    report = model.fit(X, y).features_
    assert np.isnan(report.worst_error) and "nan" not in str(report)
    assert any("error is unknown" in text for text in model.certificate_.remarks)


@pytest.mark.one_seed
def test_auto_takes_kernels_while_they_fit(rng):
    X, y = draw(rng)
    model = MultipleKernelFDA(MIXED, norm=1, n_features=8, cv=None)
    assert clone(model).fit(X, y).features_.representation == "kernels"
    assert "fit into memory" in clone(model).fit(X, y).features_.why
    X, y = draw(rng, n=10_001)
    long = clone(model).fit(X, y)
    assert long.features_.why == "10,001 rows are more than 10,000"
    assert any("features: 10,001 rows" in r for r in long.certificate_.remarks)
    assert any("held-out kernel error" in r for r in long.certificate_.remarks)
    assert "Nystroem" in str(long.features_) and long.features_.worst_error > 0
    # Kernels between this many rows take a gigabyte: only the choice is tested.
    assert why_features(long, X) == long.features_.why
    assert why_features(clone(model).set_params(features="exact"), X) is None
    assert why_features(clone(model).set_params(scoring="accuracy"), X) is None


def test_auto_falls_back_when_memory_is_short(table, monkeypatch):
    X, y = table
    model = MultipleKernelFDA(MIXED, norm=1, n_features=8, cv=None)
    monkeypatch.setattr(memory, "_host_bytes", lambda: (3 + 4) * 240 * 240 * 8 - 1)
    assert clone(model).fit(X, y).features_.representation == "on the fly"
    monkeypatch.setattr(memory, "_host_bytes", lambda: 4 * 240 * 240 * 8 - 1)
    found = clone(model).fit(X, y)
    assert found.features_.representation == "moments"
    assert "do not fit" in found.features_.why
    with pytest.raises(MemoryRefusedError, match="dense bank"):
        clone(model).set_params(features="exact").fit(X, y)
    with pytest.raises(MemoryRefusedError, match=r"second moments of \d+ features"):
        clone(model).set_params(features="random", n_features=200).fit(X, y)


@pytest.mark.parametrize("n_features", [5_000, 10**9, 10**30])
def test_too_many_features_are_refused_before_any_is_made(
    table, monkeypatch, n_features
):
    """A billion took hours of drawing, then all memory."""
    X, y = table
    monkeypatch.setattr(memory, "_host_bytes", lambda: 8 * 10**6)
    monkeypatch.setattr(maps, "_orthogonal_gaussians", None)  # not called
    model = MultipleKernelFDA(MIXED, norm=1, n_features=n_features, cv=None)
    number = rf"n_features={n_features:,}.* needs .* GiB.*smaller n_features; 200 to"
    read = []

    def watched():
        for portion in portions(X, y, 60):
            read.append(portion)
            yield portion

    drawn = clone(model).set_params(features="random")
    for call in (
        lambda: drawn.fit(X, y),
        lambda: drawn.partial_fit(X[:40], y[:40]),
        lambda: drawn.fit(watched()),
        lambda: clone(model).set_params(features="nystroem").fit(watched()),
    ):
        with pytest.raises(MemoryRefusedError, match=number):
            call()
    assert not read
    chosen = clone(model).set_params(features="nystroem", alpha=0.1)
    report = chosen.fit(X[:60], y[:60]).features_
    assert [made.n_features for made in report.maps] == [3, 60, 60]  # landmarks: rows


def test_landmarks_that_do_not_fit_are_refused(table, monkeypatch):
    X, y = table
    monkeypatch.setattr(memory, "_host_bytes", lambda: 10**6)
    model = MultipleKernelFDA(MIXED, norm=1, features="nystroem", n_features=240)
    with pytest.raises(MemoryRefusedError, match="n_features=240 for the kernel 'RBF"):
        model.fit(X, y)


def test_ids_in_place_of_classes_do_not_fill_the_memory(rng, monkeypatch):
    (X, y), ids = draw(rng, n=400), np.arange(400) // 2
    model = MultipleKernelFDA(MIXED, n_features=8, norm=1, alpha=0.1, cv=None)
    expected = model.partial_fit(X, y).predict_proba(X)
    intake, whole = model._portions.intake, model._portions.accumulator
    sums = RowAccumulator(whole.recipe, 50).added(intake.rows(X), y)
    before, refused = sums.total().gram, r"features and \d+ classes needs"
    with monkeypatch.context() as short:
        short.setattr(memory, "_host_bytes", lambda: 3_000_000)
        with pytest.raises(MemoryRefusedError, match=refused):  # too many in a chunk
            model.partial_fit(X, ids)
        with pytest.raises(MemoryRefusedError, match=refused):  # too many in their sum
            sums.added(intake.rows(X), ids)
    assert np.array_equal(model.partial_fit().predict_proba(X), expected)
    assert np.array_equal(sums.total().gram, before)


def test_a_poor_map_is_called_poor(table):
    X, y = table
    model = MultipleKernelFDA(MIXED, features="random", n_features=4, cv=None).fit(X, y)
    assert any("poorly" in remark for remark in model.certificate_.remarks)


def test_constant_views_get_no_weight(table):
    X, y = table
    X[:, 3:] = 1e6
    model = MultipleKernelFDA(EXACT, features="exact", norm=1, alpha=0.1, cv=None)
    with pytest.warns(KernelWarning, match="view 'right'.*constant"):
        model.fit(portions(X, y, 50))
    assert model.view_weights_["right"] == 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"features": "best"}, "'features' parameter"),
        ({"n_features": 0}, "'n_features' parameter"),
        ({"features": "random", "scale": None}, "scale='trace' only"),
        ({"features": "random", "views": "precomputed"}, "needs columns"),
        ({"alpha": "cv", "views": "precomputed"}, "needs columns"),
        ({"alpha": "cv", "features": "on_the_fly"}, "between all rows"),
    ],
    ids=str,
)
def test_settings_that_do_not_go_together(settings, message, table):
    X, y = table
    with pytest.raises(ValueError, match=message):
        MultipleKernelFDA(**settings, cv=None).fit(X, y)


@pytest.mark.one_seed
def test_a_bad_row_is_named_by_its_own_number(rng):
    X, y = draw(rng, n=2 * CHUNK)
    X[CHUNK + 23, 4] = np.inf
    model = MultipleKernelFDA(MIXED, features="nystroem", n_features=8, cv=None)
    wanted = rf"starts at row {CHUNK:,} .*view 'right', row 23"
    with pytest.raises(ValueError, match=wanted):
        model.fit(X, y)


def test_bad_streams(table):
    X, y = table
    model = MultipleKernelFDA(MIXED, n_features=8, cv=None)
    with pytest.raises(ValueError, match="nothing to learn from"):
        model.fit(iter([]))
    with pytest.raises(TypeError, match=r"pairs \(X, y\)"):
        model.fit(iter([X]))
    with pytest.raises(ValueError, match="leave out y"):
        model.fit(portions(X, y, 50), y)
    with pytest.raises(ValueError, match="not rows in portions"):
        MultipleKernelFDA("precomputed", cv=None).fit(portions(X, y, 50))
    with pytest.raises(ValueError, match="no finite exact features"):
        clone(model).set_params(features="exact").fit(portions(X, y, 50))
    with pytest.raises(ValueError, match="1 class"):
        clone(model).fit(portions(X, np.zeros(240, int), 50))
    assert not hasattr(MultipleKernelFDA("precomputed", cv=None), "partial_fit")


@pytest.mark.parametrize(("alpha", "most"), [("learn", 20), (1e-4, 15)])
def test_few_factorisations_with_many_rows(alpha, most):
    """Equal weights are far from the optimum: most have to shrink a hundredfold."""
    rng = np.random.default_rng(7)
    X, directions = rng.normal(size=(4000, 20)), rng.normal(size=(4, 2, 5))
    waves = [np.sin(1.5 * X[:, 2 * v : 2 * v + 2] @ directions[v]) for v in range(4)]
    y = np.argmax(sum(waves) + 0.5 * rng.gumbel(size=(4000, 5)), axis=1)
    views = [(f"v{i}", "rbf", [2 * i, 2 * i + 1]) for i in range(10)]
    model = MultipleKernelFDA(views, norm=1, alpha=alpha, features="random", cv=None)
    model.set_params(n_features=10).fit(X, y)
    assert model.certificate_.converged
    assert model.n_iter_ <= most


@pytest.mark.one_seed
def test_rows_that_fix_the_features_have_their_own_targets(rng):
    """They are drawn from all rows, not the first ones."""
    X, y = rng.normal(size=(SAMPLE_ROWS + 500, 30)), rng.integers(2, size=2500)
    X[:, 7] += 4 * y
    views = [("best", Pipe(SelectKBest(k=1), "linear"), slice(None))]
    model = MultipleKernelFDA(
        views, features="nystroem", n_features=4, norm=1, alpha=0.1, cv=None
    )
    assert model.fit(X, y).score(X, y) > 0.9  # measured: 0.97; by another column 0.5


def test_no_more_portions_wait_than_fix_the_features():
    intake = SimpleNamespace(sample_rows=10)
    coming = (([np.full((4, 2), i)], np.zeros(4), np.ones(4)) for i in range(9))
    waiting, (sample,) = draw_sample(intake, coming)
    assert len(waiting) == 3 and len(list(coming)) == 6
    assert sample[:, 0].tolist() == [0] * 4 + [1] * 4 + [2] * 2


def test_random_state(table):
    X, y = table
    model = MultipleKernelFDA(MIXED, features="random", n_features=8, norm=1, cv=None)
    one, same = (clone(model).set_params(random_state=5).fit(X, y) for _ in range(2))
    same_model(one, same, X)
    other = clone(model).set_params(random_state=6).fit(X, y)
    assert not np.array_equal(one.feature_coef_, other.feature_coef_)
    clone(model).set_params(random_state=None).fit(X, y)
    clone(model).set_params(random_state=np.random.RandomState(0)).fit(X, y)


def test_many_views_without_n_by_n_kernels(rng):
    X, y = draw(rng, n=60)
    X = np.concatenate([X, rng.normal(size=(60, 64))], axis=1)
    views = [(f"v{i}", "rbf", [i]) for i in range(70)]
    model = MultipleKernelFDA(views, norm=1, alpha=1.0, features="nystroem", cv=None)
    model.set_params(n_features=5).fit(X, y)
    assert model.features_.representation == "rows"
    assert model.certificate_.converged
    assert model.view_weights_["v0"] > 0 and model.view_weights_["v4"] > 0
    newton = clone(model).set_params(solver="newton").fit(X, y)
    assert newton.certificate_.value == pytest.approx(
        model.certificate_.value, rel=2e-6
    )


def test_without_folds_many_kernels_of_a_view_are_not_stored(rng):
    X, y = rng.normal(size=(FASTER_FROM, 2)), np.arange(FASTER_FROM) % 2
    kernels = [RBF(gamma=float(g)) for g in np.logspace(-1, 1, SHARED_BY)]
    views, settings = [("all", kernels, [0, 1])], {"norm": np.inf, "alpha": 1.0}
    model = MultipleKernelFDA(views, cv=None, **settings).fit(X, y)
    assert model.features_.representation == "on the fly"
    assert "less time" in model.features_.why
    assert not _learns_once(MultipleKernelFDA(views, cv=None, solver="cutting_plane"))
    assert not _learns_once(MultipleKernelFDA(views))  # folds read kernels again
