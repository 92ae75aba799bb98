"""Means over splits, their standard errors, and the verdict on each number.

A number is reproduced if ours agrees with it. If not, ours is better or worse; either
way the number has not been reproduced. Claims, and numbers for which neither direction
is better, are reproduced or not. A single split gives no verdict on either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from reproduce.experiment import Experiment, Measure, Published, Value

REPRODUCED, NOT_REPRODUCED = "reproduced", "not reproduced"
BETTER, WORSE = f"{NOT_REPRODUCED} (better)", f"{NOT_REPRODUCED} (worse)"
#: Why a claim has no verdict.
NOT_RUN, ONE_SPLIT = "not run", "no verdict (one split)"
#: A difference is significant if it exceeds this many standard errors.
ERRORS = 2.0


class Estimate(NamedTuple):
    """A mean over splits, and its standard error.

    The error is nan for a single split, and for two that are equal, which do not show
    that a third would be equal too.
    """

    mean: float
    error: float

    @classmethod
    def of(cls, values: np.ndarray) -> Estimate:
        """The mean of the values of all splits."""
        n = len(values)
        error = float(np.std(values, ddof=1) / np.sqrt(n)) if n > 1 else 0.0
        return cls(float(np.mean(values)), error if error > 0.0 or n > 2 else np.nan)

    def __format__(self, form: str) -> str:
        """The mean in this form, such as "+.2f", and the error if there is one."""
        shown = format(self.mean, form.replace(".", "z."))  # z: no -0.00
        error = format(self.error, form.lstrip("+"))
        return f"{shown} ± {error}" if np.isfinite(self.error) else shown


#: The measures of each column on one split.
SplitValues = Mapping[str, Mapping[str, Value]]


@dataclass(frozen=True)
class Cell:
    """A number of a table: the paper's and ours.

    Attributes
    ----------
    row, column : str
        Its place in the table.
    measure : Measure
        What it measures.
    ours : Estimate
        Our mean over splits, and its standard error.
    splits : int
        Number of splits.
    published : Published or None
        The number in the paper.
    verdict : str
        "reproduced", "not reproduced (better)" or "not reproduced (worse)"; "not
        reproduced" if neither direction is better; "" if the paper has no number to
        compare with, or ours has no standard error.
    """

    row: str
    column: str
    measure: Measure
    ours: Estimate
    splits: int
    published: Published | None
    verdict: str


@dataclass
class Results:
    """All splits of an experiment.

    Attributes
    ----------
    experiment : Experiment
        What was run.
    splits : dict
        The values of each row and split: column -> measure -> value.
    missing : dict
        The reason for each row that was left out.
    warnings : dict
        The warnings of each column, with the number of splits that issued them.
    """

    experiment: Experiment
    splits: dict[str, dict[int, SplitValues]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    warnings: dict[str, Counter[str]] = field(default_factory=dict)

    @property
    def rows(self) -> list[str]:
        """The rows that were run."""
        return [row for row in self.experiment.rows if self.splits.get(row)]

    @property
    def places(self) -> list[tuple[str, str]]:
        """Row and column of each cell."""
        columns = self.experiment.columns
        return [(row, column) for row in self.rows for column in columns]

    def values(self, row: str, column: str, measure: str) -> np.ndarray:
        """The values of all splits, (splits,) or (splits, length of the list)."""
        numbers = self.splits[row]
        return np.array([numbers[i][column][measure] for i in sorted(numbers)])

    def mean(self, row: str, column: str, measure: str) -> float:
        """Mean of a number over splits."""
        return Estimate.of(self.values(row, column, measure)).mean

    def means(self, rows: Iterable[str], column: str, measure: str) -> np.ndarray:
        """Mean of a number in each of the rows."""
        return np.array([self.mean(row, column, measure) for row in rows])

    def error(self, row: str, column: str, measure: str) -> float:
        """Standard error of that mean; see :class:`Estimate`."""
        return Estimate.of(self.values(row, column, measure)).error

    def difference(self, row: str, column: str, other: str, measure: str) -> Estimate:
        """Mean of ``column`` minus ``other`` over the same splits."""
        gap = self.values(row, column, measure) - self.values(row, other, measure)
        return Estimate.of(gap)

    def cells(self) -> list[Cell]:
        """The cell of every row, column and measure that all splits have."""
        return [
            self._cell(row, column, measure)
            for row in self.rows
            for column in self.experiment.columns
            for measure in self.experiment.measures
            if all(measure.name in s.get(column, {}) for s in self.splits[row].values())
        ]

    def _cell(self, row: str, column: str, measure: Measure) -> Cell:
        experiment = self.experiment
        ours = Estimate.of(self.values(row, column, measure.name))
        n = len(self.splits[row])
        published = experiment.published.get((row, column), {}).get(measure.name)
        verdict = ""
        if published is not None and published.role != "beside":
            # The paper's mean is over splits drawn in the same way as ours.
            both = ours.error * float(np.sqrt(1 + n / experiment.splits))
            verdict = judge(measure, published, ours.mean, both)
        return Cell(row, column, measure, ours, n, published, verdict)

    def claims(self) -> list[tuple[str, str, str]]:
        """Text, verdict and findings of each claim.

        There is no verdict if data are missing, or if a row has a single split, which
        says nothing about the next one.
        """
        if not self.rows:
            nothing = NOT_RUN, "no results for any data set"
            return [(claim.text, *nothing) for claim in self.experiment.claims]
        checked = []
        several = all(len(splits) > 1 for splits in self.splits.values() if splits)
        for claim in self.experiment.claims:
            try:
                findings = list(claim.check(self))
            except KeyError as error:
                checked.append((claim.text, NOT_RUN, f"no results for {error}"))
                continue
            everywhere = all(holds for holds, _ in findings)
            verdict = REPRODUCED if everywhere else NOT_REPRODUCED
            text = "; ".join(found for _, found in findings)
            checked.append((claim.text, verdict if several else ONE_SPLIT, text))
        return checked


def judge(measure: Measure, published: Published, mean: float, error: float) -> str:
    """Compare a mean with the paper's; ``error`` is that of their difference.

    Without an error to judge by there is no verdict ("").
    """
    difference = mean - published.value
    allowed = ERRORS * error if published.tolerance is None else published.tolerance
    if not np.isfinite(allowed):
        return ""
    # the paper's number is rounded to its digits
    allowed += 0.5 * 10.0**-measure.digits
    if abs(difference) <= allowed:
        return REPRODUCED
    if not measure.better:
        return NOT_REPRODUCED
    return BETTER if (difference > 0) == (measure.better == "higher") else WORSE
