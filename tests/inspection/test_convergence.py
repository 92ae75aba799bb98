"""The lines show the history of the solve."""

from __future__ import annotations

import numpy as np
import pytest

from kernelweave import Fisher, LpBall, solve
from kernelweave.inspection import ConvergenceDisplay
from kernelweave.kernels import DenseBank, center_and_scale


@pytest.fixture(scope="module")
def solutions():
    rng = np.random.default_rng(0)
    y = np.repeat([1.0, -1.0], 20)
    X = rng.normal(size=(40, 6))
    X[:, :2] += y[:, None]
    bank = DenseBank(center_and_scale(np.stack([np.outer(x, x) for x in X.T])))
    criterion = Fisher(bank, y[:, None], alpha=0.1)
    return {
        method: solve(criterion, LpBall(4 / 3), method=method, tol=1e-6)
        for method in ("newton", "closed_form", "cutting_plane")
    }


def test_gap_of_one_solve(solutions):
    solution = solutions["newton"]
    display = ConvergenceDisplay.from_solution(solution)
    x, gap = display.lines_["newton"].get_data()
    np.testing.assert_array_equal(x, [row.iteration for row in solution.trace])
    np.testing.assert_allclose(gap, [max(row.gap, 1e-16) for row in solution.trace])
    assert display.ax_.get_yscale() == "log"
    assert display.legend_ is None
    assert display.tol_line_.get_ydata()[0] == 1e-6


def test_gaps_of_several_methods(solutions):
    display = ConvergenceDisplay.from_solution(solutions, against="seconds")
    assert [text.get_text() for text in display.legend_.get_texts()] == list(solutions)
    for method, solution in solutions.items():
        x = display.lines_[method].get_xdata()
        np.testing.assert_array_equal(x, [row.seconds for row in solution.trace])
    assert len({line.get_color() for line in display.lines_.values()}) == 3


def test_bounds(solutions):
    display = ConvergenceDisplay.from_solution(solutions, kind="bounds")
    for method, solution in solutions.items():
        value = display.lines_[method].get_ydata()
        lower = display.lower_bounds_[method].get_ydata()
        np.testing.assert_array_equal(value, [row.value for row in solution.trace])
        np.testing.assert_array_equal(lower, [r.lower_bound for r in solution.trace])
    bottom, top = display.ax_.get_ylim()
    assert bottom < solutions["newton"].value < top
    assert display.tol_line_ is None


def test_different_tolerances_have_no_line(solutions):
    import dataclasses

    other = dataclasses.replace(solutions["newton"], tol=1e-3)
    mixed = {"a": solutions["newton"], "b": other}
    assert ConvergenceDisplay.from_solution(mixed).tol_line_ is None


def test_gap_of_zero_is_drawn(solutions):
    import dataclasses

    solution = solutions["newton"]
    last = dataclasses.replace(solution.trace[-1], gap=-1e-17)
    exact = dataclasses.replace(solution, trace=(*solution.trace[:-1], last))
    display = ConvergenceDisplay.from_solution(exact)
    assert display.lines_["newton"].get_ydata()[-1] == 1e-16


def test_refusals(solutions):
    with pytest.raises(
        ValueError, match="kind must be one of 'gap', 'bounds'; got 'x'"
    ):
        ConvergenceDisplay.from_solution(solutions, kind="x")
    with pytest.raises(ValueError, match="against must be one of 'iteration', 'sec"):
        ConvergenceDisplay.from_solution(solutions, against="hours")
    with pytest.raises(ValueError, match="the dict is empty"):
        ConvergenceDisplay.from_solution({})
    with pytest.raises(ValueError, match="without a trace"):
        ConvergenceDisplay(traces={"a": ()}).plot()
