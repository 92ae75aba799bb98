"""Fits that will take long say so, with a prediction made of counted work."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from kernelweave import KernelFDA, MultipleKernelFDA, MultipleKernelRidge
from kernelweave.exceptions import KernelWarning, LongFitWarning
from kernelweave.kernels import RBF
from kernelweave.models.shared import base, duration
from kernelweave.models.shared.duration import (
    FitSize,
    Rates,
    in_words,
    measure_rates,
    seconds_of,
    warn_if_long,
)

#: A core of 2024: 60 Gflop/s, and an exponential in a nanosecond.
CORE = Rates(6e10, 9e8)
DOUBLE = np.dtype(np.float64)
VIEWS = [("left", [RBF(), "linear"], [0, 1, 2]), ("right", RBF(), [3, 4, 5])]
MODELS = [MultipleKernelFDA, MultipleKernelRidge, KernelFDA]


def total(size, rates=CORE):
    return sum(seconds_of(size, rates).values())


@pytest.fixture
def no_measurement(monkeypatch):
    def refused(dtype):
        raise AssertionError("rates were measured")

    monkeypatch.setattr(duration, "measure_rates", refused)


@pytest.fixture
def sizes(monkeypatch):
    """What fits are announced as."""
    found = []

    def noted(size, *others):
        found.append(size)
        return warn_if_long(size, *others)

    monkeypatch.setattr(base, "warn_if_long", noted)
    return found


# Processor seconds on such a core, one thread (benchmarks/durations.py).
MEASURED = {
    "default, 1,000 rows": (1.9, FitSize(1000, 8, 10, 1, True, 3, 4, False, 5)),
    "no folds, 2,500 rows": (2.7, FitSize(2500, 8, 10, 1, True, 3, 4)),
    "one norm, 2,500 rows": (1.5, FitSize(2500, 8, 10)),
    "64 kernels on the fly": (7.4, FitSize(2500, 64, 10, 1, False)),
    "equal weights": (5.6, FitSize(2500, 8, 10, 1, True, 0, 1, False, 5)),
    "groups": (8.1, FitSize(1000, 8, 10, 1, True, 3, 4, True, 5)),
}


@pytest.mark.parametrize("name", MEASURED)
def test_predictions_are_right_within_a_factor_of_three(name):
    seconds, size = MEASURED[name]
    assert seconds / 3 <= total(size) <= 3 * seconds


def test_work_grows_with_every_size():
    size = FitSize(5000, 10, 100, 1, True, 3, 4, False, 5)
    cubes = total(replace(size, n_rows=10_000)) / total(size)
    assert 4 < cubes < 8  # between passes over kernels and factorisations
    for larger in (
        {"n_kernels": 20},
        {"n_targets": 9},
        {"stored": False},
        {"n_folds": 10},
        {"by_paths": True},
    ):
        assert total(replace(size, **larger)) > 1.02 * total(size), larger
    for smaller in ({"n_norms": 1}, {"n_judged": 1}, {"n_folds": 0}):
        assert total(replace(size, **smaller, n_rows=1400)) < 0.9 * total(
            replace(size, n_rows=1400)
        )
    twice = Rates(2 * CORE.flops, 2 * CORE.entries)
    assert total(size, twice) == pytest.approx(total(size) / 2)


def test_a_fit_of_hours_says_why_and_what_is_faster(monkeypatch):
    """300 kernels of 30,000 rows began in silence."""
    monkeypatch.setattr(duration, "measure_rates", lambda dtype: CORE)
    size = FitSize(30_000, 300, 100, 1, False, 1, 0, False, 5)
    hours = total(size) / 3600
    assert 2 < hours < 30
    with pytest.warns(LongFitWarning) as caught:
        line = warn_if_long(
            size, "MultipleKernelFDA", DOUBLE, 1, ["features='nystroem'"]
        )
    (warning,) = caught
    text = str(warning.message)
    assert f"about {hours:.0f} hours" in text and f"about {hours:.0f} hours" in line
    assert "passes over kernels: 300 kernels between 30,000 rows" in text
    assert "computed again in every pass" in text
    alone = total(replace(size, n_folds=0))
    assert f"Faster: features='nystroem', cv=None (about {in_words(alone)})" in text
    assert issubclass(LongFitWarning, KernelWarning)
    four = total(size, CORE._replace(entries=4 * CORE.entries))
    assert four < total(size) / 2  # threads compute kernels
    with pytest.warns(LongFitWarning, match=f"about {in_words(four)}"):
        warn_if_long(size, "MultipleKernelFDA", DOUBLE, 4, [])


def test_short_fits_measure_nothing(no_measurement):
    assert warn_if_long(FitSize(500, 20, n_folds=5), "x", DOUBLE, 1, []) is None


def test_a_fast_machine_is_not_warned(monkeypatch):
    size = FitSize(4000, 20, 100, 1, True, 3, 4, False, 5)
    assert total(size, duration.SLOW) > duration.LONG > total(size, Rates(1e12, 1e10))
    monkeypatch.setattr(duration, "measure_rates", lambda dtype: Rates(1e12, 1e10))
    assert warn_if_long(size, "x", DOUBLE, 1, []) is None


@pytest.mark.parametrize("kind", MODELS)
def test_estimators_know_their_size(kind, rng, sizes, no_measurement):
    X = rng.normal(size=(60, 6))
    y = np.arange(60) % 3
    n_targets = 1 if kind is MultipleKernelRidge else 2
    with warnings.catch_warnings():
        warnings.simplefilter("error", LongFitWarning)
        kind(VIEWS).fit(X, y)
        kind(VIEWS, cv=None, alpha=0.1).fit(X, y, groups=np.arange(60) // 2)
    weighted = kind is not KernelFDA
    expected = FitSize(60, 3, 6, n_targets, True, 3 * weighted, 1 + 3 * weighted)
    assert sizes[0] == replace(expected, n_folds=5)
    judged = 4 * weighted
    assert sizes[1] == replace(expected, n_judged=judged)
    kind(VIEWS, cv=None, features="on_the_fly", alpha=0.1).fit(X, y)
    assert not sizes[2].stored


@pytest.mark.parametrize("kind", MODELS)
def test_a_long_fit_is_announced_before_any_kernel(
    kind, rng, sizes, monkeypatch, capsys
):
    """With rates of a very slow machine, a small fit is long."""
    X, y = rng.normal(size=(40, 6)), np.arange(40) % 2
    monkeypatch.setattr(duration, "SLOW", Rates(1.0, 1.0))
    monkeypatch.setattr(duration, "measure_rates", lambda dtype: Rates(2e3, 2e3))
    events = []
    told = base.Progress.kernel
    monkeypatch.setattr(
        base.Progress,
        "kernel",
        lambda *given: (events.append("kernel"), told(*given)),
    )

    def shown(message, category, *others, **more):
        events.append(category)

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", shown)
        kind(VIEWS, verbose=1).fit(X, y)
    assert events.index(LongFitWarning) < events.index("kernel")
    assert "to go, most of it for" in capsys.readouterr().out.splitlines()[0]


def test_no_prediction_for_what_memory_refuses(rng, sizes, monkeypatch):
    from kernelweave import _array as memory

    X, y = rng.normal(size=(40, 6)), np.arange(40) % 2
    monkeypatch.setattr(memory, "_host_bytes", lambda: 40 * 40 * 8)
    with pytest.raises(MemoryError):
        KernelFDA(VIEWS).fit(X, y)
    assert not sizes


def test_rates_are_measured():
    rates = measure_rates(np.dtype(np.float32))
    assert np.isfinite(rates).all() and min(rates) > 0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "2 seconds"),
        (61, "61 seconds"),
        (600, "10 minutes"),
        (9000, "2 hours"),
        (2e5, "2 days"),
    ],
)
def test_durations_in_words(seconds, words):
    assert in_words(seconds) == words
