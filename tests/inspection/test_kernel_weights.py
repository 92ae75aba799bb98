"""The bars show the weights, for any number of kernels."""

from __future__ import annotations

import itertools
import sys

import numpy as np
import pytest

from kernelweave import (
    KernelAlignment,
    KernelFDA,
    MixtureKDA,
)
from kernelweave.inspection import KernelWeightsDisplay


def make_display(sizes, rng, share_of_zeros=0.3):
    """A display of random weights for views with the given numbers of kernels."""
    views = [f"view{v}" for v, size in enumerate(sizes) for _ in range(size)]
    names = [f"{view}: RBF(gamma={i})" for i, view in enumerate(views)]
    weights = rng.exponential(size=len(views)) ** 2
    weights[rng.random(len(views)) < share_of_zeros] = 0.0
    weights[0] = 1.0
    weights /= weights.sum()
    return KernelWeightsDisplay(weights=weights, kernel_names=names, view_names=views)


def tick_labels(display):
    return display.ax_.get_yticklabels()


def labels(display):
    return [label.get_text() for label in tick_labels(display)]


def widths(display):
    return np.array([bar.get_width() for bar in display.bars_])


def overlaps(display):
    """Whether a label on the left overlaps the next one."""
    display.figure_.canvas.draw()
    boxes = [label.get_window_extent() for label in tick_labels(display)]
    return any(a.overlaps(b) for a, b in itertools.pairwise(boxes))


def test_from_estimator(cancer_model):
    display = KernelWeightsDisplay.from_estimator(cancer_model)
    np.testing.assert_array_equal(display.weights, cancer_model.kernel_weights_)
    assert display.kernel_names == cancer_model.kernel_names_
    assert display.ax_.figure is display.figure_
    title = display.ax_.get_title(loc="left")
    assert f"within {cancer_model.certificate_.gap:.1e} of the optimum" in title


def test_views_from_the_heaviest_to_the_lightest(cancer_model):
    display = KernelWeightsDisplay.from_estimator(cancer_model)
    weights = cancer_model.view_weights_
    order = [label for label in labels(display) if label in weights]
    assert order == sorted(weights, key=weights.get, reverse=True)
    for label, width in zip(labels(display), widths(display), strict=True):
        if label in weights:
            assert width == pytest.approx(weights[label])


@pytest.mark.parametrize("sizes", [[1], [3, 1, 4], [1] * 100, [5] * 40])
def test_readable_for_1_to_200_kernels(sizes):
    display = make_display(sizes, np.random.default_rng(len(sizes))).plot()
    assert len(display.bars_) <= 30
    assert len(set(labels(display))) >= min(len(sizes), 10)
    assert not overlaps(display)
    grouped = max(sizes) > 1
    if grouped:  # the sums over views include everything
        counted = [label.get_fontweight() == "bold" for label in tick_labels(display)]
    else:
        counted = [True] * len(display.bars_)
    unseen = 1 - widths(display)[counted].sum()
    if ("more views" if grouped else "more") in labels(display)[-1]:
        share = float(display.texts_[-1].get_text().removesuffix(" %")) / 100
        assert share == pytest.approx(unseen, abs=0.005)  # whole per cent
    else:
        assert unseen == pytest.approx(0)


def test_heaviest_kernels_are_shown(rng):
    display = make_display([10] * 10, rng).plot()
    shown = [
        float(np.round(width, 12))
        for label, width in zip(labels(display), widths(display), strict=True)
        if label.startswith("RBF")
    ]
    heaviest = np.sort(display.weights)[::-1][: len(shown)]
    np.testing.assert_allclose(np.sort(shown)[::-1], heaviest, atol=1e-11)


def test_kernels_of_weight_zero_are_counted():
    display = KernelWeightsDisplay(
        weights=[0.5, 0.0, 0.0, 0.5, 0.0, 0.0],
        kernel_names=[f"kernel {i}" for i in range(6)],
        view_names=["a", "a", "a", "b", "c", "c"],
    ).plot()
    assert labels(display) == ["a", "kernel 0", "2 of weight 0", "kernel 3", "c"]
    assert [text.get_text() for text in display.texts_][-1] == "0"


def test_shares_are_of_the_sum():
    display = KernelWeightsDisplay(
        weights=[3.0, 1.0], kernel_names=["a", "b"], view_names=["a", "b"]
    ).plot()
    assert [text.get_text() for text in display.texts_] == ["75 %", "25 %"]


def test_draws_in_given_axes(wine_model):
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2)
    display = KernelWeightsDisplay.from_estimator(wine_model, ax=axes[1])
    assert display.ax_ is axes[1]
    assert display.figure_ is figure
    assert not axes[0].patches


def test_titles_without_a_gap(cancer):
    X, y, views = cancer[0][::3], cancer[1][::3], cancer[2]
    uniform = KernelWeightsDisplay.from_estimator(KernelFDA(views, cv=None).fit(X, y))
    assert uniform.title == "Uniform kernel weights"
    X = X.astype(float)
    X[::5, views[0][2]] = np.nan
    lacking = MixtureKDA(views, missing="available", cv=None).fit(X, y)
    display = KernelWeightsDisplay.from_estimator(lacking)
    assert display.title.startswith("Kernel weights, stationary to ")
    apart = KernelAlignment(views, method="independent").fit(X, y)
    display = KernelWeightsDisplay.from_estimator(apart)
    assert display.title == "Kernel weights, each by its own alignment"


def test_negative_weights_are_drawn():
    display = KernelWeightsDisplay(
        weights=[0.6, -0.3, 0.1], kernel_names=["a", "b", "c"], view_names=["v"] * 3
    ).plot(max_rows=4)
    assert labels(display) == ["v", "a", "b", "c"]
    np.testing.assert_allclose(widths(display), [0.4, 0.6, -0.3, 0.1])
    assert display.ax_.get_xlim()[0] < -0.3
    shares = [text.get_text() for text in display.texts_]
    assert shares == ["40 %", "60 %", "-30 %", "10 %"]


def test_a_heavy_view_is_not_hidden_for_its_sign():
    names = list("abcd")
    display = KernelWeightsDisplay(
        weights=[0.1, -0.8, 0.04, 0.06, 0.0],
        kernel_names=[*names, "e"],
        view_names=[*names, "d"],
    ).plot(max_rows=4)
    assert labels(display) == ["b", "3 more views"]


def test_plain_data_only_until_plot(rng):
    display = make_display([2, 2], rng)
    assert set(vars(display)) == {"weights", "kernel_names", "view_names", "title"}


def test_too_few_rows(rng):
    with pytest.raises(ValueError, match="max_rows must be an int >= 4; got 3"):
        make_display([2, 2], rng).plot(max_rows=3)


def test_without_matplotlib(rng, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    message = r"KernelWeightsDisplay.plot needs matplotlib.*extra 'plot'"
    with pytest.raises(ImportError, match=message):
        make_display([2, 2], rng).plot()
