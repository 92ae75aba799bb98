"""A minimal estimator on views: scikit-learn's checks, pipelines and searches."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import ClassifierMixin, clone
from sklearn.datasets import load_iris
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import LabelBinarizer, StandardScaler
from sklearn.utils import assert_all_finite, column_or_1d
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    check_consistent_length,
    check_is_fitted,
)

from kernelweave._array import is_numpy, to_numpy
from kernelweave.kernels.functions import RBF, Linear, Pipe
from kernelweave.kernels.spec import resolve_kernels
from kernelweave.models.shared.base import KernelModel
from kernelweave.views.columns import (
    column_names,
    is_precomputed,
    parse_views,
    resolve_columns,
    split_views,
    validate_features,
    validate_new,
)
from kernelweave.views.precomputed import validate_precomputed


class MeanKernelRidge(ClassifierMixin, KernelModel):
    """Ridge regression on class indicators with the mean of all kernels."""

    def __init__(self, views=None, alpha=1.0):
        self.views = views
        self.alpha = alpha

    def __sklearn_is_fitted__(self):
        return hasattr(self, "dual_coef_")

    def fit(self, X, y):
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        K = self._training_kernel(X)
        y = column_or_1d(y, warn=True)
        assert_all_finite(y)
        check_consistent_length(K, y)
        check_classification_targets(y)
        self.encoder_ = LabelBinarizer(neg_label=-1).fit(y)
        self.classes_ = self.encoder_.classes_
        if len(self.classes_) < 2:
            raise ValueError("one class only")
        target = self.encoder_.transform(y)
        self.dual_coef_ = np.linalg.solve(K + self.alpha * np.eye(len(K)), target)
        return self

    def _training_kernel(self, X):
        if is_precomputed(self.views):
            K, self.kernel_names_ = validate_precomputed(self, X, reset=True)
            return K.mean(axis=2)
        self.views_ = parse_views(self.views, reserved=self.get_params(deep=False))
        X = validate_features(self, X, reset=True)
        self.positions_ = resolve_columns(X, self.views_)
        self.blocks_ = split_views(X, self.views_, self.positions_)[0]
        self.kernels_ = [
            resolve_kernels(view.kernel, block, view.name)
            for view, block in zip(self.views_, self.blocks_, strict=True)
        ]
        return self._mean_kernel(self.blocks_)

    def _mean_kernel(self, blocks, reference=None):
        grams = []
        for i in range(len(self.views_)):
            Z = None if reference is None else reference[i]
            for kernel in self.kernels_[i]:  # as defined, not centred
                grams.append(to_numpy(kernel.gram(blocks[i], Z)))
        return np.mean(grams, axis=0)

    def decision_function(self, X):
        check_is_fitted(self)
        if is_precomputed(self.views):
            K, _ = validate_precomputed(self, X, reset=False)
            K = K.mean(axis=2)
        else:
            X, positions = validate_new(self, X, self.views_, self.positions_)
            dtype = self.blocks_[0].dtype
            blocks = split_views(X, self.views_, positions, dtype=dtype)[0]
            K = self._mean_kernel(blocks, self.blocks_)
        scores = K @ self.dual_coef_
        return scores.ravel() if scores.shape[1] == 1 else scores

    def predict(self, X):
        scores = self.decision_function(X)
        if scores.ndim == 1:
            return self.classes_[(scores > 0).astype(int)]
        return self.classes_[scores.argmax(axis=1)]


def test_scikit_learn():
    """The package's own estimators are checked without views and with kernels, too."""
    views = [("v", [RBF(gamma=0.1), "linear"], slice(None))]
    results = check_estimator(MeanKernelRidge(views=views), on_skip=None)
    assert all(result["status"] in ("passed", "skipped") for result in results)


def iris_views():
    X, y = load_iris(return_X_y=True)
    views = [("sepal", RBF(gamma=1.0), [0, 1]), ("petal", [Linear(), RBF()], [2, 3])]
    return X, y, views


def test_grid_search_reaches_every_level_and_changes_no_object():
    X, y, views = iris_views()
    pipe = Pipe(StandardScaler(), [RBF(), Linear()])
    views = [*views[:1], ("petal", pipe, [2, 3])]
    grid = {
        "sepal__gamma": [1e-12, 1.0],
        "petal__kernel__0__factor": [0.5, 1.0],
        "petal__transformer__with_mean": [True],
        "alpha": [0.1],
    }
    model = MeanKernelRidge(views=views)
    search = GridSearchCV(model, grid, cv=3).fit(X, y)
    assert search.best_score_ > 0.9  # measured: 0.97
    found = search.best_estimator_.get_params()
    assert found["sepal__gamma"] == search.best_params_["sepal__gamma"]
    assert views[0][1] == RBF(gamma=1.0)
    assert pipe.kernel == [RBF(), Linear()]
    assert not hasattr(pipe.transformer, "mean_")
    assert len(set(search.cv_results_["mean_test_score"])) > 1


def test_grid_search_over_whole_kernels():
    X, y, views = iris_views()
    grid = {"sepal": [Linear(), RBF(), "auto"], "petal__1__gamma": [0.1, 1.0]}
    search = GridSearchCV(MeanKernelRidge(views=views), grid, cv=3).fit(X, y)
    assert search.best_score_ > 0.9  # measured: 0.97
    assert search.best_params_["sepal"] in [Linear(), RBF(), "auto"]


def test_cross_validation_slices_a_stack():
    X, y, _ = iris_views()
    stack = np.stack([X @ X.T, rbf_kernel(X, gamma=0.5)], axis=2)
    model = MeanKernelRidge(views="precomputed")
    same = MeanKernelRidge(views=[("v", [Linear(), RBF(gamma=0.5)], slice(None))])
    np.testing.assert_allclose(
        cross_val_predict(model, stack, y, method="decision_function"),
        cross_val_predict(same, X, y, method="decision_function"),
        atol=1e-10,
    )


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_equal_arrays(library):
    frames = pytest.importorskip(library)
    X, y, views = iris_views()
    names = ["a", "b", "c", "d"]
    frame = frames.DataFrame(dict(zip(names, X.T, strict=True)))
    by_name = [(n, k, [names[c] for c in columns]) for n, k, columns in views]
    model = MeanKernelRidge(views=by_name).fit(frame, y)
    assert column_names(frame) == model.feature_names_in_.tolist()
    expected = MeanKernelRidge(views=views).fit(X, y).decision_function(X)
    np.testing.assert_allclose(model.decision_function(frame), expected, atol=1e-10)
    found = model.decision_function(frame[names[::-1]])
    np.testing.assert_allclose(found, expected, atol=1e-10)


def test_array_libraries_agree(xp_backend):
    X, y, views = iris_views()
    expected = MeanKernelRidge(views=views).fit(X, y).decision_function(X)
    data = xp_backend.asarray(X)
    model = MeanKernelRidge(views=views).fit(data, y)
    assert is_numpy(model.blocks_[0]) == (xp_backend.name == "numpy")
    np.testing.assert_allclose(model.decision_function(data), expected, atol=1e-9)


def test_inside_a_pipeline_and_cloned():
    X, y, views = iris_views()
    model = make_pipeline(StandardScaler(), MeanKernelRidge(views=views))
    model.set_params(meankernelridge__sepal__gamma=0.3)
    assert cross_val_score(clone(model), X, y).mean() > 0.9  # measured: 0.96
    assert views[0][1].gamma == 1.0


def test_view_named_like_a_parameter_is_refused_at_fit():
    X, y, _ = iris_views()
    model = MeanKernelRidge(views=[("alpha", "rbf", [0])])
    with pytest.raises(ValueError, match="'alpha' is also a parameter"):
        model.fit(X, y)
