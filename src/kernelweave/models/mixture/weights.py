"""Learn the weights of the experts of a mixture, class by class."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelweave._array import Array, in_double
from kernelweave.criteria.mixture import MixtureLikelihood
from kernelweave.fits.predictive import Expert
from kernelweave.models.mixture.experts import ExpertPanel
from kernelweave.protocols import relative_gap
from kernelweave.solvers.loop import Callback
from kernelweave.solvers.mixture import (
    residual_moments,
    stack,
    truncated_em,
    truncated_responsibilities,
)
from kernelweave.solvers.solve import (
    Certificate,
    LocalSolution,
    Solution,
    solve,
)
from kernelweave.weights import Simplex

if TYPE_CHECKING:  # estimators are built from what is here
    from kernelweave.models.mixture_kda import MixtureKDA

#: Rounds that alternate between noise and weights; each increases the likelihood.
MAX_NOISE_ROUNDS = 100
#: Gain in log likelihood, per unit of row weight, for which a noise level is changed:
#: levels that are tied would be exchanged forever.
GAIN_OF_LEVEL = 1e-9

#: Weights of the experts of one or all classes.
Outcome = Solution | LocalSolution


@dataclass(frozen=True)
class Mixture:
    """Experts and their weights.

    Attributes
    ----------
    panel : ExpertPanel
        The experts' predictions, at the final noise levels.
    weights : ndarray of shape (p, k)
        Weight of each expert for each class.
    outcomes : list of LocalSolution or Solution
        How the weights were learned; empty if they were not.
    problem : str
        What was minimised.
    error : float, default=0
        Bound on the error of the value due to digits that the kernels had lost.
    unit : str, default="nats per row"
        Unit of the gap; "relative" for values with a natural zero.
    shared : bool, default=False
        Whether one expert is responsible for all coordinates of a row.
    tol : float or None, default=None
        The tolerance of the gap of each outcome, if there is one.
    """

    panel: ExpertPanel
    weights: np.ndarray
    outcomes: Sequence[Outcome]
    problem: str
    error: float = 0.0
    unit: str = "nats per row"
    shared: bool = False
    tol: float | None = None

    @cached_property
    def responsibilities(self) -> np.ndarray:
        """Responsibility of each expert for each training row (Eq. 19), (n, p, k)."""
        panel = self.panel
        table, allowed = panel.log_density, panel.allowed
        if self.shared:  # the density of all coordinates together, in each column
            table = np.broadcast_to(np.sum(table, axis=2, keepdims=True), table.shape)
            allowed = np.broadcast_to(np.all(allowed, axis=1)[:, None], allowed.shape)
        shares = [
            truncated_responsibilities(table[:, :, c], panel.observed & own, pi)
            for c, (own, pi) in enumerate(zip(allowed.T, self.weights.T, strict=True))
        ]
        return np.stack(shares, axis=2)

    @property
    def n_iter(self) -> int:
        """Iterations over all classes."""
        return max(1, sum(outcome.n_iter for outcome in self.outcomes))

    @property
    def certificate(self) -> Certificate | None:
        """One for all classes, whose values add up; None for weights not learned."""
        outcomes = self.outcomes
        if not outcomes:
            return None
        value = float(sum(outcome.value for outcome in outcomes))
        lower = float(sum(outcome.lower_bound for outcome in outcomes))
        apart = relative_gap if self.unit == "relative" else operator.sub
        local = [one for one in outcomes if isinstance(one, LocalSolution)]
        measures = [one.stationarity for one in local if not np.isnan(one.stationarity)]
        open_ones = [c for c, outcome in enumerate(outcomes) if not outcome.converged]
        gap = apart(value, lower)
        if open_ones:
            status = outcomes[open_ones[0]].status
            if len(outcomes) > 1:
                label = self.panel.classes.tolist()[open_ones[0]]
                status += f" (weights of class {label!r})"
        elif measures:
            largest = max(measures)
            status = f"stationary: a step changes no weight by more than {largest:.1e}"
        else:
            status = f"optimal: the gap is {gap:.1e}"
            if len(outcomes) > 1:
                status += f", that of each of the {len(outcomes)} classes within tol"
        tol = None if measures else self.tol
        if tol is not None and self.unit != "relative":
            tol *= len(outcomes)  # such gaps add up
        certificate = Certificate(
            value=value,
            lower_bound=lower,
            gap=gap,
            status=status,
            converged=not open_ones,
            problem=self.problem,
            stationarity=max(measures) if measures else None,
            unit=self.unit,
            tol=tol,
        )
        return certificate if measures else certificate.moved_apart(self.error)


def learn_mixture(
    model: MixtureKDA,
    panel: ExpertPanel,
    experts: dict[int, Expert],
    callback: Callback,
) -> Mixture:
    """The mixture of all experts, with the parameters of :class:`MixtureKDA`.

    With noise="em" the noise levels in the panel change as well; ``experts`` have all
    candidate levels.
    """
    p, k = panel.allowed.shape
    weights = np.zeros((p, k))
    shared, stacking = model.weights == "shared", model.weights == "stacking"
    outcomes: list[Outcome] = []
    error = 0.0
    for classes in [list(range(k))] if shared else [[c] for c in range(k)]:
        members = np.flatnonzero(np.all(panel.allowed[:, classes], axis=1))
        _check_members(members, panel.classes[classes])
        place = np.ix_(members, np.array(classes))
        if model.weights == "uniform":
            weights[place] = 1.0 / len(members)
            continue
        group = _Group(model, panel, experts, members, classes, callback)
        outcome, doubt = group.stacked() if stacking else group.likely()
        error += doubt
        weights[place] = outcome.weights[:, None]
        outcomes.append(outcome)
    problem = "leave-one-out squared error of the mixed mean of each class"
    if not stacking:
        problem = (
            f"mixture likelihood of {p} experts, {'shared' if shared else 'per-class'} "
            "weights, leave-one-out gaussian densities, nats per row"
        )
    if panel.design.weights is not None:
        problem += ", weighted rows"
    unit = "relative" if stacking else "nats per row"
    tol = float(model.tol)
    return Mixture(panel, weights, outcomes, problem, error, unit, shared, tol)


@dataclass
class _Group:
    """The problem of a group of classes that share weights."""

    model: MixtureKDA
    panel: ExpertPanel
    experts: dict[int, Expert]
    members: np.ndarray  # the experts that may predict all these classes
    classes: list[int]
    callback: Callback

    def __post_init__(self) -> None:
        observed = self.panel.observed[:, self.members]
        # Rows that no member has do not bear on these classes.
        self.rows = np.any(observed, axis=1)
        self.seen, self.each = observed[self.rows], self.panel.design.each[self.rows]

    def likely(self) -> tuple[Outcome, float]:
        """Maximise the likelihood of leave-one-out densities.

        Also returned is a bound on the error of the value at any weights, from those of
        the densities: a row's ``log sum_l w_l p_l`` changes by no more than the largest
        change of a ``log p_l``.
        """
        outcome = self._solve()
        for _ in range(MAX_NOISE_ROUNDS if self.model.noise == "em" else 0):
            if not self._move_noise(outcome.weights):
                break
            outcome = self._solve(outcome.n_iter)
        worst = np.max(
            self._table(self.panel.log_density_error),
            axis=1,
            where=self.seen,
            initial=0.0,
        )
        return outcome, float(np.average(worst, weights=self.each))

    def stacked(self) -> tuple[Outcome, float]:
        """Minimise the leave-one-out squared error of the mean of the only class.

        Also returned is a bound on the error of ``w'Aw`` at any weights, from those of
        the residuals. The weights sum to one, so it is at most the largest error of an
        entry of A. If negative eigenvalues of A are set to zero, which brings no two
        matrices further apart, the norm of the errors takes its place.
        """
        panel, seen, each = self.panel, self.seen, self.each
        target = np.sum(panel.target[self.rows][:, self.classes], axis=1)
        residual = target[:, None] - self._table(panel.mean)
        moments = residual_moments(residual, seen, each)
        found, value, lower = stack(moments)
        gap = relative_gap(value, lower) if value > 0 else 0.0
        converged = gap <= self.model.tol
        status = f"{'optimal' if converged else 'stopped'}: relative gap {gap:.1e}"
        outcome = LocalSolution(
            weights=found,
            value=value,
            lower_bound=lower,
            stationarity=np.nan,
            converged=converged,
            status=status,
            n_iter=1,
        )
        error = np.where(seen, self._table(panel.mean_error), 0.0)
        size = np.where(seen, np.abs(residual), 0.0) + error
        shared = (each * seen.T) @ seen
        moved = (each * error.T) @ size / np.where(shared > 0, shared, 1.0)
        moved = moved + moved.T
        return outcome, float(np.max(moved) if np.all(seen) else np.linalg.norm(moved))

    def _solve(self, before: int = 0) -> Outcome:
        """The best weights for the current densities, after ``before`` iterations."""
        model, each = self.model, self.each
        host = self._table(self.panel.log_density)
        prior = float(model.concentration) * float(np.sum(each)) / len(self.members)
        # Steps on a small table take microseconds, less than calls to a device would.
        table: Array = host
        if host.size >= model._large_table:
            table = in_double(host, self.panel.maps.like)
        settings: dict[str, Any] = {"tol": model.tol, "callback": self.callback}
        offset = 0.0
        found: Outcome
        if np.all(self.seen):
            settings |= {"method": model.solver, "max_iter": model.max_iter}
            criterion = MixtureLikelihood(table, prior, each)
            found, offset = solve(criterion, Simplex(), **settings), criterion.offset
        else:
            settings |= {} if model.max_iter is None else {"max_iter": model.max_iter}
            found = truncated_em(table, self.seen, prior, row_weights=each, **settings)
        return replace(
            found,
            value=found.value + offset,
            lower_bound=found.lower_bound + offset,
            n_iter=before + found.n_iter,
        )

    def _table(self, values: np.ndarray) -> np.ndarray:
        """Values (n, p, k) summed over the classes of the group, (rows, members)."""
        return np.sum(values[self.rows][:, self.members][:, :, self.classes], axis=2)

    def _move_noise(self, weights: np.ndarray) -> bool:
        """Take the best noise levels at these weights; return whether any changed."""
        panel = self.panel
        share = np.zeros(panel.observed.shape)
        share[np.ix_(self.rows, self.members)] = truncated_responsibilities(
            self._table(panel.log_density), self.seen, weights
        )
        share *= panel.design.each[:, None]
        moved = False
        for e in self.members:
            expert, own = self.experts[e], share[panel.rows[e], e]
            score = np.einsum("i,gic->gc", own, expert.tables)
            level = np.searchsorted(expert.grid.noises, panel.noise[e])
            columns = np.arange(score.shape[1])
            best = np.argmax(score, axis=0)
            gain = score[best, columns] - score[level, columns]
            better = np.zeros(len(best), dtype=bool)
            enough = GAIN_OF_LEVEL * panel.design.total
            better[self.classes] = gain[self.classes] > enough
            if np.any(better):
                panel.settle(e, expert.moved(np.where(better, best, level)))
                moved = True
        return moved


def _check_members(members: np.ndarray, classes: np.ndarray) -> None:
    """Refuse classes that no expert may predict."""
    if len(members):
        return
    if len(classes) > 1:
        raise ValueError(
            "weights='shared': no kernel has rows of every class, so none can predict "
            "all of them; use weights='per_class'"
        )
    raise ValueError(
        f"class {classes.tolist()[0]!r} has fewer than 2 rows in every view that also "
        "has rows of another class, so there is nothing to learn it from"
    )
