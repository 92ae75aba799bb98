"""The proof that comes with a fit, in readable form."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from kernelweave.solvers.solution import Solution

__all__ = ["Certificate"]


@dataclass(frozen=True)
class Certificate:
    """How good the learned weights are, computed independently of the solver.

    Attributes
    ----------
    value : float
        The criterion at the learned weights.
    lower_bound : float
        No allowed weights can do better than this; NaN if the problem is not convex.
    gap : float
        ``(value - lower_bound) / abs(value)``.
    status : str
        The outcome as a sentence.
    converged : bool
        Whether the gap (or the stationarity) reached the tolerance.
    problem : str
        What was minimised.
    stationarity : float or None
        For problems that are not convex: relative size of the projected gradient.
    remarks : tuple of str
        Further notes for anyone who interprets the weights.
    """

    value: float
    lower_bound: float
    gap: float
    status: str
    converged: bool
    problem: str
    stationarity: float | None = None
    remarks: tuple[str, ...] = ()

    @classmethod
    def of(cls, solution: Solution, problem: str) -> Certificate:
        """The certificate of a convex problem."""
        return cls(
            value=solution.value,
            lower_bound=solution.lower_bound,
            gap=solution.gap,
            status=solution.status,
            converged=solution.converged,
            problem=problem,
            remarks=solution.remarks,
        )

    def with_remarks(self, remarks: list[str]) -> Certificate:
        """A copy with further remarks in front."""
        return dataclasses.replace(self, remarks=(*remarks, *self.remarks))

    def __str__(self) -> str:
        lines = [self.problem, f"  {self.status}"]
        if self.stationarity is None:
            lines.append(f"  value        {self.value:.10g}")
            lines.append(f"  lower bound  {self.lower_bound:.10g}")
            lines.append(f"  gap          {self.gap:.2e} relative")
        else:
            lines.append(f"  value          {self.value:.10g}")
            lines.append(f"  stationarity   {self.stationarity:.2e} relative")
        lines += [f"  note: {remark}" for remark in self.remarks]
        return "\n".join(lines)
