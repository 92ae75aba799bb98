"""The bound against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave.papers.reference.transduction_bound import transduction_bound


def bound(n=100, gamma=0.3, trace=2.0, **options):
    """No row within the margin; the trace in units of n."""
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    return transduction_bound(2 * gamma * y, y, gamma, trace * n, **options)


@pytest.mark.parametrize(
    "gamma, trace, expected",
    [(0.3, 2, 1.11618), (0.5, 2, 0.92762), (1.0, 2, 0.78620), (0.3, 6, 1.46127)],
)
def test_known_values(gamma, trace, expected):
    result = bound(gamma=gamma, trace=trace)
    assert result.training_cost == 0.0
    assert result.as_printed == pytest.approx(expected, abs=5e-6)
    excess = (np.sqrt(4 * np.log(20)) - np.sqrt(2 * np.log(20))) / 10
    assert result.corrected == pytest.approx(result.as_printed + excess, rel=1e-12)
    assert result.vacuous == (result.corrected >= 1)


@pytest.mark.parametrize(
    "gamma, trace, rows", [(0.3, 2, 125), (0.3, 6, 214), (0.15, 6, 519), (1.0, 2, 62)]
)
def test_how_many_rows_it_takes_to_say_anything(gamma, trace, rows):
    """The printed penalty falls below one after about this many rows."""
    sizes = [bound(n, gamma, trace).as_printed for n in (rows - 1, rows + 1)]
    assert sizes[0] > 1 > sizes[1]


def test_a_learned_kernel_costs_more():
    n, gamma, trace = 100, 0.3, 2.0
    fixed, learned = bound(), bound(learned_kernel=True)
    assert learned.as_printed > fixed.as_printed
    printed = (4 + np.sqrt(2 * np.log(20)) + np.sqrt(trace * n) / gamma) / 10
    corrected = (4 + np.sqrt(4 * np.log(20)) + np.sqrt(2 * trace * n) / gamma) / 10
    assert learned.as_printed == pytest.approx(printed, rel=1e-12)
    assert learned.corrected == pytest.approx(corrected, rel=1e-12)
    known = bound(learned_kernel=True, complexity=1.0)
    assert known.as_printed == pytest.approx(fixed.as_printed, rel=1e-12)


def test_margins_cost_between_zero_and_one():
    y = np.array([1.0, 1.0, -1.0, -1.0])
    f = np.array([2.0, 0.25, 0.1, -5.0])  # far, half a margin, wrong, far
    result = transduction_bound(f, y, 0.5, 8.0)
    assert result.training_cost == pytest.approx((0 + 0.5 + 1 + 0) / 4)
    scaled = transduction_bound(3 * f, y, 0.5, 8.0, norm=3.0)
    assert scaled == result


def test_it_grows_with_confidence_and_shrinks_with_the_margin():
    assert bound(delta=0.01).corrected > bound(delta=0.1).corrected
    assert bound(gamma=0.3).corrected > bound(gamma=0.6).corrected


BAD = {
    "gamma": ({"gamma": 0.0}, "gamma must be a finite number > 0, got 0.0"),
    "trace": ({"trace": -1.0}, "trace must be"),
    "norm": ({"norm": np.nan}, "norm must be"),
    "delta": ({"delta": 1.0}, "delta must lie between 0 and 1, got 1.0"),
    "complexity": ({"complexity": 2.0}, "learned_kernel=True"),
    "negative": (
        {"learned_kernel": True, "complexity": -1.0},
        "complexity must be > 0",
    ),
    "labels": ({"labels": np.array([1, 0])}, r"\+1 or -1"),
    "shape": ({"labels": np.ones(3)}, r"the shapes \(2,\) and \(3,\)"),
    "nan": ({"decision": np.array([1, np.nan])}, "NaN"),
}


@pytest.mark.parametrize("arguments, message", BAD.values(), ids=BAD)
def test_bad_input_is_named(arguments, message):
    good = {"decision": np.ones(2), "labels": np.ones(2), "gamma": 1.0, "trace": 4.0}
    with pytest.raises(ValueError, match=message):
        transduction_bound(**{**good, **arguments})
