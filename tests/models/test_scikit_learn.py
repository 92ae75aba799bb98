"""Use with scikit-learn's tools: searches, pipelines, frames, copies, files."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import sklearn
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.compose import make_column_selector
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import (
    GridSearchCV,
    KFold,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import has_fit_parameter

from estimators import (
    EXPLICIT,
    ONE_EACH,
    SETTINGS,
    WITH_FOLDS,
    every_estimator,
    has,
    in_turn,
    output,
    some,
)
from kernelweave import (
    KernelFDA,
    MultipleKernelFDA,
    ProbabilisticKDA,
)
from kernelweave.kernels import RBF, Linear, Pipe

#: What other tools do with a model does not depend on its data.
pytestmark = pytest.mark.one_seed

CLASSIFIERS = some((*ONE_EACH, "MultipleKernelFDA"), has("predict_proba"))
every_scorer = pytest.mark.parametrize("estimator", some(ONE_EACH, has("score")))


@pytest.fixture
def problem(make_problem):
    return make_problem(3, n=42, separation=3.0)


#: Fits to the rows of ``problem``, each made once.
FITS = {}


@pytest.fixture
def fit_of(problem):
    """A function that returns the fit of an estimator, which must not be changed."""

    def fit(estimator):
        model = clone(estimator).set_params(views=problem.views)
        if repr(estimator) not in FITS:
            FITS[repr(estimator)] = model.fit(problem.X, problem.y)
        return FITS[repr(estimator)]

    return fit


def width_of(model):
    """Number of coordinates for three classes: Fisher's two, or one per class."""
    return 2 if isinstance(model, KernelFDA | MultipleKernelFDA) else 3


# Cross-validation ---------------------------------------------------------------------


@every_scorer
def test_cross_validation_cuts_kernels_rightly(estimator, problem):
    model = clone(estimator).set_params(views="precomputed")
    folds = KFold(2, shuffle=True, random_state=0)
    K, y = problem.K, problem.y
    by_hand = []
    for train, test in folds.split(y):
        part = clone(model).fit(K[np.ix_(train, train)], y[train])
        by_hand.append(part.score(K[np.ix_(test, train)], y[test]))
    assert_allclose(cross_val_score(model, K, y, cv=folds), by_hand)
    if isinstance(model, ProbabilisticKDA):  # columns know k(x, x), and scores use it
        return
    columns = clone(model).set_params(views=problem.views)
    assert_allclose(
        cross_val_score(columns, problem.X, y, cv=folds), by_hand, rtol=1e-6
    )


@in_turn(
    estimator=CLASSIFIERS, method=["predict", "predict_proba", "decision_function"]
)
def test_cross_val_predict(estimator, method, problem):
    model = clone(estimator).set_params(views=problem.views)
    folds = list(StratifiedKFold(2).split(problem.X, problem.y))
    parts = [clone(model).fit(problem.X[rows], problem.y[rows]) for rows, _ in folds]
    found = cross_val_predict(model, problem.X, problem.y, cv=2, method=method)
    assert found.shape == ((42,) if method == "predict" else (42, 3))
    expected = np.empty_like(found)
    for part, (_, test) in zip(parts, folds, strict=True):
        expected[test] = getattr(part, method)(problem.X[test])
    assert_allclose(found, expected)


def test_grid_search_reaches_into_views(problem):
    views = [("rna", RBF(gamma=1.0), slice(0, 6)), ("dna", [Linear(), RBF()], [6, 7])]
    grid = {
        "rna__gamma": [1e-6, 0.1],
        "dna__1__gamma": [0.5],
        "norm": [1, 2],
        "alpha": [0.1, "learn"],
    }
    search = GridSearchCV(
        MultipleKernelFDA(views, cv=None), grid, cv=2, error_score="raise"
    )
    search.fit(problem.X, problem.y)
    assert len(search.cv_results_["params"]) == 8
    best = search.best_estimator_
    assert best.views[0][1].gamma == search.best_params_["rna__gamma"]
    assert views[0][1].gamma == 1.0, "the user's own kernel was changed"
    assert f"gamma={search.best_params_['rna__gamma']:.3g}" in best.kernel_names_[0]
    labels = search.predict(problem.new)
    assert np.array_equal(labels, best.predict(problem.new))


def test_grid_search_on_kernels(problem):
    search = GridSearchCV(
        KernelFDA("precomputed", cv=None),
        {"alpha": [1e-3, 0.1, "loo"]},
        cv=2,
        error_score="raise",
    )
    search.fit(problem.K, problem.y)
    assert search.score(problem.new_K, problem.new_y) > 0.3  # measured: 0.56 to 1


@every_scorer
def test_metadata_routing(estimator, problem):
    model = clone(estimator).set_params(views=problem.views)
    expected = cross_validate(model, problem.X, problem.y, cv=2)["test_score"]
    weight = np.arange(1.0, 43.0)
    with sklearn.config_context(enable_metadata_routing=True):
        found = cross_validate(model, problem.X, problem.y, cv=2)["test_score"]
        model = model.set_score_request(sample_weight=True)
        if has_fit_parameter(model, "sample_weight"):
            model = model.set_fit_request(sample_weight=True)
        weighted = cross_validate(
            model, problem.X, problem.y, cv=2, params={"sample_weight": weight}
        )["test_score"]
    assert_allclose(found, expected)
    assert weighted.shape == found.shape


# Pipelines ----------------------------------------------------------------------------


@every_estimator
def test_pipeline(estimator, problem):
    model = clone(estimator).set_params(views=problem.views)
    pipeline = make_pipeline(StandardScaler(), model).fit(problem.X, problem.y)
    scaler = StandardScaler().fit(problem.X)
    expected = clone(model).fit(scaler.transform(problem.X), problem.y)
    assert_allclose(
        output(pipeline, problem.new), output(expected, scaler.transform(problem.new))
    )


@pytest.mark.parametrize("estimator", CLASSIFIERS)
def test_as_transformer(estimator, problem, fit_of):
    model = clone(estimator).set_params(views=problem.views)
    pipeline = make_pipeline(model, KNeighborsClassifier(5))
    pipeline.fit(problem.X, problem.y)
    assert pipeline[:-1].transform(problem.new).shape == (25, width_of(model))
    assert pipeline.score(problem.new, problem.new_y) > 0.3  # measured: 0.52 to 1
    both = clone(model).fit_transform(problem.X, problem.y)
    assert_allclose(both, fit_of(estimator).transform(problem.X))


def test_transformer_inside_a_view(problem):
    views = [("low", Pipe(PCA(2), [Linear(), RBF()]), slice(0, 6))]
    model = KernelFDA(views, cv=None).fit(problem.X, problem.y)
    assert len(model.kernel_names_) == 2
    assert all("PCA" in name for name in model.kernel_names_)
    low = PCA(2).fit(problem.X[:, :6])
    plain = KernelFDA([("low", [Linear(), RBF()], slice(None))], cv=None)
    plain.fit(low.transform(problem.X[:, :6]), problem.y)
    assert_allclose(
        plain.transform(low.transform(problem.new[:, :6])), model.transform(problem.new)
    )


@pytest.mark.parametrize("estimator", some(SETTINGS))
def test_dir_lists_what_there_is(estimator, fit_of):
    """It asks for each attribute, also for those that some settings lack."""
    model = fit_of(estimator)
    assert set(dir(model)) >= {"fit", *vars(model)}
    assert "fit" in dir(estimator)


# Subclasses ---------------------------------------------------------------------------


def fixed_in_instances(kind, fixed):
    """A subclass whose only parameter is ``views``; instances have the others."""

    class Own(kind):
        def __init__(self, views=None):
            super().__init__(**(fixed | {"views": views}))

    return Own


def fixed_in_class(kind, fixed):
    """The same, but the others are attributes of the class."""

    class Own(kind):
        def __init__(self, views=None):
            self.views = views

    for name in fixed.keys() - {"views"}:
        setattr(Own, name, fixed[name])
    return Own


@pytest.mark.parametrize("derived", [fixed_in_instances, fixed_in_class])
@pytest.mark.parametrize(
    "estimator",
    some((*ONE_EACH, *EXPLICIT))
    + some(WITH_FOLDS, has("partial_fit"), interactions=True, norm=1, alpha=0.1, cv=2)
    + some(["ProbabilisticKDA", "MixtureKDA"], cv=2)
    + some(["MultipleKernelSVC"], C="cv", norm="cv"),
)
def test_a_subclass_may_have_parameters_of_its_own(estimator, derived, problem, fit_of):
    kind = derived(type(estimator), estimator.get_params(deep=False))
    own = clone(kind(problem.views)).fit(problem.X, problem.y)
    expected = output(fit_of(estimator), problem.new)
    assert np.array_equal(output(own, problem.new), expected)


# Frames -------------------------------------------------------------------------------

NAMES = [f"gene{j}" for j in range(9)]
FRAME_VIEWS = [
    ("first", "rbf", ["gene0", "gene2"]),
    ("second", "linear", slice("gene3", "gene5")),
    ("third", "rbf", make_column_selector(pattern="gene[78]")),
]
POSITIONS = [
    ("first", "rbf", [0, 2]),
    ("second", "linear", [3, 4, 5]),
    ("third", "rbf", [7, 8]),
]


@every_estimator
def test_pandas(estimator, problem):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(problem.X, columns=NAMES)
    frame["comment"] = "text in a column of no view is nobody's business"
    model = clone(estimator).set_params(views=FRAME_VIEWS).fit(frame, problem.y)
    assert model.feature_names_in_.tolist() == [*NAMES, "comment"]
    assert model.n_features_in_ == 10
    plain = clone(estimator).set_params(views=POSITIONS).fit(problem.X, problem.y)
    assert_allclose(output(model, frame), output(plain, problem.X), rtol=1e-9)
    assert not hasattr(plain, "feature_names_in_")


@in_turn(
    estimator=some([*ONE_EACH, *EXPLICIT]),
    library=["polars", "pyarrow"],
    table=["DataFrame", "table"],
)
def test_other_tables(library, table, estimator, problem):
    columns = dict(zip(NAMES, problem.X.T, strict=True))
    columns["comment"] = ["text"] * len(problem.X)
    frame = getattr(pytest.importorskip(library), table)(columns)
    views = FRAME_VIEWS[:2]
    model = clone(estimator).set_params(views=views).fit(frame, problem.y)
    assert model.feature_names_in_.tolist() == [*NAMES, "comment"]
    plain = clone(estimator).set_params(views=POSITIONS[:2]).fit(problem.X, problem.y)
    assert_allclose(output(model, frame), output(plain, problem.X), rtol=1e-9)


def test_labels_in_a_series(problem):
    pd = pytest.importorskip("pandas")
    names = np.array(["a", "b", "c"])
    labels = pd.Series(names[problem.y], index=np.arange(42)[::-1])
    model = KernelFDA(problem.views, cv=None).fit(problem.X, labels)
    assert model.classes_.tolist() == ["a", "b", "c"]
    assert model.score(problem.X, labels) == np.mean(
        model.predict(problem.X) == names[problem.y]
    )
    categories = labels.astype("category")
    assert KernelFDA(problem.views, cv=None).fit(
        problem.X, categories
    ).classes_.tolist() == [
        "a",
        "b",
        "c",
    ]


@in_turn(estimator=CLASSIFIERS, library=["pandas", "polars"])
def test_names_of_coordinates(estimator, library, problem, fit_of):
    pytest.importorskip(library)
    model = copy.deepcopy(fit_of(estimator))
    name = type(model).__name__.lower()
    names = [f"{name}{i}" for i in range(width_of(model))]
    assert model.get_feature_names_out().tolist() == names
    plain = model.transform(problem.new)
    model.set_output(transform=library)
    frame = model.transform(problem.new)
    assert type(frame).__module__.startswith(library)
    assert list(frame.columns) == names
    assert_allclose(frame.to_numpy(), plain)


# Copies and files ---------------------------------------------------------------------


@in_turn(estimator=some(), kind=["views", "precomputed"])
def test_pickle(estimator, kind, problem, fit_of):
    if kind == "views":
        model, new = fit_of(estimator), problem.new
    else:
        model, new = clone(estimator).set_params(views="precomputed"), problem.new_K
        model.fit(problem.K, problem.y)
    twin = pickle.loads(pickle.dumps(model))
    assert np.array_equal(output(twin, new), output(model, new))
    assert np.array_equal(twin.kernel_weights_, model.kernel_weights_)
    if hasattr(model, "certificate_"):
        assert twin.certificate_ == model.certificate_


def test_fitted_precomputed_model_does_not_keep_the_kernels(problem):
    model = KernelFDA("precomputed", cv=None).fit(problem.K, problem.y)
    assert len(pickle.dumps(model)) < problem.K.nbytes / 5


@every_estimator
def test_clone_is_not_fitted(estimator, problem, fit_of):
    model = fit_of(estimator)
    twin = clone(model)
    assert repr(twin) == repr(model)
    with pytest.raises(NotFittedError, match="not fitted yet"):
        output(twin, problem.new)
    assert_allclose(
        output(twin.fit(problem.X, problem.y), problem.new), output(model, problem.new)
    )


@every_estimator
def test_refit_forgets(estimator, problem):
    model = clone(estimator).set_params(views=problem.views)
    fresh = clone(model).fit(problem.X[:30], problem.y[:30])
    again = model.fit(problem.X, problem.y).fit(problem.X[:30], problem.y[:30])
    assert np.array_equal(output(fresh, problem.new), output(again, problem.new))
    assert fresh.kernel_map_.remarks == again.kernel_map_.remarks


@every_estimator
def test_html_representation(estimator, problem, fit_of):
    model = clone(estimator).set_params(views=problem.views)
    assert type(model).__name__ in model._repr_html_()
    assert type(model).__name__ in fit_of(estimator)._repr_html_()


@every_estimator
def test_names_and_weights_belong_together(estimator, fit_of):
    model = fit_of(estimator)
    assert len(model.kernel_names_) == len(model.kernel_weights_) == 5
    assert list(model.view_weights_) == ["first", "second", "third"]
    sums = [
        sum(
            float(weight)
            for name, weight in zip(
                model.kernel_names_, model.kernel_weights_, strict=True
            )
            if name.startswith(f"{view}: ")
        )
        for view in model.view_weights_
    ]
    assert_allclose(list(model.view_weights_.values()), sums)
    assert all(type(weight) is float for weight in model.view_weights_.values())


@pytest.mark.parametrize("estimator", some())
def test_fit_needs_an_instance(estimator, problem):
    with pytest.raises(TypeError, match=r"\.fit needs an estimator .*make an inst"):
        type(estimator).fit(problem.X, problem.y)
