"""The data sets have a common form, are reproducible, and match their descriptions."""

from __future__ import annotations

import sys
from functools import partial

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from kernelweave.datasets import fetch_views, make_views

LOADERS = {
    "breast_cancer": partial(fetch_views, "breast_cancer"),
    "digits": partial(fetch_views, "digits"),
    "sonar": partial(fetch_views, "sonar"),
    "made": partial(make_views, random_state=3),
}


@pytest.fixture(params=LOADERS)
def load(request):
    return LOADERS[request.param]


def test_form(load):
    bunch = load(as_frame=False)
    n, d = bunch.data.shape
    assert bunch.target.shape == (n,)
    assert len(bunch.feature_names) == len(set(bunch.feature_names)) == d
    assert set(np.unique(bunch.target)) == set(range(len(bunch.target_names)))
    assert np.all(np.isfinite(bunch.data))
    assert bunch.DESCR.strip()


def test_views_cover_every_column_once(load):
    bunch = load(as_frame=False)
    positions = [
        column
        for _, _, columns in bunch.views
        for column in range(bunch.data.shape[1])[columns]
    ]
    assert positions == list(range(bunch.data.shape[1]))
    names = [name for name, _, _ in bunch.views]
    assert len(set(names)) == len(names)


def test_same_each_time(load):
    first, second = load(as_frame=False), load(as_frame=False)
    np.testing.assert_array_equal(first.data, second.data)
    np.testing.assert_array_equal(first.target, second.target)


def test_frame_holds_the_same_numbers(load):
    pd = pytest.importorskip("pandas")
    array, frame = load(as_frame=False), load(as_frame=True)
    assert isinstance(frame.data, pd.DataFrame)
    assert list(frame.data.columns) == array.feature_names
    np.testing.assert_array_equal(frame.data.to_numpy(), array.data)
    assert isinstance(load().data, pd.DataFrame)


def test_array_without_pandas(load, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert isinstance(load().data, np.ndarray)


def test_unknown_as_frame(load):
    with pytest.raises(ValueError, match="as_frame must be True, False or 'auto'"):
        load(as_frame="yes")


def test_breast_cancer_is_that_of_scikit_learn():
    ours, theirs = fetch_views("breast_cancer", as_frame=False), load_breast_cancer()
    np.testing.assert_array_equal(ours.data, theirs.data)
    for view, prefix in (("mean", "mean "), ("worst", "worst ")):
        columns = next(c for name, _, c in ours.views if name == view)
        assert all(name.startswith(prefix) for name in ours.feature_names[columns])


def test_the_two_sets_of_breast_tumours_differ():
    new, old = map(fetch_views, ("breast_cancer", "breast_cancer_wisconsin"))
    assert (new.data.shape, old.data.shape) == ((569, 30), (683, 9))
    assert [name for name, _, _ in old.views] == ["all"]


def test_digits_views_are_computed_from_the_pictures():
    ours, theirs = fetch_views("digits", as_frame=False), load_digits()
    columns = {name: c for name, _, c in ours.views}
    np.testing.assert_array_equal(ours.data[:, columns["pixels"]], theirs.data)
    zones = ours.data[:, columns["zones"]]
    assert zones[7, 5] == pytest.approx(theirs.images[7, 2:4, 2:4].mean())
    np.testing.assert_allclose(zones.mean(axis=1), theirs.data.mean(axis=1))


def test_fourier_magnitudes_have_no_duplicates_and_ignore_shifts():
    ours = fetch_views("digits", as_frame=False)
    columns = next(c for name, _, c in ours.views if name == "fourier")
    fourier = ours.data[:, columns]
    assert fourier.shape[1] == 34
    correlation = np.abs(np.corrcoef(fourier.T)) - np.eye(34)
    assert correlation.max() < 1 - 1e-6
    shifted = np.abs(np.fft.fft2(np.roll(ours.images, (1, 3), axis=(1, 2))))
    assert fourier[4, 1] == pytest.approx(shifted[4, 0, 1])


def _accuracy(bunch, view):
    columns = next(c for name, _, c in bunch.views if name == view)
    model = make_pipeline(StandardScaler(), LogisticRegression())
    return cross_val_score(model, bunch.data[:, columns], bunch.target).mean()


def test_made_views_are_informative_where_they_say(global_random_seed):
    bunch = make_views(
        300, n_views=3, n_informative=1, as_frame=False, random_state=global_random_seed
    )
    assert bunch.informative == ["view0"]
    informative, noise = _accuracy(bunch, "view0"), _accuracy(bunch, "view2")
    # three classes: chance is 1/3; measured: 0.73 to 0.9 and 0.27 to 0.39
    assert informative > 0.5 > noise
    assert np.ptp(np.bincount(bunch.target)) <= 1


def test_made_views_depend_on_the_seed_only():
    one, two, other = (make_views(random_state=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.data, two.data)
    assert not np.array_equal(one.data, other.data)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_views": 0, "n_informative": 0}, "n_views must be an int >= 1; got 0"),
        ({"n_features": 0}, "n_features must be an int >= 1; got 0"),
        ({"n_informative": 6}, "between 0 and n_views=5; got 6"),
        ({"n_classes": 1}, "n_classes must be between 2 and n_samples=200; got 1"),
        ({"n_samples": 2}, "n_classes must be between 2 and n_samples=2; got 3"),
        ({"n_samples": -1}, "n_samples must be an int >= 2; got -1"),
        ({"n_informative": 1.5}, "n_informative must be an int >= 0; got 1.5"),
        ({"separation": np.nan}, "separation must be a finite number; got nan"),
    ],
)
def test_make_views_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        make_views(**options)
