"""New data with column names: every estimator finds its columns by name."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    StackingClassifier,
)
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import SelfTrainingClassifier

from estimators import EXPLICIT, ONE_EACH, in_turn, some
from kernelweave import KernelFDA
from kernelweave.models.streaming.intake import SAMPLE_ROWS

#: Where a column is found does not depend on what is in it.
pytestmark = pytest.mark.one_seed

pd = pytest.importorskip("pandas")

NAMED = (*ONE_EACH, "KernelAlignment-features")
every_estimator = pytest.mark.parametrize("estimator", some((*NAMED, *EXPLICIT)))
METHODS = (
    "predict",
    "transform",
    "decision_function",
    "predict_proba",
    "predict_log_proba",
    "kernel",
    "sample_weights",
)
NAMES = list("abcdef")
#: Equivalent specifications; "unused" is a column in no view.
VIEWS = {
    "names": [("left", "linear", ["a", "b"]), ("right", "rbf", slice("b", "d"))],
    "positions": [("left", "linear", [0, 1]), ("right", "rbf", slice(1, 4))],
    "function": [
        ("left", "linear", lambda X: [0, 1]),
        ("right", "rbf", [False, True, True, True, False, False, False]),
    ],
}


@pytest.fixture
def table(rng):
    """40 rows of two classes in six columns, with text in a seventh."""
    y = np.tile([0, 1], 20)
    X = rng.normal(size=(40, 6))
    X[:, 0] += 2 * y
    X[:, 2] += y
    index = [f"patient {i}" for i in range(40)]
    return pd.DataFrame(X, columns=NAMES, index=index).assign(unused="text"), y


def answers(model, X):
    """The results of all methods on the rows of X, by name of the method."""
    found = {name: getattr(model, name) for name in METHODS if hasattr(model, name)}
    assert found
    return {name: np.asarray(method(X)) for name, method in found.items()}


def assert_same_answers(found, expected):
    for name, values in expected.items():
        assert_allclose(found[name], values, rtol=1e-9, atol=1e-11, err_msg=name)


def mixed_up(frame):
    """Columns reordered, new ones of all kinds (one of them twice), one removed."""
    frame = frame.drop(columns="unused")[list("dcfbea")]
    frame.insert(2, "new", "text")
    frame.insert(0, "when", pd.Timestamp("2001-01-01"))
    frame.insert(5, "when", np.nan, allow_duplicates=True)
    return frame


@in_turn(
    estimator=some((*NAMED, *EXPLICIT)),
    views=[pytest.param(views, id=name) for name, views in VIEWS.items()],
)
def test_order_and_other_columns_do_not_matter(estimator, views, table):
    X, y = table
    model = clone(estimator).set_params(views=views).fit(X, y)
    expected = answers(model, X)
    assert_same_answers(answers(model, mixed_up(X)), expected)
    assert model.feature_names_in_.tolist() == [*NAMES, "unused"]
    assert model.n_features_in_ == 7
    if hasattr(model, "score"):
        assert model.score(mixed_up(X), y) == pytest.approx(model.score(X, y))


@every_estimator
def test_without_views_all_columns_of_fit_are_needed(estimator, table):
    X, y = table[0][NAMES], table[1]
    model = clone(estimator).fit(X, y)
    expected = answers(model, X)
    assert_same_answers(answers(model, mixed_up(X.assign(unused=1))), expected)
    with pytest.raises(ValueError, match=r"lacks the column 'e' \(view 'all'\)"):
        answers(model, X.drop(columns="e"))


@in_turn(estimator=some((*NAMED, *EXPLICIT)), library=["polars", "pyarrow"])
def test_other_tables(estimator, library, table):
    """Fitted on a pandas frame, predicting for a table of another library."""
    pytest.importorskip(library)
    X, y = table
    model = clone(estimator).set_params(views=VIEWS["names"]).fit(X, y)
    frame = X[["unused", *"cabd"]]
    if library == "polars":
        import polars

        new = polars.DataFrame(frame.to_dict("list"))
    else:
        import pyarrow

        new = pyarrow.Table.from_pandas(frame, preserve_index=False)
    assert_same_answers(answers(model, new), answers(model, X))


@every_estimator
def test_what_is_missing_is_named_and_nothing_changes(estimator, table):
    X, y = table
    model = clone(estimator).set_params(views=VIEWS["names"]).fit(X, y)
    before, expected = dict(vars(model)), answers(model, X)
    for name in expected:
        method = getattr(model, name)
        lacks = r"lacks the columns 'b' \(views 'left', 'right'\), 'c' \(view 'right'"
        with pytest.raises(ValueError, match=lacks):
            method(X[["a", "d", "unused"]])
        several = r"repeats the column name 'd' \(view 'right'\)"
        with pytest.raises(ValueError, match=several):
            method(X[[*"abcd", "d"]])
        with (
            pytest.warns(UserWarning, match="X does not have valid feature names"),
            pytest.raises(ValueError, match=r"X has 6 features, .* expecting 7"),
        ):
            method(X[NAMES].to_numpy())
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())
    assert_same_answers(answers(model, X), expected)


@every_estimator
def test_arrays_are_read_by_position(estimator, table):
    X, y = table
    model = clone(estimator).set_params(views=VIEWS["positions"]).fit(X, y)
    expected = answers(model, X)
    for name, values in expected.items():
        with pytest.warns(UserWarning, match="X does not have valid feature names"):
            found = getattr(model, name)(X.to_numpy())
        assert_allclose(found, values, rtol=1e-9, atol=1e-11)


@in_turn(estimator=some(NAMED), missing=["available", "zero"])
@pytest.mark.filterwarnings("ignore:.* the view 'right'")
def test_gaps_go_with_their_columns(estimator, missing, table):
    X, y = table
    views = [("left", "linear", ["a", "b"]), ("right", "rbf", ["c", "d"])]
    X.loc[X.index[:4], ["a", "b"]] = np.nan
    X.loc[X.index[8:11], ["c", "d"]] = np.nan
    model = clone(estimator).set_params(views=views, missing=missing).fit(X, y)
    assert_same_answers(answers(model, mixed_up(X)), answers(model, X))


def test_output_keeps_the_index_of_new_rows(table):
    X, y = table
    model = KernelFDA(VIEWS["names"], cv=None).set_output(transform="pandas").fit(X, y)
    found = model.transform(mixed_up(X)[::-1])
    assert found.index.tolist() == X.index.tolist()[::-1]
    assert_allclose(found[::-1], model.transform(X), rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("estimator", some(EXPLICIT))
def test_later_portions_find_their_columns(estimator, table):
    X, y = pd.concat([table[0]] * 100), np.tile(table[1], 100)
    model = clone(estimator).set_params(views=VIEWS["names"], n_features=2)
    parts = [slice(0, 2500), slice(2500, 3000), slice(3000, 4000)]
    assert parts[0].stop > SAMPLE_ROWS  # the features are fixed by then
    tables = [X, mixed_up(X), X[[*"dcba", "unused"]]]
    plain = [(X[part], y[part]) for part in parts]
    other = [(rows[part], y[part]) for rows, part in zip(tables, parts, strict=True)]
    expected = answers(clone(model).fit(iter(plain)), X)
    assert_same_answers(answers(clone(model).fit(iter(other)), X), expected)
    found, expected = clone(model), clone(model)
    for (rows, targets), (same_rows, _) in zip(other, plain, strict=True):
        found.partial_fit(rows, targets)
        expected.partial_fit(same_rows, targets)
    expected = answers(expected, X)
    assert_same_answers(answers(found, X), expected)
    lacks = r"starts at row 4,000 .*lacks the column 'd' \(view 'right'\)"
    with pytest.raises(ValueError, match=lacks):
        found.partial_fit(X[["a", "b", "c"]], y)
    assert_same_answers(answers(found.partial_fit(), X), expected)


#: Tools of scikit-learn that pass tables on, and those that pass on arrays.
KEEP_NAMES = {
    "calibration": lambda model: CalibratedClassifierCV(model, cv=2),
    "stacking": lambda model: StackingClassifier([("one", model)], cv=2),
    "one against the rest": OneVsRestClassifier,
    "scaler": lambda model: make_pipeline(
        StandardScaler().set_output(transform="pandas"), model
    ),
    "columns": lambda model: make_pipeline(
        ColumnTransformer(
            [("scaled", StandardScaler(), NAMES)], verbose_feature_names_out=False
        ).set_output(transform="pandas"),
        model,
    ),
}
LOSE_NAMES = {
    "bagging": lambda model: BaggingClassifier(model, n_estimators=2, random_state=0),
    "boosting": lambda model: AdaBoostClassifier(model, n_estimators=2),
    "self-training": SelfTrainingClassifier,
    "one against one": OneVsOneClassifier,
    "scaler": lambda model: make_pipeline(StandardScaler(), model),
}


@pytest.mark.parametrize("tool", KEEP_NAMES)
def test_names_inside_other_tools(tool, table):
    X, y = table
    model = KernelFDA(VIEWS["names"], alpha=0.1, cv=None)
    found = KEEP_NAMES[tool](model).fit(X[NAMES], y)
    assert found.score(X[NAMES], y) > 0.7  # measured: 0.92 to 0.95


@pytest.mark.filterwarnings("ignore:y contains no unlabeled samples")
@pytest.mark.parametrize("tool", LOSE_NAMES)
def test_other_tools_that_pass_on_arrays(tool, table):
    X, y = table
    model = KernelFDA(VIEWS["names"], alpha=0.1, cv=None)
    wanted = r"View 'left': the column 'a' is given by name.*arrays: give positions"
    with pytest.raises(ValueError, match=wanted):
        LOSE_NAMES[tool](model).fit(X[NAMES], y)
    model.set_params(views=VIEWS["positions"])
    found = LOSE_NAMES[tool](model).fit(X[NAMES], y)
    assert found.score(X[NAMES], y) > 0.7  # measured: 0.92 to 0.95
