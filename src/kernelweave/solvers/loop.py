"""The one loop of every search: history, callback, limit, and why it ended.

A method is a generator of steps, which :meth:`Loop.run` takes one by one. A minimiser
of SciPy calls its function instead, which hands its steps to :meth:`Loop.take`. What is
close enough depends on the problem:

=================== ====================================================================
:class:`GapLoop`    convex problems: the gap between the value and the bound of one
                    point, so that a certificate can be computed from it
:class:`BoundsLoop` others with a lower bound: the gap between the best value and the
                    best bound of all points
:class:`LocalLoop`  others: how far the last point is from stationary
=================== ====================================================================
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

import numpy as np
from scipy.optimize import OptimizeResult

from kernelweave._tolerances import SMALL_GAP
from kernelweave.protocols import relative_gap

Point = TypeVar("Point")


@dataclass(frozen=True)
class TraceRow:
    """One line of the history of a solve; NaN where no bound is known."""

    iteration: int
    value: float
    lower_bound: float
    gap: float
    seconds: float


Callback = Callable[[TraceRow], object]


class Trace:
    """The history of a solve, passed to a callback row by row.

    Parameters
    ----------
    callback : callable, optional
        Called with each new row; a true result requests an early stop.

    Attributes
    ----------
    rows : list of TraceRow
        The history.
    stopped : bool
        Whether the callback has requested a stop.
    """

    def __init__(self, callback: Callback | None = None) -> None:
        self.rows: list[TraceRow] = []
        self.stopped = False
        self._callback, self._started = callback, time.perf_counter()

    def add(
        self, value: float, lower_bound: float = np.nan, gap: float = np.nan
    ) -> TraceRow:
        """Record one more iteration."""
        seconds = time.perf_counter() - self._started
        row = TraceRow(len(self.rows) + 1, value, lower_bound, gap, seconds)
        self.rows.append(row)
        if self._callback is not None and self._callback(row):
            self.stopped = True
        return row

    def follow(self, unit: float) -> Callable[[OptimizeResult], None]:
        """A callback for ``scipy.optimize.minimize`` that records ``unit * fun``."""

        def report(intermediate_result: OptimizeResult) -> None:
            self.add(unit * float(intermediate_result.fun))
            if self.stopped:
                raise StopIteration

        return report


@dataclass(frozen=True)
class Step(Generic[Point]):
    """One step of a search.

    Attributes
    ----------
    point : object
        Where it has led.
    value : float
        The value there.
    lower_bound : float
        A bound on the optimum, if one is known.
    stationarity : float
        How far the point is from stationary, if that is what ends the search.
    n_iter : int
        How much of ``max_iter`` the step has used.
    n_factorizations : int
        Factorisations since the last step.
    is_told : bool
        Whether the history holds the parts of this step already.
    """

    point: Point
    value: float
    lower_bound: float = np.nan
    stationarity: float = np.nan
    n_iter: int = 1
    n_factorizations: int = 0
    is_told: bool = False


class Loop(ABC, Generic[Point]):
    """Takes the steps of a search, keeps the best, and tells when to stop, and why.

    Parameters
    ----------
    tol : float
        The search may stop once ``size`` is at most this.
    max_iter : int or None
        Limit on the number of iterations.
    callback : callable, optional
        Called with each row of the history; a true result stops the search.

    Attributes
    ----------
    best : Step or None
        The step that counts.
    size : float
        What remains of the gap, or of the stationarity.
    n_iter, n_factorizations : int
        How many there were.
    trace : Trace
        The history.
    reason : str
        Why the search ended, with places for ``{size}`` and ``{tol}``.
    """

    #: What is said of a search that has got close enough, of what remains to do for any
    #: other, and of one that has no further step.
    reached: str
    remaining = "relative gap {size:.1e}"
    no_further = "the method has no further step"

    def __init__(
        self, tol: float, max_iter: int | None, callback: Callback | None = None
    ) -> None:
        self.tol, self.max_iter, self.trace = tol, max_iter, Trace(callback)
        self.best: Step[Point] | None = None
        self.size, self.reason = np.inf, ""
        self.n_iter = self.n_factorizations = 0

    def run(self, steps: Iterable[Step[Point]]) -> Step[Point]:
        """Take steps until it is time to stop, or until there are no more."""
        for step in steps:
            if self.take(step):
                break
        else:
            self.end_without_step()
        if self.best is None:
            raise ValueError("the search has no step")
        return self.best

    def take(self, step: Step[Point]) -> bool:
        """Take one step; True if it is the last one."""
        self.n_iter += step.n_iter
        self.n_factorizations += step.n_factorizations
        self._judge(step)
        if self._is_close():
            self.reason = self.reached
        elif self.trace.stopped:
            self.reason = f"stopped by the callback: {self.remaining}"
        elif self.max_iter is not None and self.n_iter >= self.max_iter:
            self.end_at_limit()
        elif self._stalls():
            self.reason = "stopped: rounding keeps the relative gap at {size:.1e}"
        return self.reason != ""

    def end_at_limit(self) -> None:
        """End the search because it has used all of its iterations."""
        limit = f"stopped at max_iter={self.max_iter}: "
        self.reason = limit + self.remaining + ", not {tol:.0e}"

    def end_without_step(self) -> None:
        """End the search because there is nowhere to go."""
        self.reason = f"stopped: {self.no_further}; {self.remaining}"

    @property
    def converged(self) -> bool:
        """Whether the search has got close enough."""
        return bool(self.size <= self.tol)

    @property
    def status(self) -> str:
        """The outcome as a sentence."""
        return self.reason.format(size=self.size, tol=self.tol)

    @abstractmethod
    def _judge(self, step: Step[Point]) -> None:
        """Record the step, and set ``best`` and ``size``."""

    def _is_close(self) -> bool:
        """Whether no further step is needed."""
        return self.converged

    def _stalls(self) -> bool:
        """Whether further steps would lead nowhere."""
        return False


#: What the status says of a gap within the tolerance.
OPTIMAL = "optimal: the relative gap {size:.1e} is within tol={tol:.0e}"
#: A small gap is taken to be limited by rounding once it has not shrunk for this many
#: iterations, nor for as many as it took to reach, unless the value fell in all of the
#: last ones: a gap may rise for long before it shrinks, but noise goes up and down.
PATIENCE = 25


class GapLoop(Loop[Point]):
    """The loop of convex problems, whose best step is that with the smallest gap.

    Its ``size`` is the gap of the method's own bounds, which a certificate may not
    confirm.

    Parameters
    ----------
    tol, max_iter, callback : object
        See :class:`Loop`.
    aim : float
        A gap below ``tol`` that is aimed for as long as steps still halve the gap.
    further : int
        The number of iterations in which they must do so.
    """

    reached = (
        "stopped: the method's own bounds have met, but those of the certificate leave "
        "a relative gap of {size:.1e}"
    )

    def __init__(
        self,
        tol: float,
        max_iter: int | None,
        callback: Callback | None,
        aim: float,
        further: int,
    ) -> None:
        super().__init__(tol, max_iter, callback)
        self.aim, self.further = aim, further
        self._best_row: TraceRow | None = None
        self._halved: TraceRow | None = None  # the last to halve the gap, from tol on

    def _judge(self, step: Step[Point]) -> None:
        gap = relative_gap(step.value, step.lower_bound)
        row, best = self.trace.add(step.value, step.lower_bound, gap), self._best_row
        # The bound decides, while no gap is finite.
        if best is None or (gap, -row.lower_bound) < (best.gap, -best.lower_bound):
            self.best, self.size, self._best_row = step, gap, row
        if gap <= self.tol and (self._halved is None or gap <= 0.5 * self._halved.gap):
            self._halved = row

    def _is_close(self) -> bool:
        if self._halved is None:
            return False
        since_halved = len(self.trace.rows) - self._halved.iteration
        return self.size <= self.aim or since_halved >= self.further

    def _stalls(self) -> bool:
        assert self._best_row is not None
        rows, needed = self.trace.rows, self._best_row.iteration
        waited = len(rows) - needed >= max(PATIENCE, needed)
        return self.size < SMALL_GAP and waited and not _falls(rows[-PATIENCE:])


def _falls(rows: list[TraceRow]) -> bool:
    """Whether each value is below the one before it."""
    return all(after.value < before.value for before, after in pairwise(rows))


class BoundsLoop(Loop[Point]):
    """The loop of problems with bounds that hold for all points, however found.

    The best step is that with the smallest value, and ``lower_bound`` is the largest
    bound.
    """

    reached = OPTIMAL
    no_further = "no step finds a smaller value"

    def __init__(
        self, tol: float, max_iter: int | None, callback: Callback | None = None
    ) -> None:
        super().__init__(tol, max_iter, callback)
        self.lower_bound = -np.inf

    def _judge(self, step: Step[Point]) -> None:
        self.lower_bound = max(self.lower_bound, step.lower_bound)
        if self.best is None or step.value < self.best.value:
            self.best = step
        self.size = relative_gap(self.best.value, self.lower_bound)
        self.trace.add(step.value, self.lower_bound, self.size)


class LocalLoop(Loop[Point]):
    """The loop of problems without a bound: the last step counts.

    Parameters
    ----------
    tol, max_iter, callback : object
        See :class:`Loop`.
    measure : str
        What the stationarity is, with a place for its ``{size}``.
    """

    def __init__(
        self,
        tol: float,
        max_iter: int | None,
        callback: Callback | None,
        measure: str,
    ) -> None:
        super().__init__(tol, max_iter, callback)
        self.remaining = measure
        self.reached = f"stationary: {measure}" + " (tol={tol:.0e})"

    def _judge(self, step: Step[Point]) -> None:
        self.best, self.size = step, step.stationarity
        if not step.is_told:
            self.trace.add(step.value)
