"""Similarities and distances looked up by id equal kernels computed from columns."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_predict

from estimators import PLAIN, every_estimator, output
from kernelweave import KernelFDA, MultipleKernelFDA, load, save
from kernelweave.exceptions import KernelWarning
from kernelweave.kernels import RBF, Linear, Pipe, Similarity, Standardizer

pd = pytest.importorskip("pandas")

IDS = [f"S{i:02d}" for i in range(40)]


def draw():
    rng = np.random.default_rng(0)
    y = np.tile([0, 1], 20)
    X = pd.DataFrame(rng.normal(size=(40, 4)), columns=list("abcd"))
    X["a"] += 2 * y
    X["d"] += y
    return X.assign(id=IDS), y


@pytest.fixture
def table():
    return draw()


def products(X):
    return X[["c", "d"]].to_numpy() @ X[["c", "d"]].to_numpy().T


def distances(X):
    points = X[["c", "d"]].to_numpy()
    return np.linalg.norm(points[:, None] - points[None], axis=2)


def beside(kernel, columns="id"):
    return [("left", "linear", ["a", "b"]), ("right", kernel, columns)]


@every_estimator
def test_looking_up_is_computing(estimator, table):
    """Beside a view of columns, on new rows, and in cross-validation."""
    X, y = table
    shuffled = np.random.default_rng(1).permutation(40)
    K = products(X)[np.ix_(shuffled, shuffled)]
    ids = [IDS[i] for i in shuffled]
    train = X[:30]
    found = clone(estimator).set_params(views=beside(Similarity(K, ids)))
    wanted = clone(estimator).set_params(views=beside("linear", ["c", "d"]))
    found.fit(train, y[:30])
    wanted.fit(train, y[:30])
    expected = output(wanted, X[30:])
    size = np.abs(expected).max()
    assert_allclose(output(found, X[30:]), expected, rtol=1e-5, atol=1e-5 * size)
    assert found.view_weights_.keys() == {"left", "right"}


@pytest.mark.parametrize(
    ("make", "same"),
    [
        (lambda X: Similarity(products(X), IDS), Linear()),
        (lambda X: Similarity.from_distances(distances(X), IDS), RBF()),
        (
            lambda X: Similarity.from_distances(distances(X), IDS, factor=0.5),
            RBF(factor=0.5),
        ),
        (
            lambda X: Similarity.from_distances(distances(X), IDS, method="centring"),
            Linear(),
        ),
    ],
    ids=["similarity", "gaussian", "half", "centring"],
)
def test_cross_validation(table, make, same):
    """The width comes from the training rows of each fold, as for columns."""
    X, y = table
    models = [
        MultipleKernelFDA(beside(make(X)), **PLAIN),
        MultipleKernelFDA(beside(same, ["c", "d"]), **PLAIN),
    ]
    found, wanted = (
        cross_val_predict(model, X, y, cv=3, method="decision_function")
        for model in models
    )
    assert_allclose(found, wanted, rtol=1e-6, atol=1e-8)


def test_grid_search_clone_and_pickle(table):
    X, y = table
    gaussian = Similarity.from_distances(distances(X), IDS)
    search = GridSearchCV(
        MultipleKernelFDA(beside(gaussian), **PLAIN),
        [
            {"right": [Similarity(products(X), IDS)]},
            {"right": [gaussian], "right__factor": [0.5, 2.0]},
        ],
        cv=2,
    ).fit(X, y)
    assert len(search.cv_results_["params"]) == 3
    model = pickle.loads(pickle.dumps(search.best_estimator_))
    assert_allclose(model.decision_function(X), search.decision_function(X))
    again = clone(gaussian)
    assert again == gaussian and again is not gaussian and again.K is gaussian.K
    assert again != gaussian.set_params(factor=3.0) != Linear()


@pytest.mark.parametrize("listed", [False, True])
def test_a_fitted_model_keeps_its_matrix_and_ids(table, listed):
    X, y = table
    X = X.assign(id=np.arange(40))
    K, ids = products(X), np.arange(40)
    kernel = Similarity(K, ids)
    views = beside([kernel] if listed else kernel)
    model = KernelFDA(views, cv=None).fit(X, y)
    before, names = model.decision_function(X), model.kernel_names_
    K[...] = 0.0
    assert_allclose(model.decision_function(X), before)
    ids[:] = ids[::-1].copy()
    assert_allclose(model.decision_function(X), before)
    other = KernelFDA(beside(Similarity(products(X), np.arange(40))), cv=None)
    assert_allclose(other.fit(X, y).decision_function(X), before)
    assert other.kernel_names_ == names


@pytest.mark.parametrize("features", ["nystroem", "exact"])
def test_explicit_features(table, features):
    X, y = table
    given = {"features": features, "n_features": 40, "random_state": 0, **PLAIN}
    found, wanted = (
        MultipleKernelFDA([("v", *view)], **given).fit(X, y).decision_function(X)
        for view in ((Similarity(products(X), IDS), "id"), ("linear", ["c", "d"]))
    )
    assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


def test_products_of_views_leave_ids_out(table):
    X, y = table
    views = [*beside(Similarity(products(X), IDS)), ("third", "rbf", ["c"])]
    model = MultipleKernelFDA(views, interactions=True, **PLAIN).fit(X, y)
    assert "between views" in model.view_weights_
    model = MultipleKernelFDA(views[:2], interactions=True, **PLAIN).fit(X, y)
    assert model.view_weights_.keys() == {"left", "right"}


@pytest.mark.parametrize("library", ["array_api_strict", "polars"])
def test_other_containers(table, library):
    lib = pytest.importorskip(library)
    X, y = table
    K = products(X)
    if library == "array_api_strict":
        rows = np.column_stack([X[["a", "b"]].to_numpy(), np.arange(40)])
        views = [("left", "linear", [0, 1]), ("right", Similarity(K, range(40)), [2])]
        rows = lib.asarray(rows)
    else:
        rows, views = lib.from_dict(X.to_dict("list")), beside(Similarity(K, IDS))
    found = output(KernelFDA(views, cv=None).fit(rows, y), rows)
    wanted = KernelFDA(beside(Similarity(K, IDS)), cv=None).fit(X, y)
    assert_allclose(found, wanted.decision_function(X), rtol=1e-6, atol=1e-8)


def test_single_precision_stays_single(table):
    X, y = table
    K = products(X).astype(np.float32)
    rows = np.column_stack([X[["a", "b"]].to_numpy(), np.arange(40)])
    views = [("left", "linear", [0, 1]), ("right", Similarity(K, range(40)), [2])]
    model = KernelFDA(views, cv=None).fit(rows.astype(np.float32), y)
    assert model.decision_function(rows.astype(np.float32)).dtype == np.float32


def test_called_with_ids(table):
    X, _ = table
    kernel = Similarity.from_distances(distances(X), IDS)
    rows, others = X[["c", "d"]].to_numpy()[:5], X[["c", "d"]].to_numpy()[5:15]
    assert_allclose(kernel(IDS[:5], IDS[5:15]), RBF()(rows, others))
    assert_allclose(kernel(IDS[:5]), RBF()(rows))


def test_frames_bring_their_ids(table):
    X, _ = table
    frame = pd.DataFrame(products(X), index=IDS, columns=IDS)
    assert_allclose(Similarity(frame)(["S07"], ["S31"]), [[frame.loc["S07", "S31"]]])
    with pytest.raises(ValueError, match=r"another order.*row 0 is 'S00'.*'S39'"):
        Similarity(frame[IDS[::-1]])(IDS)


@pytest.mark.parametrize("ids", [None, pd.Index(IDS)], ids=["own", "index"])
def test_models_with_frames_can_be_saved(ids, table, tmp_path):
    pytest.importorskip("skops")
    X, y = table
    frame = pd.DataFrame(products(X), index=IDS, columns=IDS)
    frame["S00"] = frame["S00"].astype(np.float32)  # another block of memory
    frame.loc["S00"] = frame["S00"]
    kernel = Similarity(frame, ids)
    assert clone(kernel).K is frame
    pd.testing.assert_frame_equal(
        pickle.loads(pickle.dumps(kernel)).K, frame.astype(float)
    )
    model = KernelFDA(beside(kernel), alpha=0.1, cv=None).fit(X, y)
    save(model, tmp_path / "model.kw")
    again = load(tmp_path / "model.kw")
    assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert again.views[1][1] == kernel


# Rows that are not there --------------------------------------------------------------


def test_unknown_ids_are_an_error_with_examples(table):
    X, y = table
    views = beside(Similarity(products(X), IDS))
    model = KernelFDA(views, cv=None, missing="error").fit(X, y)
    new = X.assign(id=["new", *IDS[1:]])
    with pytest.raises(
        ValueError, match=r"'right': Similarity lacks 1 id.*'new'.*has 40"
    ):
        model.predict(new)
    with pytest.raises(ValueError, match=r"differently, such as ' s00' for 'S00'"):
        model.predict(X.assign(id=" " + X["id"].str.lower()))


@every_estimator
@pytest.mark.filterwarnings("ignore:.* the view 'right'")
def test_unknown_ids_lack_the_view(estimator, table):
    X, y = table
    X.loc[[2, 7], ["c", "d"]] = np.nan  # the samples that were never compared
    known = X["c"].notna()
    ids = X["id"][known].tolist()
    K = products(X[known])
    X.loc[7, "id"] = None
    found = clone(estimator).set_params(views=beside(Similarity(K, ids)))
    wanted = clone(estimator).set_params(views=beside("linear", ["c", "d"]))
    found.set_params(missing="zero").fit(X, y)
    wanted.set_params(missing="zero").fit(X, y)
    expected = output(wanted, X)
    size = np.abs(expected).max()
    assert_allclose(output(found, X), expected, rtol=1e-5, atol=1e-5 * size)
    with pytest.raises(ValueError, match=r"differently, such as 's00' for 'S00'"):
        output(found, X.assign(id=X["id"].str.lower()))


# Matrices that are none ---------------------------------------------------------------


def test_distances_are_recognised(table):
    X, y = table
    D = distances(X)
    with pytest.raises(
        ValueError, match=r"'right'.*distances.*from_distances\(D, ids\)"
    ):
        KernelFDA(beside(Similarity(D, IDS)), cv=None).fit(X, y)
    with pytest.raises(ValueError, match="must be >= 0, and 0 on the diagonal"):
        Similarity.from_distances(np.exp(-D), IDS)
    with pytest.raises(ValueError, match="'S00' and 'S01' is -1"):
        D[0, 1] = D[1, 0] = -1.0
        Similarity.from_distances(D, IDS)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda K: (K[:, :30], IDS), "must be square"),
        (lambda K: (K, IDS[:30]), "30 ids, but the matrix has 40"),
        (lambda K: (K, [*IDS[:39], "S00"]), r"'S00' \(2 rows\)"),
        (lambda K: (K, None), "needs ids"),
        (
            lambda K: (np.where(np.eye(40) > 0, np.nan, K), IDS),
            "'S00' and 'S00' is nan",
        ),
        (lambda K: (np.triu(K), IDS), "not symmetric"),
    ],
)
def test_matrices_that_do_not_fit(table, change, match):
    X, y = table
    with pytest.raises(ValueError, match=match):
        KernelFDA(beside(Similarity(*change(products(X)))), cv=None).fit(X, y)


def test_one_similarity_per_view_on_one_column(table):
    X, y = table
    kernel = Similarity(products(X), IDS)
    for spec, columns, match in (
        ([kernel, "linear"], "id", "a view of its own"),
        (Pipe(Standardizer(), kernel), "id", "without Pipe"),
        (kernel, ["id", "a"], "one column of ids"),
    ):
        with pytest.raises((TypeError, ValueError), match=match):
            KernelFDA(beside(spec, columns), cv=None).fit(X, y)


def test_labels_state_the_width_if_there_is_one():
    D = np.ones((3, 3)) - np.eye(3)
    assert Similarity(np.eye(3), list("abc")).label == "Similarity(3 samples)"
    wide = Similarity.from_distances(D, list("abc"), gamma=0.5)
    assert wide.label == "Similarity(3 samples, gamma=0.5)"


def test_centring_states_its_repair():
    """Four points pairwise at 2 and all at 1 from a fifth cannot be: 4/3 > 1."""
    D = np.full((5, 5), 2.0) - 2.0 * np.eye(5)
    D[4, :4] = D[:4, 4] = 1.0
    J = np.eye(5) - 0.2
    values = np.linalg.eigvalsh(-0.5 * J @ D**2 @ J)
    share = -values[values < 0].sum() / np.abs(values).sum()
    with pytest.warns(KernelWarning, match=r"1 negative .*removed 6\.\d % of the"):
        kernel = Similarity.from_distances(D, list("abcde"), method="centring")
    assert_allclose(kernel.removed, share)
    assert_allclose(clone(kernel).removed, share)
    assert np.linalg.eigvalsh(kernel.K)[0] > -1e-12
