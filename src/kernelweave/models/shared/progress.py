"""Progress of a fit: ``verbose`` lines and scikit-learn's callbacks."""

from __future__ import annotations

import math
import time
from typing import Any

from kernelweave.solvers.solution import TraceRow

__all__ = ["Progress"]


class Progress:
    """Report the progress of a fit to callbacks and, if asked, to standard output.

    Parameters
    ----------
    estimator : KernelModel
        The estimator being fitted.
    X, y : array-like
        Passed to the callbacks.
    """

    def __init__(self, estimator: Any, X: Any, y: Any) -> None:
        self.estimator = estimator
        self.context = estimator._init_callback_context(max_subtasks=None)
        self.context.call_on_fit_task_begin(estimator=estimator, X=X, y=y)
        self.started = time.perf_counter()

    def kernel(self, index: int) -> None:
        """One more kernel is ready."""
        self._task("kernel", {"kernel": index})
        self.say(2, f"kernel {index} ready")

    def iteration(self, row: TraceRow) -> bool:
        """One more iteration of a solver; True if a callback wants to stop."""
        line = f"iteration {row.iteration}: value {row.value:.8g}"
        if not math.isnan(row.gap):  # a problem that is not convex has no bound
            line += f", lower bound {row.lower_bound:.8g}, gap {row.gap:.1e}"
        self.say(1, line)
        return self._task(
            "iteration",
            {"value": row.value, "lower_bound": row.lower_bound, "gap": row.gap},
        )

    def end(self) -> None:
        """The fit is complete."""
        self.context.call_on_fit_task_end(estimator=self.estimator)

    def say(self, level: int, text: str) -> None:
        """Print a line if ``verbose`` is at least ``level``."""
        if int(self.estimator.verbose) >= level:
            seconds = time.perf_counter() - self.started
            print(f"[{type(self.estimator).__name__} {seconds:7.2f} s] {text}")

    def _task(self, name: str, metadata: dict[str, Any]) -> bool:
        task = self.context.subcontext(task_name=name)
        task.call_on_fit_task_begin(estimator=self.estimator)
        return bool(
            task.call_on_fit_task_end(estimator=self.estimator, metadata=metadata)
        )
