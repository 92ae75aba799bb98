"""The one loop: what counts as the best step, when to stop, and what is said of it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from kernelweave.solvers.loop import BoundsLoop, GapLoop, LocalLoop, Step


def gap_loop(tol, max_iter, callback=None):
    return GapLoop(tol, max_iter, callback, aim=tol, further=1)


def local_loop(tol, max_iter, callback=None):
    return LocalLoop(tol, max_iter, callback, "the slope is {size:.1e}")


LOOPS = [gap_loop, BoundsLoop, local_loop]
every_loop = pytest.mark.parametrize("loop", LOOPS)


def shrinking(n=100, **parts):
    """Steps 0, 1, 2, ... whose gap and stationarity are 1, 1/2, 1/4, ..."""
    for i in range(n):
        size = 0.5**i
        yield Step(i, 1.0 + size, 1.0 - 1e-3 * size, stationarity=size, **parts)


@every_loop
def test_a_search_ends_where_it_is_close_enough(loop):
    search = loop(1e-2, 50)
    best = search.run(shrinking())
    assert search.converged and search.size <= 1e-2
    assert best.point == search.n_iter - 1 == 7
    assert search.status.startswith(("optimal", "stationary", "stopped: the method's"))


@every_loop
@pytest.mark.parametrize("used", [1, 2])
def test_a_search_ends_at_its_limit(loop, used):
    search = loop(1e-2, 4)
    search.run(shrinking(n_iter=used))
    assert search.n_iter == 4 and len(search.trace.rows) == 4 // used
    assert not search.converged
    assert search.status.startswith("stopped at max_iter=4: ")
    assert search.status.endswith(f"{search.size:.1e}, not 1e-02")


@every_loop
def test_a_search_ends_when_the_callback_says_so(loop):
    rows = []
    search = loop(1e-2, 50, lambda row: rows.append(row) or row.iteration == 3)
    search.run(shrinking())
    assert rows == search.trace.rows and search.n_iter == 3
    assert [row.iteration for row in rows] == [1, 2, 3]
    assert search.status.startswith("stopped by the callback: ")
    assert f"{search.size:.1e}" in search.status
    met = loop(1e-2, 50, lambda row: row.iteration == 8)  # where it is close enough
    met.run(shrinking())
    assert met.n_iter == 8 and "callback" not in met.status


@every_loop
def test_a_search_ends_when_there_is_no_further_step(loop):
    search = loop(1e-2, 50)
    search.run(shrinking(3))
    assert search.status.startswith("stopped: ") and " no " in search.status
    assert search.status.endswith(f"; {search.remaining.format(size=search.size)}")
    with pytest.raises(ValueError, match="no step"):
        loop(1e-2, 50).run(iter([]))


@every_loop
def test_steps_may_be_handed_over(loop):
    """As they are by minimisers that call their function."""
    pulled, pushed = loop(1e-2, 50), loop(1e-2, 50)
    pulled.run(shrinking())
    for step in shrinking():
        if pushed.take(step):
            break
    assert pushed.best == pulled.best and pushed.status == pulled.status
    assert [row.value for row in pushed.trace.rows] == [
        row.value for row in pulled.trace.rows
    ]


def scattered():
    values, bounds = [3.0, 1.5, 2.0, 1.8], [0.5, 0.0, 1.0, 0.8]
    for i, (value, bound) in enumerate(zip(values, bounds, strict=True)):
        yield Step(i, value, bound, stationarity=value, n_factorizations=i)


def test_what_the_best_step_is():
    ours = {loop: loop(1e-9, 50) for loop in LOOPS}
    best = {loop: search.run(scattered()).point for loop, search in ours.items()}
    # the smallest gap of one step; the smallest value; the last
    assert best == {gap_loop: 2, BoundsLoop: 1, local_loop: 3}
    assert ours[gap_loop].size == pytest.approx(1.0 / 2.0)
    # bounds hold for all steps
    assert ours[BoundsLoop].lower_bound == 1.0
    assert ours[BoundsLoop].size == pytest.approx(0.5 / 1.5)
    gaps = [row.gap for row in ours[BoundsLoop].trace.rows]
    assert gaps == pytest.approx([2.5 / 3, 1.0 / 1.5, 0.5 / 1.5, 0.5 / 1.5])
    assert ours[local_loop].size == 1.8
    for search in ours.values():
        assert search.n_factorizations == 6
        assert_array_equal([row.value for row in search.trace.rows], [3, 1.5, 2, 1.8])


def test_while_no_gap_is_finite_the_bound_decides():
    search = gap_loop(1e-9, 50)
    bounds = [1.0, 3.0, 2.0]
    best = search.run(Step(i, np.inf, bound) for i, bound in enumerate(bounds))
    assert best.point == 1 and search.size == np.inf


def test_an_aim_is_pursued_as_long_as_the_gap_is_halved():
    def ended(gaps, aim, further):
        search = GapLoop(1e-2, 50, None, aim, further)
        search.run(Step(i, 1.0, 1.0 - gap) for i, gap in enumerate(gaps))
        return search.n_iter

    gaps = [1.0, 2.0**-7, 2.0**-8, 1.5 * 2.0**-9, 1.2 * 2.0**-9, 2.0**-10, 2.0**-20]
    assert ended(gaps, 1e-2, 1) == 2
    assert ended(gaps, 1e-5, 1) == 4  # the fourth is not half of the third
    assert ended(gaps, 1e-5, 3) == 7


def test_what_is_told_already_is_not_told_again():
    rows = []
    search = local_loop(1e-9, 50, rows.append)
    search.trace.add(2.0)
    search.run([Step("end", 2.0, stationarity=1.0, n_iter=5, is_told=True)])
    assert len(rows) == len(search.trace.rows) == 1 and search.n_iter == 5
