"""The bound against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave import TransductiveKernelSVC
from kernelweave.exceptions import KernelWarning
from reproduce.reference.transduction_bound import (
    bound_of_model,
    learned_complexity,
    transduction_bound,
)


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
    assert known.simulated == pytest.approx(fixed.corrected, rel=1e-12)
    assert known.corrected == learned.corrected and fixed.simulated is None


def test_margins_cost_between_zero_and_one():
    y = np.array([1.0, 1.0, -1.0, -1.0])
    f = np.array([2.0, 0.25, 0.1, -5.0])  # far, half a margin, wrong, far
    result = transduction_bound(f, y, 0.5, 8.0)
    assert result.training_cost == pytest.approx((0 + 0.5 + 1 + 0) / 4)


def test_it_grows_with_confidence_and_shrinks_with_the_margin():
    assert bound(delta=0.01).corrected > bound(delta=0.1).corrected
    assert bound(gamma=0.3).corrected > bound(gamma=0.6).corrected


BAD = {
    "gamma": ({"gamma": 0.0}, "gamma must be a finite number > 0, got 0.0"),
    "trace": ({"trace": -1.0}, "trace must be"),
    "delta": ({"delta": 1.0}, "delta must lie between 0 and 1, got 1.0"),
    "complexity": ({"complexity": 2.0}, "learned_kernel=True"),
    "negative": (
        {"learned_kernel": True, "complexity": -1.0},
        "complexity must be > 0",
    ),
    "labels": ({"labels": np.array([1, 0])}, r"\+1 or -1"),
    "shape": ({"labels": np.ones(3)}, r"shape \(2,\) with one .* got \(3,\)"),
    "nan": ({"decision": np.array([1, np.nan])}, "NaN"),
}


@pytest.mark.parametrize("arguments, message", BAD.values(), ids=BAD)
def test_bad_input_is_named(arguments, message):
    good = {"decision": np.ones(2), "labels": np.ones(2), "gamma": 1.0, "trace": 4.0}
    with pytest.raises(ValueError, match=message):
        transduction_bound(**{**good, **arguments})


def test_the_expectation_of_one_kernel_is_its_trace(rng):
    Z = rng.standard_normal((30, 4))
    mean, error = learned_complexity((Z @ Z.T)[None], draws=400)
    assert mean == pytest.approx(1.0, abs=4 * error)


def test_the_expectation_over_signed_sums(rng):
    """A sum and one of its two parts: the difference, the other part, is a kernel."""
    parts = [z @ z.T for z in (rng.standard_normal((20, 3)) for _ in range(2))]
    first, second = (part / np.trace(part) for part in parts)
    both = 0.5 * (first + second)
    free = learned_complexity(np.stack([first, second]), draws=50)[0]
    sums = np.stack([both, first])
    signed = learned_complexity(sums, signed=True, draws=50)[0]
    plain = learned_complexity(sums, draws=50)[0]
    assert signed == pytest.approx(free)
    assert plain < signed < 20


@pytest.mark.parametrize("signed", [True, False])
def test_bound_of_a_fitted_model(rng, signed):
    n = 20
    y = np.arange(2 * n) % 2
    X = rng.standard_normal((2 * n, 4)) + 2.0 * y[:, None]
    names = np.array(["no", "yes"])
    given = np.where(np.arange(2 * n) < n, names[y], "-1")
    views = [("a", "rbf", slice(0, 2)), ("b", "rbf", slice(2, 4))]
    model = TransductiveKernelSVC(views, signed=signed, C=10.0).fit(X, given)
    found = bound_of_model(model, X, given, 0.2, draws=20)
    a, K = model.dual_coef_[:, 0], model.kernel_
    f = (K @ a)[:n] / np.sqrt(a @ K @ a)
    cost = np.mean(np.clip(1 - np.where(y[:n] == 1, 1, -1) * f / 0.2, 0, 1))
    assert found.training_cost == pytest.approx(cost)
    assert 0 < found.complexity < n  # the printed constant
    assert found.simulated < found.as_printed < found.corrected
    with pytest.raises(ValueError, match="half of the rows; got 40 labels for 40"):
        bound_of_model(model, X, names[y], 0.2)


@pytest.mark.parametrize(
    "options", [{"scale": None}, {"scale": None, "signed": True}, {"norm": 2.0}]
)
def test_the_trace_is_fixed_before_the_labels_are_seen(rng, options):
    """Labels choose the small kernel; they could have chosen the large one."""
    n = 20
    y = np.arange(2 * n) % 2
    X, noise = rng.standard_normal((2, 2 * n, 3))
    X += 4.0 * y[:, None]
    kernels = [X @ X.T, 20.0 * (noise @ noise.T), np.zeros((2 * n, 2 * n))]
    kernels = np.stack(kernels, axis=-1)
    given = np.where(np.arange(2 * n) < n, y, -1)
    setting = {"centre": False, "C": 1e3, "signed": False, **options}
    with pytest.warns(KernelWarning):  # one kernel is constant
        model = TransductiveKernelSVC("precomputed", **setting).fit(kernels, given)
    found = bound_of_model(model, kernels, given, 0.2, draws=5)
    largest = np.trace(kernels[:, :, 1])
    if "norm" in options:
        largest = 2 * n * np.sqrt(2)
    a, K = model.dual_coef_[:, 0], model.kernel_
    assert np.trace(K) < 0.99 * largest  # measured: 0.36 to 0.96
    f, labels = (K @ a)[:n] / np.sqrt(a @ K @ a), np.where(y[:n] == 1, 1, -1)
    by_hand = transduction_bound(f, labels, 0.2, largest, learned_kernel=True)
    assert found.corrected == pytest.approx(by_hand.corrected, rel=1e-6)
