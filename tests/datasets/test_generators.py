"""The generators draw from the distributions that they describe."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from kernelweave.datasets import make_gaussian_views, make_waveform


def test_waves_have_their_means(global_random_seed):
    bunch = make_waveform(6000, random_state=global_random_seed, as_frame=False)
    j = np.arange(1, 22)
    h1, h2, h3 = (np.maximum(6 - np.abs(j - c), 0) for c in (7, 15, 11))
    for c, mean in enumerate(((h1 + h2) / 2, (h1 + h3) / 2, (h2 + h3) / 2)):
        found = bunch.data[bunch.target == c].mean(axis=0)
        # six standard errors: u gives a wave of height 6 a deviation of 6 / sqrt(12)
        np.testing.assert_allclose(found[:21], mean, atol=6 * 2.0 / np.sqrt(2000))
        np.testing.assert_allclose(found[21:], 0, atol=6 / np.sqrt(2000))


def test_waves_are_as_hard_as_they_should_be(global_random_seed):
    train = make_waveform(3000, random_state=global_random_seed, as_frame=False)
    test = make_waveform(3000, random_state=global_random_seed + 10**6, as_frame=False)
    model = LinearDiscriminantAnalysis().fit(train.data, train.target)
    # 0.84 to 0.86 with 24 seeds, 0.86 by the Bayes rule
    assert 0.81 < model.score(test.data, test.target) < 0.89


def test_gaussians_overlap(global_random_seed):
    bunch = make_gaussian_views(
        4000, n_views=40, random_state=global_random_seed, as_frame=False
    )
    assert [own for _, _, own in bunch.views][:2] == [slice(0, 2), slice(2, 4)]
    assert np.bincount(bunch.target[:100]).tolist() == [50, 50]
    variance = [bunch.data[bunch.target == c].var(axis=0) for c in (0, 1)]
    assert np.mean(variance) == pytest.approx(1.0, abs=0.25)
    means = [bunch.data[bunch.target == c].mean(axis=0) for c in (0, 1)]
    assert np.min(means) > 0.8
    assert np.max(means) < 2.2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: make_waveform(2), "n_samples must be an int >= 3; got 2"),
        (
            lambda: make_waveform(noise_features=-1),
            "noise_features must be an int >= 0",
        ),
        (lambda: make_gaussian_views(1), "n_samples must be an int >= 2; got 1"),
        (lambda: make_gaussian_views(n_views=0), "n_views must be an int >= 1; got 0"),
        (lambda: make_gaussian_views(spread=0.0), "spread must be > 0; got 0.0"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(ValueError, match=message):
        call()
