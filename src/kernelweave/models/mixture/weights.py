"""How the weights of the experts of a mixture are learned, class by class."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelweave._array import Array, from_numpy, namespace
from kernelweave.criteria.mixture import MixtureLikelihood
from kernelweave.models.mixture.experts import ExpertPanel
from kernelweave.models.shared.base import check_choice, check_number, is_int
from kernelweave.models.shared.certificate import Certificate
from kernelweave.solvers.certify import relative_gap
from kernelweave.solvers.em import truncated_em, truncated_responsibilities
from kernelweave.solvers.solution import TraceRow
from kernelweave.solvers.solve import solve
from kernelweave.solvers.stacking import residual_moments, stack
from kernelweave.weights import Simplex

__all__ = ["Outcome", "check_mixture_parameters", "learn_mixture_weights", "summarise"]

Callback = Callable[[TraceRow], object]
#: Rounds of noise and weights in turn; each increases the likelihood.
MAX_ROUNDS = 100
#: Entries of a table of densities from which on EM runs where the kernels are.
LARGE_TABLE = 10**6


@dataclass(frozen=True)
class Outcome:
    """Weights of one class (or of all), and the proof or what is left of it.

    Attributes
    ----------
    weights : ndarray of shape (p,)
        Zero for experts that may not speak.
    value, lower_bound : float
        Bounds, in nats a row for likelihoods; the lower one is NaN without concavity.
    converged : bool
        Whether the tolerance was reached.
    status : str
        The outcome as a sentence.
    n_iter : int
        Iterations.
    stationarity : float or None
        For problems that are not concave.
    """

    weights: np.ndarray
    value: float
    lower_bound: float
    converged: bool
    status: str
    n_iter: int
    stationarity: float | None = None


def check_mixture_parameters(model: Any) -> None:
    """Refuse parameter values and combinations that make no sense."""
    choices = {
        "weights": ("per_class", "shared", "uniform", "stacking"),
        "projection": ("prior", "posterior"),
        "posterior": ("kde", "normalised", "printed"),
        "amplitude": ("profile", "unit"),
        "likelihood": ("gaussian", "student", "tprocess"),
        "density": ("loo", "insample"),
        "missing": ("error", "available", "zero"),
        "solver": ("auto", "newton", "em"),
        "psd": ("error", "clip", "trust"),
    }
    for name, allowed in choices.items():
        check_choice(model, name, allowed)
    finite = np.isfinite
    check_number(
        model,
        "noise",
        ("loo", "ml", "em"),
        lambda v: finite(v) and v > 0,
        "a finite number > 0",
    )
    check_number(
        model,
        "concentration",
        (),
        lambda v: finite(v) and v >= 0,
        "a finite number >= 0",
    )
    check_number(model, "dof", (), lambda v: finite(v) and v > 2, "a number > 2")
    check_number(model, "tol", (), lambda v: v > 0, "a number > 0")
    check_number(model, "verbose", (), lambda v: is_int(v, 0), "an int >= 0")
    if model.max_iter is not None:
        check_number(
            model, "max_iter", (), lambda v: is_int(v, 1), "None or an int >= 1"
        )
    learned = model.weights in ("per_class", "shared")
    if model.noise == "em" and not learned:
        raise ValueError(
            "noise='em' is chosen together with weights by likelihood; got "
            f"weights={model.weights!r}"
        )
    printed = {"weights": "per_class", "likelihood": "gaussian"}
    for name, value in printed.items() if model.density == "insample" else ():
        if getattr(model, name) != value:
            raise ValueError(
                f"density='insample' is the printed algorithm, which has {name}="
                f"{value!r}; got {name}={getattr(model, name)!r}"
            )


def learn_mixture_weights(
    model: Any, panel: ExpertPanel, like: Array, callback: Callback
) -> tuple[np.ndarray, list[Outcome]]:
    """Weights (p, k) of all experts and classes; noise levels too if they join in."""
    p, k = panel.allowed.shape
    weights = np.zeros((p, k))
    groups = [list(range(k))] if model.weights == "shared" else [[c] for c in range(k)]
    outcomes = []
    for classes in groups:
        members = np.flatnonzero(np.all(panel.allowed[:, classes], axis=1))
        _check_members(members, classes, model)
        if model.weights == "uniform":
            weights[np.ix_(members, np.array(classes))] = 1.0 / len(members)
            continue
        group = _Group(model, panel, members, classes, like, callback)
        outcome = group.stacked() if model.weights == "stacking" else group.likely()
        weights[:, classes] = outcome.weights[:, None]
        outcomes.append(outcome)
    return weights, outcomes


class _Group:
    """The problem of some classes that share their weights."""

    def __init__(
        self,
        model: Any,
        panel: ExpertPanel,
        members: np.ndarray,
        classes: list[int],
        like: Array,
        callback: Callback,
    ) -> None:
        self.model, self.panel, self.callback = model, panel, callback
        self.like = like
        self.members, self.classes = members, classes
        seen = panel.observed[:, members]
        self.rows = np.any(seen, axis=1)  # the others know nothing of these classes
        self.seen = seen[self.rows]

    def likely(self) -> Outcome:
        """Largest likelihood of leave-one-out densities."""
        outcome = self._solve()
        if self.model.noise != "em":
            return outcome
        for _ in range(MAX_ROUNDS):
            if not self._move_noise(outcome.weights):
                break
            outcome = self._solve(outcome.n_iter)
        return outcome

    def stacked(self) -> Outcome:
        """Smallest leave-one-out squared error of the mean."""
        (c,) = self.classes
        residual = self.panel.target[:, None, c] - self.panel.mean[:, self.members, c]
        moments = residual_moments(residual[self.rows], self.seen)
        found, value, lower = stack(moments)
        gap = relative_gap(value, lower) if value > 0 else 0.0
        converged = gap <= self.model.tol
        status = f"{'optimal' if converged else 'stopped'}: relative gap {gap:.1e}"
        return Outcome(self._spread(found), value, lower, converged, status, 1)

    def _solve(self, before: int = 0) -> Outcome:
        model, host = self.model, self._table()
        prior = float(model.concentration) * len(host) / len(self.members)
        # Steps on a small table take microseconds: a device would spend more on calls.
        table = host if host.size < LARGE_TABLE else self._on_device(host)
        if np.all(self.seen):
            criterion = MixtureLikelihood(table, prior)
            found = solve(
                criterion,
                Simplex(),
                method=model.solver,
                tol=model.tol,
                max_iter=model.max_iter,
                callback=self.callback,
            )
            value, lower = (
                bound + criterion.offset for bound in (found.value, found.lower_bound)
            )
            n_iter = before + found.n_iter
            weights = self._spread(found.weights)
            return Outcome(weights, value, lower, found.converged, found.status, n_iter)
        limit = {} if model.max_iter is None else {"max_iter": model.max_iter}
        result = truncated_em(
            table, self.seen, prior, tol=model.tol, callback=self.callback, **limit
        )
        return Outcome(
            self._spread(result.weights),
            result.value,
            float("nan"),
            result.converged,
            result.status,
            before + result.n_iter,
            result.stationarity,
        )

    def _table(self) -> np.ndarray:
        """Log densities (rows, members), summed over the classes of the group."""
        table = self.panel.log_density[self.rows][:, self.members]
        return np.sum(table[:, :, self.classes], axis=2)

    def _on_device(self, table: np.ndarray) -> Array:
        return from_numpy(table, self.like, namespace(self.like).float64)

    def _move_noise(self, weights: np.ndarray) -> bool:
        """The best noise levels for the present responsibilities; whether any moved."""
        panel = self.panel
        share = np.zeros(panel.observed.shape)
        share[np.ix_(self.rows, self.members)] = truncated_responsibilities(
            self._table(), self.seen, weights[self.members]
        )
        moved = False
        for e in self.members:
            expert, own = panel.experts[e], share[panel.rows[e], e]
            score = np.einsum("i,gic->gc", own, expert.tables)
            level = np.searchsorted(expert.grid.noises, panel.noise[e])
            columns = np.arange(score.shape[1])
            best = np.argmax(score, axis=0)
            gain = score[best, columns] - score[level, columns]
            better = np.zeros(len(best), dtype=bool)
            better[self.classes] = gain[self.classes] > 1e-9 * len(own)
            if np.any(better):
                chosen = expert.moved(np.where(better, best, level))
                panel.settle(e, chosen, self.like)
                moved = True
        return moved

    def _spread(self, weights: np.ndarray) -> np.ndarray:
        full = np.zeros(len(self.panel.allowed))
        full[self.members] = weights
        return full


def summarise(outcomes: list[Outcome], problem: str) -> Certificate:
    """One certificate for all classes: their values add up.

    A log density has no zero, so the gap is relative to the value or to 1, whichever is
    larger.
    """
    value = sum(outcome.value for outcome in outcomes)
    lower = sum(outcome.lower_bound for outcome in outcomes)
    measures = [o.stationarity for o in outcomes if o.stationarity is not None]
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
    return Certificate(
        value=float(value),
        lower_bound=float(lower),
        gap=float(gap),
        status=status,
        converged=not open_ones,
        problem=problem,
        stationarity=max(measures) if measures else None,
    )


def _check_members(members: np.ndarray, classes: list[int], model: Any) -> None:
    if len(members):
        return
    if len(classes) > 1:
        raise ValueError(
            "weights='shared': no kernel has rows of every class, so none can speak "
            "about all of them; use weights='per_class'"
        )
    label = model.classes_.tolist()[classes[0]]
    raise ValueError(
        f"class {label!r} has fewer than 2 rows in every view that also has rows of "
        "another class; there is nothing to learn it from"
    )
