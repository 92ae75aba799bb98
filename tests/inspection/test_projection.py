"""Rows are drawn at their projections, in the colour of their class."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelweave import KernelFDA, MultipleKernelRidge
from kernelweave.datasets import fetch_views, make_views
from kernelweave.inspection import ProjectionDisplay


def test_plane(wine, wine_model):
    X, y = wine
    display = ProjectionDisplay.from_estimator(wine_model, X, y)
    np.testing.assert_array_equal(display.coordinates, wine_model.transform(X))
    np.testing.assert_array_equal(display.labels, y)
    assert list(display.points_) == list(wine_model.classes_)
    for c, label in enumerate(wine_model.classes_):
        drawn = np.asarray(display.points_[label].get_offsets())
        np.testing.assert_allclose(drawn, wine_model.transform(X[y == label])[:, :2])
        mean = np.asarray(display.means_[label].get_offsets())[0]
        np.testing.assert_allclose(mean, wine_model.gaussians_.means[c, :2])
    texts = [text.get_text() for text in display.legend_.get_texts()]
    assert texts == ["class_0 (59)", "class_1 (71)", "class_2 (48)"]


def test_two_classes_are_histograms(cancer, cancer_model):
    X, y, _ = cancer
    display = ProjectionDisplay.from_estimator(cancer_model, X, y)
    assert display.coordinates.shape == (len(X), 1)
    for label in cancer_model.classes_:
        heights = sum(bar.get_height() for bar in display.points_[label])
        assert heights == np.count_nonzero(y == label)
        assert f"{label} ({np.count_nonzero(y == label)})" in [
            text.get_text() for text in display.legend_.get_texts()
        ]
    assert display.ax_.get_ylabel() == "rows"
    for mean, label in zip(display.means, cancer_model.classes_, strict=True):
        assert display.means_[label].get_xdata()[0] == mean[0]


def test_predicted_classes_without_y(wine, wine_model):
    X, _ = wine
    display = ProjectionDisplay.from_estimator(wine_model, X)
    np.testing.assert_array_equal(display.labels, wine_model.predict(X))
    assert display.legend_.get_title().get_text() == "predicted class"


def test_rows_of_one_class_only(wine, wine_model):
    X, y = wine
    display = ProjectionDisplay.from_estimator(wine_model, X[:5], y[:5])
    assert len(display.points_["class_2"].get_offsets()) == 0
    assert len(display.points_[y[0]].get_offsets()) == 5


def test_pandas_and_pipelines(wine):
    pd = pytest.importorskip("pandas")
    X, y = wine
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    series = pd.Series(y, name="grower")
    pipe = make_pipeline(StandardScaler(), KernelFDA(cv=None)).set_output(
        transform="pandas"
    )
    display = ProjectionDisplay.from_estimator(pipe.fit(frame, series), frame, series)
    assert isinstance(display.coordinates, np.ndarray)
    assert display.coordinates.shape == (len(X), 2)


def test_torch(wine):
    torch = pytest.importorskip("torch")
    X, y = wine
    codes = np.unique(y, return_inverse=True)[1]
    tensor = torch.asarray(X)
    model = KernelFDA(alpha=0.1, cv=None).fit(tensor, torch.asarray(codes))
    display = ProjectionDisplay.from_estimator(model, tensor, torch.asarray(codes))
    expected = KernelFDA(alpha=0.1, cv=None).fit(X, codes).transform(X)
    np.testing.assert_allclose(np.abs(display.coordinates), np.abs(expected), atol=1e-9)


def test_many_classes_are_named_in_the_picture():
    digits = fetch_views("digits", as_frame=False)
    X, y = digits.data[::10, :64], digits.target[::10]
    display = ProjectionDisplay.from_estimator(
        KernelFDA(alpha=0.1, cv=None).fit(X, y), X, y
    )
    assert [text.get_text() for text in display.ax_.texts] == list("0123456789")
    styles = {
        (tuple(scatter.get_facecolor()[0]), scatter.get_paths()[0].vertices.tobytes())
        for scatter in display.means_.values()
    }
    assert len(styles) == 10


def test_no_legend_for_very_many_classes():
    bunch = make_views(120, n_classes=30, as_frame=False, random_state=0)
    model = KernelFDA(alpha=0.1, cv=None).fit(bunch.data, bunch.target)
    display = ProjectionDisplay.from_estimator(model, bunch.data, bunch.target)
    assert display.legend_ is None
    assert len(display.ax_.texts) == 30


def test_draws_in_given_axes(wine, wine_model):
    import matplotlib.pyplot as plt

    X, y = wine
    figure, ax = plt.subplots()
    display = ProjectionDisplay.from_estimator(wine_model, X, y, ax=ax)
    assert display.ax_ is ax
    assert display.figure_ is figure


def test_refusals(wine, wine_model):
    X, y = wine
    with pytest.raises(ValueError, match="label 'class_9', which the model does not"):
        ProjectionDisplay.from_estimator(wine_model, X[:2], ["class_0", "class_9"])
    with pytest.raises(ValueError, match="X has 178 rows, but y has 100 labels"):
        ProjectionDisplay.from_estimator(wine_model, X, y[:100])
    ridge = MultipleKernelRidge(alpha=0.1, norm=2, cv=None).fit(X[:, 1:], X[:, 0])
    with pytest.raises(TypeError, match="got MultipleKernelRidge"):
        ProjectionDisplay.from_estimator(ridge, X[:, 1:])
