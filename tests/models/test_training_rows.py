"""What models keep of the training rows: what kernels see, after their transformers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array, issparse
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from estimators import EXPLICIT, ONE_EACH, ask, output, some, takes, targets_for
from kernelweave import (
    KernelFDA,
    MixtureKDA,
    MultipleKernelFDA,
    MultipleKernelRidge,
    load,
    save,
)
from kernelweave.exceptions import KernelWarning
from kernelweave.inspection import feature_importance, view_permutation_importance
from kernelweave.inspection._rows import rows_kept_in_words
from kernelweave.kernels import Pipe, Standardizer

pytestmark = pytest.mark.one_seed

N, NEW = 30, 6
#: How often each transformer, by its id, has transformed each row, by its first cell.
CALLS: dict[int, Counter] = {}


class Counting(TransformerMixin, BaseEstimator):
    """Doubles its columns, and notes which rows it transforms."""

    def fit(self, X, y=None):
        self.n_features_in_ = X.shape[1]
        return self

    def transform(self, X):
        first = X[:, [0]].toarray() if issparse(X) else np.asarray(X)[:, [0]]
        CALLS.setdefault(id(self), Counter()).update(first.ravel().tolist())
        return 2.0 * X

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


def rows(kind="dense"):
    """Rows whose first cells all differ, and their classes."""
    rng = np.random.default_rng(0)
    codes = np.arange(N + NEW) % 3
    X = rng.normal(size=(N + NEW, 4))
    X[:, 1] += codes
    if kind == "missing":
        X[:N:5, 3] = np.nan
        X[2 : N + NEW : 10, :3] = np.nan
    if kind == "single precision":
        X = X.astype(np.float32)
    return (csr_array(X) if kind == "sparse" else X), codes


def views():
    piped = Pipe(Counting(), ["linear", "rbf", Pipe(Standardizer(), ["rbf", "linear"])])
    return [("piped", [piped, "rbf"], [0, 1, 2]), ("plain", "rbf", [3])]


KINDS = ["dense", "single precision", "missing", "sparse"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("estimator", some())
def test_each_row_is_transformed_once(estimator, kind):
    """Of a fit; and none of them again for predictions."""
    X, codes = rows(kind)
    model = estimator.set_params(views=views())
    if kind == "missing":
        model.set_params(missing="zero")
    CALLS.clear()
    model.fit(X[:N], targets_for(model, codes[:N]))
    counts = [count for rows in CALLS.values() for count in rows.values()]
    assert counts and set(counts) == {1}
    CALLS.clear()
    ask(model, X[N:])
    training = X[:N].toarray()[:, 0] if issparse(X) else X[:N, 0]
    transformed = {row for rows in CALLS.values() for row in rows}
    assert transformed and not transformed & set(training.tolist())


@pytest.mark.parametrize("estimator", some(ONE_EACH, takes("features")))
def test_on_the_fly_each_row_is_transformed_once(estimator):
    X, codes = rows()
    model = estimator.set_params(views=views(), features="on_the_fly")
    CALLS.clear()
    model.fit(X[:N], targets_for(model, codes[:N]))
    assert {count for seen in CALLS.values() for count in seen.values()} == {1}
    CALLS.clear()
    ask(model, X[N:])
    assert {row for seen in CALLS.values() for row in seen} == {*X[N:, 0].tolist()}


@pytest.mark.parametrize("estimator", some(EXPLICIT))
@pytest.mark.parametrize("n_features", [4, 20])
def test_explicit_features_of_new_rows_see_no_training_row(estimator, n_features):
    """A fit transforms the sample that fixes the features, all rows for these, and the
    probe once for its error and twice for its projections: no row is kept for later.
    """
    X, codes = rows()
    model = estimator.set_params(views=views(), n_features=n_features)
    CALLS.clear()
    model.fit(X[:N], targets_for(model, codes[:N]))
    assert max(count for seen in CALLS.values() for count in seen.values()) <= 5
    CALLS.clear()
    ask(model, X[N:])
    assert {row for seen in CALLS.values() for row in seen} == {*X[N:, 0].tolist()}


def test_kernels_behind_a_transformer_share_its_result():
    X, codes = rows()
    source = KernelFDA(views(), cv=None).fit(X, codes).kernel_map_.source
    # doubled: around the mean for the linear kernel, plain, standardised; as they are
    assert len(source.features) == 5
    assert source.feature_of == [0, 1, 2, 2, 3, 4]
    assert_allclose(source.features[1], 2.0 * X[:, :3])
    assert_array_equal(source.features[3], X[:, :3])
    assert source.blocks is None


def frame():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    words = np.array([f"word{i}x" for i in range(9)])
    texts = [" ".join(rng.choice(words, 6)) for _ in range(N + NEW)]
    assert len(set(texts)) == N + NEW
    return pd.DataFrame(
        {
            "text": texts,
            "size": rng.normal(size=N + NEW),
            "dose": np.where(np.arange(N + NEW) % 6, rng.normal(size=N + NEW), np.nan),
            "ward": rng.choice(["eastward", "westward"], N + NEW),
        }
    ), np.arange(N + NEW) % 2


def test_a_view_from_which_nothing_is_learned_keeps_no_cells():
    X, codes = frame()
    constant = ("constant", Pipe(TfidfVectorizer(), "linear"), ["note"])
    model = MixtureKDA([constant, ("size", "rbf", ["size"])])
    with pytest.warns(KernelWarning, match="constant on the training rows"):
        model.fit(X.assign(note="the same words"), codes)
    assert [part.source.blocks for part in model.kernel_map_.parts] == [None, None]


MIXED = make_column_transformer(
    (StandardScaler(), ["size"]), (OneHotEncoder(), ["ward"]), remainder="drop"
)
READ = [
    ("text", Pipe(TfidfVectorizer(), ["linear", "rbf"]), ["text"]),
    ("mixed", Pipe(MIXED, "auto"), ["size", "ward"]),
    ("auto", "auto", ["size", "dose", "ward"]),
]


@pytest.mark.parametrize("estimator", some())
def test_a_file_has_no_cell_of_a_table(estimator, tmp_path):
    pytest.importorskip("skops")
    X, codes = frame()
    model = estimator.set_params(views=READ)
    model.fit(X[:N], targets_for(model, codes[:N]))
    path = tmp_path / "model.kw"
    save(model, path)
    content = path.read_bytes()
    for text in X["text"]:
        assert text.encode() not in content
    for name in "size", "dose":
        column = X[name][:N].dropna()
        # the median, which fills gaps, is one of an odd number of cells
        assert sum(value.tobytes() in content for value in column.to_numpy()) <= 1
        assert not any(repr(value).encode() in content for value in column.tolist())
    same = load(path)
    assert_array_equal(output(same, X[N:]), output(model, X[N:]))
    assert_array_equal(output(same, X[:N]), output(model, X[:N]))


@pytest.mark.parametrize("kind", [MultipleKernelFDA, MultipleKernelRidge])
@pytest.mark.parametrize("resumable", [True, False])
def test_a_file_of_batches_has_no_cell_of_a_table(kind, resumable, tmp_path):
    pytest.importorskip("skops")
    X, codes = frame()
    model = kind(READ, norm=1, alpha=0.1, features="nystroem", n_features=5, cv=None)
    y = targets_for(model, codes)
    once = clone(model).partial_fit(X, y)
    model.partial_fit(X[:20], y[:20])
    path = tmp_path / "model.kw"
    save(model, path, resumable=resumable)
    content = path.read_bytes()
    assert not any(text.encode() in content for text in X["text"])
    same = load(path)
    assert_array_equal(output(same, X), output(model, X))
    if resumable:
        model.partial_fit(X[20:], y[20:])
        same.partial_fit(X[20:], y[20:])
        assert_array_equal(output(same, X), output(model, X))
        assert same._portions.n_kept == once._portions.n_kept


def shared_words(A, B):
    """How many words two texts share."""
    first, second = ([set(text.split()) for text in texts] for texts in (A, B))
    return np.array([[float(len(a & b)) for b in second] for a in first])


def test_only_what_a_function_reads_is_kept_as_it_is(tmp_path):
    pytest.importorskip("skops")
    X, codes = frame()
    model = KernelFDA([*READ[1:], ("words", shared_words, ["text"])], cv=None)
    model.fit(X[:N], codes[:N])
    save(model, tmp_path / "model.kw")
    content = (tmp_path / "model.kw").read_bytes()
    assert all(text.encode() in content for text in X["text"][:N])
    assert not any(value.tobytes() in content for value in X["size"][:N].to_numpy())
    same = load(tmp_path / "model.kw", trusted=[f"{__name__}.shared_words"])
    assert_array_equal(output(same, X), output(model, X))
    assert "30 training rows with the cells of the table that a kernel function" in (
        rows_kept_in_words(same)
    )


@pytest.mark.parametrize("kind", KINDS[::3])
def test_gradients_need_rows_only_behind_a_transformer(kind):
    """Centred and scaled rows are as good as the rows themselves."""
    X, codes = rows(kind)
    scaled = ["auto", "linear", Pipe(Standardizer(), "rbf")]
    if kind != "sparse":
        scaled.append(Pipe(StandardScaler(), "rbf"))
    model = KernelFDA([("v", scaled[2:], [0, 1, 2]), ("w", "rbf", [3])], cv=None)
    model.fit(X, codes)
    again = KernelFDA([("v", scaled, [0, 1, 2]), ("w", "rbf", [3])], cv=None)
    again.fit(X, codes)
    for one in model, again:
        kept, given = (feature_importance(one, "v", X=rows_) for rows_ in (None, X))
        for key in "coefficient", "importance", "deviation":
            first, second = ([row[key] for row in found] for found in (kept, given))
            assert_allclose(first, second, rtol=1e-9)
    model.set_params(views=[("v", Pipe(Counting(), "rbf"), [0, 1, 2])]).fit(X, codes)
    with pytest.raises(ValueError, match=r"after Counting, not .*pass the rows"):
        feature_importance(model, "v")
    assert len(feature_importance(model, "v", X=X)) == 9


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_training_rows_are_told_by_their_digests(kind):
    X, codes = rows(kind)
    model = KernelFDA(views(), cv=None).fit(X[:N], codes[:N])
    for some_rows, y, words in (
        (X[:N], codes[:N], "all of them training rows"),
        (X[N - 2 :], codes[N - 2 :], "2 of them training rows"),
        (X[N:], codes[N:], "none of them a training row"),
        (X[:N].astype(np.float32), codes[:N], "all of them training rows"),
    ):
        found = view_permutation_importance(model, some_rows, y, n_repeats=1)
        assert words in str(found)
