"""Shuffled views: what is left in place, what is lost, and on which rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_iris
from sklearn.metrics import get_scorer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from estimators import ONE_EACH, some
from kernelweave import (
    KernelAlignment,
    KernelFDA,
    MultipleKernelFDA,
    MultipleKernelRidge,
)
from kernelweave.exceptions import KernelWarning
from kernelweave.inspection import view_permutation_importance
from kernelweave.kernels import RBF

pytestmark = pytest.mark.one_seed

VIEWS = [("signal", "linear", slice(0, 3)), ("static", "linear", slice(3, 6))]
TRAIN, NEW = slice(0, 60), slice(60, None)


@pytest.fixture
def problem(rng):
    """120 rows of two classes, which only the first view tells apart."""
    y = np.tile([0, 1], 60)
    X = rng.standard_normal((120, 6))
    X[:, :3] += 1.5 * y[:, None]
    return X, y


def by_view(rows, key="mean"):
    return {row["view"]: row[key] for row in rows}


@pytest.mark.measured
@pytest.mark.parametrize(
    "estimator", some(ONE_EACH, lambda model: hasattr(model, "predict"))
)
def test_only_the_informative_view_matters(estimator, problem):
    """Accuracy is lost in the first view only; noise moves it by a few of 60 rows."""
    X, y = problem
    model = estimator.set_params(views=VIEWS).fit(X[TRAIN], y[TRAIN])
    rows = view_permutation_importance(model, X[NEW], y[NEW], random_state=0)
    found = by_view(rows)
    assert found["signal"] > 0.25  # measured: 0.31 to 0.93
    assert abs(found["static"]) < 0.1  # measured: at most 0.022
    assert all(len(row["repeats"]) == 10 for row in rows)
    for row in rows:
        assert row["mean"] == pytest.approx(np.mean(row["repeats"]))
        assert row["score"] == pytest.approx(model.score(X[NEW], y[NEW]))
        assert row["rows"] == "60 rows, none of them a training row"


def test_pure_noise_looks_important_on_training_rows_only():
    """What a model has learned by heart is worth nothing on other rows."""
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((200, 6)), rng.integers(2, size=200)
    views = [("a", "rbf", slice(0, 3)), ("b", "rbf", slice(3, 6))]
    model = MultipleKernelRidge(views, norm=2, alpha=0.01, cv=None).fit(
        X[:100], y[:100]
    )
    seen = view_permutation_importance(model, X[:100], y[:100], random_state=0)
    new = view_permutation_importance(model, X[100:], y[100:], random_state=0)
    # measured: 0.91 and -0.15
    assert min(by_view(seen).values()) > 0.5
    assert max(by_view(new).values()) < 0.2
    assert seen[0]["rows"] == (
        "100 rows, all of them training rows: optimistic, pass held-out rows"
    )
    single = X[:100].astype(np.float32)  # still the rows that were learned
    again = view_permutation_importance(model, single, y[:100], n_repeats=1)
    assert again[0]["rows"] == seen[0]["rows"]
    mixed = view_permutation_importance(model, X[90:], y[90:], n_repeats=1)
    assert "10 of them training rows" in mixed[0]["rows"]


def test_every_container_gives_the_same(problem):
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    arrow = pytest.importorskip("pyarrow")
    X, y = problem
    names = list("abcdef")
    views = [("signal", "linear", ["a", "b", "c"]), ("static", "rbf", ["d", "e", "f"])]
    table = pd.DataFrame(X, columns=names)
    model = MultipleKernelFDA(views, norm=2, alpha=0.1, cv=None).fit(
        table[TRAIN], y[TRAIN]
    )
    held = table[NEW]
    containers = (
        held,
        held[names[::-1]],  # found by name
        held.assign(unused="text"),
        pl.DataFrame(X[NEW], schema=names, orient="row"),
        arrow.Table.from_pandas(held),
    )
    found = [
        view_permutation_importance(model, rows, y[NEW], n_repeats=3, random_state=3)
        for rows in containers
    ]
    for other in found[1:]:
        assert by_view(other, "repeats") == by_view(found[0], "repeats")


def test_sparse_rows(problem):
    X, y = problem
    model = MultipleKernelFDA(VIEWS, norm=2, alpha=0.1, features="nystroem", cv=None)
    model.fit(csr_array(X[TRAIN]), y[TRAIN])
    dense, sparse = (
        view_permutation_importance(model, rows, y[NEW], random_state=0)
        for rows in (X[NEW], csr_array(X[NEW]))
    )
    assert by_view(dense, "repeats") == by_view(sparse, "repeats")
    assert dense[0]["rows"] == "60 rows"  # the model keeps none to compare with


def test_training_rows_are_recognised_whatever_stores_them(rng):
    X, y = rng.normal(size=(20, 4)), np.arange(20) % 2
    X[::2, 1], X[1::2, 3] = 0.0, -0.0
    views = [("a", "linear", [0, 1]), ("b", "linear", [2, 3])]
    full = csr_array((X.ravel(), np.tile(range(4), 20), range(0, 84, 4)))
    for learned in (X, csr_array(X)):
        model = MultipleKernelRidge(views, norm=1, alpha=0.1, cv=None).fit(learned, y)
        for rows in (X, csr_array(X), full, full.astype(np.float32)):
            found = view_permutation_importance(model, rows[:9], y[:9], n_repeats=1)
            assert found[0]["rows"].startswith("9 rows, all of them training rows")


def test_other_array_libraries(problem, other_backend):
    X, y = problem
    model = KernelFDA(VIEWS, alpha=0.1, cv=None).fit(
        other_backend.asarray(X[TRAIN]), y[TRAIN]
    )
    rows = view_permutation_importance(
        model, other_backend.asarray(X[NEW]), y[NEW], random_state=0
    )
    plain = KernelFDA(VIEWS, alpha=0.1, cv=None).fit(X[TRAIN], y[TRAIN])
    wanted = view_permutation_importance(plain, X[NEW], y[NEW], random_state=0)
    assert by_view(rows, "repeats") == by_view(wanted, "repeats")


@pytest.mark.measured
@pytest.mark.parametrize("shape", ["matrix", "stack"])
def test_precomputed_kernels(problem, shape):
    X, y = problem
    K = RBF()(X)
    if shape == "stack":
        K = np.stack([RBF()(X[:, :3]), RBF()(X[:, 3:])], axis=-1)
    model = KernelFDA("precomputed", alpha=0.1, cv=None).fit(K[TRAIN, TRAIN], y[TRAIN])
    rows = view_permutation_importance(model, K[NEW, TRAIN], y[NEW], random_state=0)
    # measured: 0.27 with the matrix and 0.28 with the stack, 0.025 for noise
    assert rows[0]["mean"] > 0.2
    assert abs(rows[-1]["mean"]) < 0.1 or shape == "matrix"
    assert rows[0]["rows"] == "60 rows"  # kernels do not say whose they are
    rounded = K[TRAIN, TRAIN].copy()
    rounded[0, 1] += 5e-5  # as long sums in single precision leave
    for given in (K[TRAIN, TRAIN], rounded):
        own = view_permutation_importance(model, given, y[TRAIN], n_repeats=1)
        assert "all of them training rows" in own[0]["rows"]


def test_a_dict_that_lacks_a_kernel(problem):
    X, y = problem[0][TRAIN], problem[1][TRAIN]
    kernels = {"signal": X[:, :3] @ X[:, :3].T, "static": X[:, 3:] @ X[:, 3:].T}
    model = KernelFDA("precomputed", cv=None, missing="error").fit(kernels, y)
    del kernels["signal"]
    with pytest.raises(ValueError, match=r"X lacks the precomputed kernel.* 'signal'"):
        view_permutation_importance(model, kernels, y)


@pytest.mark.measured
def test_missing_views_stay_missing(problem):
    """No row ends up without any view, which the mixture refuses."""
    X, y = problem
    X = X.copy()
    X[::3, :3], X[1::3, 3:] = np.nan, np.nan
    (model,) = some(["MixtureKDA"], missing="available")
    model = model.values[0].set_params(views=VIEWS).fit(X[TRAIN], y[TRAIN])
    rows = view_permutation_importance(model, X[NEW], y[NEW], random_state=0)
    assert by_view(rows)["signal"] > 0.1  # measured: 0.3


@pytest.mark.filterwarnings("ignore:.*lack the view 'static'")
def test_a_table_without_the_columns_of_a_view(problem):
    pd = pytest.importorskip("pandas")
    X, y = problem
    X = pd.DataFrame(X, columns=list("abcdef"))
    views = [("signal", "linear", list("abc")), ("static", "linear", list("def"))]
    model = KernelFDA(views, alpha=0.1, cv=None, missing="zero").fit(X[TRAIN], y[TRAIN])
    rows = view_permutation_importance(model, X[NEW][list("cab")], y[NEW], n_repeats=1)
    assert by_view(rows)["static"] == 0.0 < by_view(rows)["signal"]


def test_scores_and_pipelines(problem):
    X, y = problem
    pipe = make_pipeline(StandardScaler(), KernelFDA(VIEWS, alpha=0.1, cv=None))
    pipe.fit(X[TRAIN], y[TRAIN])
    rows = view_permutation_importance(
        pipe, X[NEW], y[NEW], scoring="neg_log_loss", random_state=0
    )
    wanted = get_scorer("neg_log_loss")(pipe, X[NEW], y[NEW])
    assert rows[0]["score"] == pytest.approx(wanted)
    again = view_permutation_importance(
        pipe, X[NEW], y[NEW], scoring="neg_log_loss", random_state=0
    )
    assert rows == again
    with pytest.raises(ValueError, match="n_repeats must be an int >= 1; got 0"):
        view_permutation_importance(pipe, X, y, n_repeats=0)


def test_a_model_that_only_transforms_is_named(problem):
    X, y = problem
    model = KernelAlignment(VIEWS).fit(X[TRAIN], y[TRAIN])
    with pytest.raises(TypeError, match="needs a model that predicts; KernelAlignment"):
        view_permutation_importance(model, X[NEW], y[NEW])


def test_a_gap_in_new_rows_is_told_once():
    X, y = load_iris(return_X_y=True, as_frame=True)
    views = [("sepal", "auto", [0, 1]), ("petal", "auto", [2, 3])]
    model = KernelFDA(views, cv=None).fit(X[::2], y[::2])
    X.iloc[1, 0] = np.nan
    with pytest.warns(KernelWarning, match="1 gap") as told:
        view_permutation_importance(model, X[1::2], y[1::2], random_state=0)
    assert len(told) == 1
