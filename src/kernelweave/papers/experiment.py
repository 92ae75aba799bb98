"""The parts of an experiment of a paper."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from kernelweave.papers.results import Results

__all__ = [
    "Claim",
    "Columns",
    "Experiment",
    "Measure",
    "Paper",
    "Published",
    "Split",
    "Value",
]

#: A method may report a number or a list of numbers.
Value = float | list[float]
#: Methods by name.
Columns = Mapping[str, Callable[[Any], Mapping[str, Any]]]


@dataclass(frozen=True)
class Split:
    """Training rows and test rows.

    Attributes
    ----------
    train, test : ndarray of shape (m, d) and (t, d)
        Rows.
    y_train, y_test : ndarray of shape (m,) and (t,)
        Their classes.
    """

    train: np.ndarray
    y_train: np.ndarray
    test: np.ndarray
    y_test: np.ndarray

    @classmethod
    def draw(
        cls, X: np.ndarray, y: np.ndarray, share: float, rng: np.random.Generator
    ) -> Split:
        """Partition rows at random; a fraction ``share`` of them are training rows."""
        order = rng.permutation(len(y))
        m = round(share * len(y))
        train, test = order[:m], order[m:]
        return cls(X[train], y[train], X[test], y[test])


@dataclass(frozen=True)
class Measure:
    """A number that is compared with the paper.

    Attributes
    ----------
    name : str
        Its key in the dict that a column returns.
    digits : int
        Number of decimals in tables.
    better : {"higher", "lower", ""}
        Which direction is better; "" if neither, and then no cell can be "better".
    """

    name: str
    digits: int = 2
    better: str = "higher"


@dataclass(frozen=True)
class Published:
    """A number that the paper reports.

    Attributes
    ----------
    value : float
        The number in the table.
    tolerance : float or None
        Largest deviation that counts as a reproduction; None: two standard errors of
        the difference of two means.
    error : float
        Standard error of ``value`` beyond that of the random splits, if known.
    """

    value: float
    tolerance: float | None = None
    error: float = 0.0


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, in our words, with a test.

    Attributes
    ----------
    text : str
        What the paper says.
    check : callable
        Takes the :class:`Results`; returns whether the claim holds, and the finding.
    """

    text: str
    check: Callable[[Results], tuple[bool, str]]


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper; the package docstring explains each field."""

    key: str
    title: str
    rows: Mapping[str, Callable[[], Any]]
    split: Callable[[Any, np.random.Generator], Any]
    columns: Columns
    measures: Sequence[Measure]
    splits: int
    quick: int
    row_title: str = "data set"
    published: Mapping[tuple[str, str], Mapping[str, Published]] = field(
        default_factory=dict
    )
    claims: Sequence[Claim] = ()
    draw: Callable[[Results], Any] | None = None
    version: int = 1
    stated: bool = True
    variant: str = ""
    quick_form: Experiment | None = None

    def measure(self, name: str) -> Measure:
        """The measure of that name."""
        return next(measure for measure in self.measures if measure.name == name)


@dataclass(frozen=True)
class Paper:
    """A paper and its experiments.

    Attributes
    ----------
    key : str
        First author and year.
    reference : str
        How to cite it.
    experiments : sequence of Experiment
        Its tables and figures.
    """

    key: str
    reference: str
    experiments: Sequence[Experiment]

    def select(
        self, table: int | None = None, figure: int | None = None, part: str = ""
    ) -> list[Experiment]:
        """All experiments, or only the one named."""
        wanted = part
        if table is not None:
            wanted = f"table{table}"
        elif figure is not None:
            wanted = f"figure{figure}"
        if not wanted:
            return list(self.experiments)
        found = [e for e in self.experiments if e.key == wanted]
        if not found:
            keys = ", ".join(experiment.key for experiment in self.experiments)
            raise ValueError(f"{self.key} has no {wanted}; there are {keys}")
        return found
