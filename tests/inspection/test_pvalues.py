"""p-values are valid for junk views, and small for real ones."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from estimators import ONE_EACH, poses_problem, some
from kernelweave import (
    KernelAlignment,
    MultipleKernelFDA,
    MultipleKernelSVC,
)
from kernelweave.fits.design import RowDesign
from kernelweave.inspection import view_pvalues
from kernelweave.inspection.pvalues import _blocks, _order

VIEWS = [
    ("real", "linear", slice(0, 2)),
    ("wide", "linear", slice(2, 10)),
    ("junk", "linear", slice(10, 12)),
]


def make_data(rng, n=40, signal=2.0):
    y = rng.permutation(np.arange(n) % 2)
    X = rng.normal(size=(n, 12))
    X[:, :2] += signal * y[:, None]
    return X, y


@pytest.mark.measured
@pytest.mark.parametrize(
    "model", some((*ONE_EACH, "MultipleKernelFDA-l2-learn"), poses_problem)
)
def test_real_views(rng, model):
    X, y = make_data(rng)
    model.set_params(views=VIEWS).fit(X, y)
    values = view_pvalues(model, X, y, n_decoys=19, random_state=0)
    if isinstance(model, KernelAlignment):  # random_state is used in one place
        assert values == view_pvalues(model, X, y, n_decoys=19, random_state=0)
    assert values["real"] == 1 / 20
    assert min(values.values()) >= 1 / 20
    assert max(values.values()) <= 1


@pytest.mark.measured
@pytest.mark.one_seed
def test_junk_views_are_rarely_significant(rng):
    """P(p <= a) < 2 a is a theorem; 4 standard errors of 40 data sets are allowed."""
    found = []
    for _ in range(40):
        X, y = make_data(rng, n=24, signal=0.0)
        model = KernelAlignment(VIEWS).fit(X, y)
        values = view_pvalues(model, X, y, n_decoys=9, random_state=rng.integers(2**31))
        found.append(list(values.values()))
    for level in (0.1, 0.2, 0.3):
        rates = np.mean(np.array(found) <= level, axis=0)
        allowed = 2 * level + 4 * np.sqrt(2 * level * (1 - 2 * level) / 40)
        assert np.all(rates <= allowed)
    # measured: 0.14; with other seeds 0.07 to 0.12; the theorem allows 0.2
    assert np.mean(np.array(found) <= 0.1) <= 0.17


@pytest.mark.one_seed
def test_inputs(rng):
    X, y = make_data(rng)
    model = MultipleKernelFDA(VIEWS, norm=1, cv=None)
    pipe = make_pipeline(StandardScaler(), model).fit(X, y)
    assert view_pvalues(pipe, X, y, n_decoys=9, random_state=0)["real"] == 0.1
    with pytest.raises(ValueError, match="n_decoys must be an int >= 1; got 0"):
        view_pvalues(pipe, X, y, n_decoys=0)
    classifier = MultipleKernelSVC(VIEWS).fit(X, y)
    with pytest.raises(ValueError, match="fitted on classes, and y holds numbers"):
        view_pvalues(classifier, X, X[:, 0])
    X[::5, :2] = np.nan
    model.set_params(missing="zero").fit(X, y)
    assert view_pvalues(model, X, y, n_decoys=9, random_state=0)["real"] == 0.1
    model.set_params(missing="available").fit(X, y)
    with pytest.raises(ValueError, match="use missing='zero'"):
        view_pvalues(model, X, y)


@pytest.mark.one_seed
@pytest.mark.filterwarnings("ignore:.*constant:kernelweave.exceptions.KernelWarning")
def test_gaps_of_a_view_that_does_not_vary_are_not_filled(rng):
    X, y = make_data(rng)
    X[:, 10:] = 1.0
    X[::5, 10:] = np.nan
    model = MultipleKernelFDA(VIEWS, norm=1, cv=None, missing="available").fit(X, y)
    values = view_pvalues(model, X, y, n_decoys=1, random_state=0)
    assert values["junk"] == 1.0


def test_groups_of_a_size_change_places(rng):
    """A decoy has the rows of one group of the same size in place of each group's."""
    groups = rng.permutation(np.repeat(np.arange(9), [1, 1, 2, 2, 3, 3, 3, 5, 6]))
    targets, random = rng.integers(2, size=26), np.random.RandomState(0)
    blocks = _blocks(targets, RowDesign(len(targets), groups=groups))
    sizes, taken, places = np.bincount(groups), set(), set()
    for _ in range(60):
        order = _order(blocks, len(groups), random)
        assert sorted(order) == list(range(len(groups)))
        for group in range(9):
            (source,) = set(groups[order[groups == group]])
            assert sizes[source] == sizes[group]
            taken.add((group, source))
        places.add(tuple(order[groups == 8]))
    assert len(taken) == 2 * 2 + 2 * 2 + 3 * 3 + 1 + 1  # all that may
    assert len(places) > 20  # rows within a group as well: 6! orders


@pytest.mark.measured
@pytest.mark.one_seed
def test_groups_of_junk_are_rarely_significant(rng):
    """Rows of a group have one label, and nearly one value of every view."""
    found = {"rows": [], "groups": []}
    groups = np.arange(24) // 3
    for _ in range(15):
        y = rng.permutation(np.arange(8) % 2)[groups]
        X = rng.normal(size=(8, 12))[groups] + 0.3 * rng.normal(size=(24, 12))
        model = KernelAlignment(VIEWS).fit(X, y)
        for name, given in (("rows", None), ("groups", groups)):
            settings = {"n_decoys": 9, "random_state": rng.integers(2**31)}
            values = view_pvalues(model, X, y, groups=given, **settings)
            found[name] += list(values.values())
    rates = {name: np.mean(np.array(own) <= 0.1) for name, own in found.items()}
    assert rates["rows"] >= 0.3  # measured: 0.36 to 0.53
    assert rates["groups"] <= 0.2  # the theorem; measured: 0.02 to 0.18


@pytest.mark.one_seed
def test_groups_that_cannot_change_places(rng):
    X, y = make_data(rng, n=24)
    groups = np.repeat(np.arange(4), [3, 5, 7, 9])
    model = KernelAlignment(VIEWS).fit(X, y)
    assert view_pvalues(model, X, y, groups=groups, n_decoys=1)  # y varies within
    words = "shuffles whole groups, .*but there is 1"
    with pytest.raises(ValueError, match=words):
        view_pvalues(model, X, y, groups=np.zeros(24))
    y = np.array([0, 1, 1, 0])[groups]
    model.fit(X, y)
    words = "only 1 order of the 4 groups of 3, 5, 7, 9 rows, .*same number of rows"
    with pytest.raises(ValueError, match=words):
        view_pvalues(model, X, y, groups=groups)
    groups = np.arange(24) // 6  # 4! orders
    model.fit(X, groups % 2)
    assert view_pvalues(model, X, groups % 2, groups=groups, n_decoys=1)
