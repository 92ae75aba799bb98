"""Norms that a sample of the rows rules out."""

from functools import partial

import numpy as np
import pytest

from kernelweave import MultipleKernelFDA, MultipleKernelRidge
from kernelweave.criteria.fisher import Fisher
from kernelweave.fits.design import RowDesign
from kernelweave.fits.ridge import KernelFit
from kernelweave.kernels.banks.dense import DenseBank
from kernelweave.learn import search
from kernelweave.learn.sample import Sample
from kernelweave.learn.search import (
    CLEARLY,
    NEGLIGIBLE,
    NORM_GRID,
    Choice,
    Options,
    _promising,
    _sample_rows,
    race_norms,
)


def choices(errors):
    """Choices with these squared residuals on rows left out, by norm."""
    return {
        norm: Choice(
            np.ones(1), 1.0, 1, fit=KernelFit(None, np.sqrt(error)[:, None], None)
        )
        for norm, error in zip(NORM_GRID, errors, strict=True)
    }


def test_norms_are_ruled_out_by_differences_on_the_same_rows(rng):
    m = 400
    base = rng.uniform(20.0, 30.0, m)  # far more spread than any difference
    sign = np.where(np.arange(m) % 2, 1.0, -1.0)
    unit = CLEARLY * m**-0.5  # three standard errors of the signs
    size = NEGLIGIBLE * base.mean()
    errors = [
        base,
        base + 0.1,  # always worse
        base + 0.1 + sign * (0.1 + 2.0 * size) / unit,  # maybe better by enough
        base + 0.1 + sign * (0.1 + 0.5 * size) / unit,  # maybe better, but by little
    ]
    kept = _promising(choices(errors), RowDesign(m))
    assert kept == (NORM_GRID[0], NORM_GRID[2])


def test_a_sample_keeps_groups_together(rng):
    groups = np.unique(rng.integers(0, 60, 500), return_inverse=True)[1]
    design = RowDesign(500, groups=groups)
    rows = _sample_rows(design, 100)
    others = np.setdiff1d(np.arange(500), rows)
    assert not set(groups[rows]) & set(groups[others])
    assert 100 <= len(rows) < 100 + np.max(np.bincount(groups))
    assert len(_sample_rows(RowDesign(500), 100)) == 100


def test_a_sample_without_variation_rules_out_nothing(rng):
    n, size = 40, 10
    options, targets = Options(), (np.arange(n) % 2)[:, None] - 0.5
    everyone, rows = RowDesign(n), rng.normal(size=(2, n))
    sample = _sample_rows(everyone, size)
    constant, alike = rows.copy(), targets.copy()
    constant[:, sample], alike[sample] = 0.0, 0.5
    pairs = RowDesign(n, groups=np.arange(n) // 20)  # the sample is one of them
    for x, y, design in [
        (constant, targets, everyone),
        (rows, alike, everyone),
        (rows, targets, pairs),
    ]:
        bank = DenseBank.from_kernels(x[:, :, None] * x[:, None, :])  # (2, n, n)
        # pytest.fail in place of the problem of the sample: it is never posed
        everything = Sample(bank, y, design)
        assert race_norms(everything, options, pytest.fail, n, size) is options


@pytest.mark.measured
def test_many_rows_choose_a_norm_as_good_as_any(rng, monkeypatch):
    n = 800
    small = partial(race_norms, raced_from=n, at_least=n // 2)
    monkeypatch.setattr(search, "race_norms", small)  # far below the fit
    X = rng.normal(size=(n, 4))
    signal = np.sin(2 * X[:, 0]) * X[:, 1] + 0.5 * rng.normal(size=n)
    views = [("signal", "rbf", [0, 1]), ("noise", "rbf", [2, 3])]
    settings = {"alpha": 1.0, "cv": None, "features": "exact"}
    model = MultipleKernelFDA(views, **settings).fit(X, signal > 0)
    even = MultipleKernelFDA(views, norm=np.inf, **settings).fit(X, signal > 0)
    assert model.norm_ == 1 and model.loo_error_ <= even.loo_error_ * (1 + NEGLIGIBLE)
    assert model.certificate_.gap < 1e-6
    out = {k for k, v in model.candidates_.items() if "n_rows" in v}
    assert np.inf in out and 1.0 not in out
    assert model.candidates_[np.inf]["n_rows"] == n // 2
    assert model.candidates_[1.0]["loo_error"] == model.loo_error_
    assert MultipleKernelRidge(views, **settings).fit(X, signal).norm_ == 1


@pytest.mark.parametrize("kind", [MultipleKernelFDA, MultipleKernelRidge])
def test_only_what_is_shown_is_certified(kind, make_problem, monkeypatch):
    """Neither the norms that lost, nor folds, nor a sample of the rows."""
    certified, criteria = [], []
    original = search.with_certificate

    def noted(minimum, criterion, weight_set):
        certified.append(original(minimum, criterion, weight_set))
        return certified[-1]

    remarks = Fisher.remarks
    monkeypatch.setattr(search, "with_certificate", noted)
    monkeypatch.setattr(
        Fisher, "remarks", lambda self, w: criteria.append(self) or remarks(self, w)
    )
    problem = make_problem(2)
    model = kind(problem.views, cv=3).fit(problem.X, problem.y)
    (solution,) = certified
    assert len(criteria) == 1 and criteria[0].n_kernels == 5
    assert model.certificate_.gap == solution.gap <= 1e-6
    np.testing.assert_array_equal(
        model.kernel_weights_, split_weights(solution.weights, model.norm_)
    )


def split_weights(weights, norm):
    """Those of the kernels, if alpha is among the weights."""
    weight_set = search.weight_set_of_norm(norm, fixed=False)
    return search.split_learned(weights, weight_set)[0]
