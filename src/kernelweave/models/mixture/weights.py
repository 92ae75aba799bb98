"""Learn the weights of the experts of a mixture, class by class."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from kernelweave._array import Array, from_numpy, namespace
from kernelweave.criteria.mixture import MixtureLikelihood
from kernelweave.fits.predictive import Expert
from kernelweave.models.mixture.experts import ExpertPanel
from kernelweave.protocols import relative_gap
from kernelweave.solvers.mixture import (
    residual_moments,
    stack,
    truncated_em,
    truncated_responsibilities,
)
from kernelweave.solvers.solve import Callback, Certificate, LocalSolution, solve
from kernelweave.weights import Simplex

#: Rounds that alternate between noise and weights; each increases the likelihood.
MAX_ROUNDS = 100


@dataclass(frozen=True)
class Mixture:
    """Experts and their weights.

    Attributes
    ----------
    panel : ExpertPanel
        The experts' predictions, at the final noise levels.
    weights : ndarray of shape (p, k)
        Weight of each expert for each class.
    responsibilities : ndarray of shape (n, p, k)
        Responsibility of each expert for each training row (Eq. 19).
    certificate : Certificate or None
        None for weights that are not learned.
    n_iter : int
        Iterations over all classes.
    """

    panel: ExpertPanel
    weights: np.ndarray
    responsibilities: np.ndarray
    certificate: Certificate | None
    n_iter: int

    @classmethod
    def of(
        cls,
        panel: ExpertPanel,
        weights: np.ndarray,
        outcomes: list[LocalSolution],
        problem: str,
        error: float = 0.0,
    ) -> Mixture:
        """The mixture with learned ``weights`` (p, k), and its certificate.

        ``error`` bounds the error of the value due to digits that the kernels had lost.
        """
        shares = [
            truncated_responsibilities(
                panel.log_density[:, :, c], panel.observed & allowed, own
            )
            for c, (allowed, own) in enumerate(
                zip(panel.allowed.T, weights.T, strict=True)
            )
        ]
        certificate = summarise(outcomes, problem, error) if outcomes else None
        n_iter = max(1, sum(outcome.n_iter for outcome in outcomes))
        return cls(panel, weights, np.stack(shares, axis=2), certificate, n_iter)


def learn_weights(
    model: Any,
    panel: ExpertPanel,
    experts: dict[int, Expert],
    like: Array,
    callback: Callback,
) -> tuple[np.ndarray, list[LocalSolution], float]:
    """Weights (p, k) of all experts, with the parameters of :class:`MixtureKDA`.

    Beside the outcomes of the groups of classes, a bound on the error of the sum of
    their values is returned, due to digits that the kernels had lost. With noise="em"
    the noise levels in the panel change, too; ``experts`` have all candidate levels.
    """
    p, k = panel.allowed.shape
    weights = np.zeros((p, k))
    shared = model.weights == "shared"
    groups = [list(range(k))] if shared else [[c] for c in range(k)]
    outcomes, error = [], 0.0
    for classes in groups:
        members = np.flatnonzero(np.all(panel.allowed[:, classes], axis=1))
        _check_members(members, panel.classes[classes])
        if model.weights == "uniform":
            weights[np.ix_(members, np.array(classes))] = 1.0 / len(members)
            continue
        group = _Group(model, panel, experts, members, classes, like, callback)
        stacking = model.weights == "stacking"
        outcome = group.stacked() if stacking else group.likely()
        error += group.error_of_stack() if stacking else group.error_of_likelihood()
        weights[:, classes] = outcome.weights[:, None]
        outcomes.append(outcome)
    return weights, outcomes, error


@dataclass(frozen=True)
class _Group:
    """The problem of a group of classes that share weights."""

    model: Any
    panel: ExpertPanel
    experts: dict[int, Expert]
    members: np.ndarray  # the experts that may predict all these classes
    classes: list[int]
    like: Array
    callback: Callback

    @cached_property
    def rows(self) -> np.ndarray:
        """Rows (n,) that some member has; other rows do not bear on these classes."""
        return np.any(self.panel.observed[:, self.members], axis=1)

    @cached_property
    def seen(self) -> np.ndarray:
        """Which members have each of these rows."""
        return self.panel.observed[:, self.members][self.rows]

    @cached_property
    def row_weights(self) -> np.ndarray | None:
        """How often each of these rows counts; None if once."""
        weights = self.panel.design.weights
        return None if weights is None else weights[self.rows]

    def likely(self) -> LocalSolution:
        """Maximise the likelihood of leave-one-out densities."""
        outcome = self._solve()
        if self.model.noise != "em":
            return outcome
        for _ in range(MAX_ROUNDS):
            if not self._move_noise(outcome.weights):
                break
            outcome = self._solve(outcome.n_iter)
        return outcome

    def stacked(self) -> LocalSolution:
        """Minimise the leave-one-out squared error of the mean."""
        (c,) = self.classes
        residual = self.panel.target[:, None, c] - self.panel.mean[:, self.members, c]
        moments = residual_moments(residual[self.rows], self.seen, self.row_weights)
        found, value, lower = stack(moments)
        gap = relative_gap(value, lower) if value > 0 else 0.0
        converged = gap <= self.model.tol
        status = f"{'optimal' if converged else 'stopped'}: relative gap {gap:.1e}"
        return LocalSolution(
            weights=self._spread(found),
            value=value,
            lower_bound=lower,
            stationarity=np.nan,
            converged=converged,
            status=status,
            n_iter=1,
        )

    def error_of_likelihood(self) -> float:
        """Bound on the error of the value at any weights, from those of the densities.

        A row's ``log sum_l w_l p_l`` changes by no more than the largest change of a
        ``log p_l``.
        """
        table = self.panel.log_density_error[self.rows][:, self.members]
        worst = np.sum(table[:, :, self.classes], axis=2)
        worst = np.max(worst, axis=1, where=self.seen, initial=0.0)
        return float(np.average(worst, weights=self.row_weights))

    def error_of_stack(self) -> float:
        """Bound on the error of ``w'Aw`` at any weights, from those of the residuals.

        The weights sum to one, so it is at most the largest error of an entry of A. If
        negative eigenvalues of A are set to zero, which brings no two matrices further
        apart, the norm of the errors takes its place.
        """
        (c,) = self.classes
        table = self.panel.mean_error[self.rows][:, self.members, c]
        if not np.any(table):
            return 0.0
        residual = self.panel.target[:, None, c] - self.panel.mean[:, self.members, c]
        error = np.where(self.seen, table, 0.0)
        size = np.where(self.seen, np.abs(residual[self.rows]), 0.0) + error
        seen, each = self.seen.astype(np.float64), np.ones(len(error))
        each = (each if self.row_weights is None else self.row_weights)[:, None]
        shared = (each * seen).T @ seen
        moved = (each * error).T @ size / np.where(shared > 0, shared, 1.0)
        moved = moved + moved.T
        return float(np.max(moved) if np.all(self.seen) else np.linalg.norm(moved))

    def _solve(self, before: int = 0) -> LocalSolution:
        """The best weights for the current densities, after ``before`` iterations."""
        model, host = self.model, self._table()
        each = self.row_weights
        total = len(host) if each is None else float(np.sum(each))
        prior = float(model.concentration) * total / len(self.members)
        # Steps on a small table take microseconds, less than calls to a device would.
        table: Array = host
        if host.size >= model._large_table:
            table = from_numpy(host, self.like, namespace(self.like).float64)
        if np.all(self.seen):
            criterion = MixtureLikelihood(table, prior, each)
            found = solve(
                criterion,
                Simplex(),
                method=model.solver,
                tol=model.tol,
                max_iter=model.max_iter,
                callback=self.callback,
            )
            return LocalSolution(
                weights=self._spread(found.weights),
                value=found.value + criterion.offset,
                lower_bound=found.lower_bound + criterion.offset,
                stationarity=np.nan,
                converged=found.converged,
                status=found.status,
                n_iter=before + found.n_iter,
            )
        limit = {} if model.max_iter is None else {"max_iter": model.max_iter}
        result = truncated_em(
            table,
            self.seen,
            prior,
            tol=model.tol,
            callback=self.callback,
            row_weights=each,
            **limit,
        )
        weights = self._spread(result.weights)
        return replace(result, weights=weights, n_iter=before + result.n_iter)

    def _table(self) -> np.ndarray:
        """Log densities (rows, members), summed over the classes of the group."""
        table = self.panel.log_density[self.rows][:, self.members]
        return np.sum(table[:, :, self.classes], axis=2)

    def _move_noise(self, weights: np.ndarray) -> bool:
        """Take the best noise levels at these weights; return whether any changed."""
        panel = self.panel
        share = np.zeros(panel.observed.shape)
        share[np.ix_(self.rows, self.members)] = truncated_responsibilities(
            self._table(), self.seen, weights[self.members]
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
            better[self.classes] = gain[self.classes] > 1e-9 * panel.design.total
            if np.any(better):
                chosen = expert.moved(np.where(better, best, level))
                panel.settle(e, chosen, self.like)
                moved = True
        return moved

    def _spread(self, weights: np.ndarray) -> np.ndarray:
        full = np.zeros(len(self.panel.allowed))
        full[self.members] = weights
        return full


def summarise(
    outcomes: list[LocalSolution], problem: str, error: float = 0.0
) -> Certificate:
    """One certificate for all classes: their values add up.

    A log density has no natural zero, so the gap is relative to the value or to 1,
    whichever is larger. ``error`` bounds the error of the value at any weights.
    """
    value = sum(outcome.value for outcome in outcomes)
    lower = sum(outcome.lower_bound for outcome in outcomes)
    measures = [o.stationarity for o in outcomes if not np.isnan(o.stationarity)]
    open_ones = [c for c, outcome in enumerate(outcomes) if not outcome.converged]
    gap = (value - lower) / max(1.0, abs(value))
    if open_ones:
        status = outcomes[open_ones[0]].status
        if len(outcomes) > 1:
            status += f" (weights of class {open_ones[0]})"
    elif measures:
        largest = max(measures)
        status = f"stationary: a step changes no weight by more than {largest:.1e}"
    else:
        status = f"optimal: the gap is {gap:.1e}"
        if len(outcomes) > 1:
            status += f", that of each of the {len(outcomes)} classes within tol"
    if error > 0 and not measures:
        value, lower = value + error, lower - error
        gap = (value - lower) / max(1.0, abs(value))
        status += f"; digits lost in centring widen it to {gap:.1e}"
    return Certificate(
        value=float(value),
        lower_bound=float(lower),
        gap=float(gap),
        status=status,
        converged=not open_ones,
        problem=problem,
        stationarity=max(measures) if measures else None,
    )


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
