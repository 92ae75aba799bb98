"""The parts of an experiment of a paper, and what several papers have in common."""

from __future__ import annotations

import functools
import time
import tomllib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.datasets import load_wine
from sklearn.model_selection import GridSearchCV, train_test_split

from kernelweave.datasets import fetch_views

if TYPE_CHECKING:
    from reproduce.results import Results

#: A method may report a number or a list of numbers.
Value = float | list[float]
#: Whether something holds, and what was found.
Finding = tuple[bool, str]
#: Methods by name.
Columns = Mapping[str, Callable[[Any], Mapping[str, Any]]]
#: Numbers of a table: (row, column) -> measure -> number.
Cells = Mapping[tuple[str, str], Mapping[str, "Published"]]
#: Folds in which the C of a support vector machine is chosen.
C_FOLDS = 3
#: The printed numbers and claims, in one file per paper.
PRINTED = Path(__file__).parent / "printed"


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
        Which direction is better; "" if neither: a cell may then differ, but is neither
        better nor worse.
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
    deviation : float or None
        The standard deviation over splits, if the paper prints one.
    role : {"printed", "dash", "again", "beside"}
        A number that is judged and counted; our reading of a dash, counted separately;
        a number that another row is judged by, with a verdict that is not counted; or
        one shown next to ours without a verdict, because the data or the machine
        differ.
    """

    value: float
    tolerance: float | None = None
    deviation: float | None = None
    role: str = "printed"


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper, in our words, with a test.

    Attributes
    ----------
    text : str
        What the paper says.
    check : callable
        Takes the :class:`Results`; yields one or several findings, each with whether
        the claim holds there. It holds if it does so everywhere.
    """

    text: str
    check: Callable[[Results], Iterable[Finding]]


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper; the package docstring explains each field."""

    key: str
    title: str
    rows: Mapping[str, Callable[..., Any]]
    split: Callable[[Any, np.random.Generator], Any]
    columns: Columns
    measures: Sequence[Measure]
    splits: int
    quick: int
    row_title: str = "data set"
    published: Cells = field(default_factory=dict)
    claims: Sequence[Claim] = ()
    draw: Callable[[Results], Any] | None = None
    version: int = 1
    stated: bool = True
    variant: str = ""
    quick_form: Experiment | None = None


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

    def select(self, wanted: str | None = None) -> list[Experiment]:
        """All experiments, or only the one with this key."""
        found = [e for e in self.experiments if wanted in (None, e.key)]
        if not found:
            keys = ", ".join(experiment.key for experiment in self.experiments)
            raise ValueError(f"{self.key} has no {wanted}; it has {keys}")
        return found


# ----------------------------------------------------------- what the paper prints


def read_paper(
    key: str, checks: Mapping[str, Any], computed: Mapping[str, Sequence[Any]]
) -> Paper:
    """Read ``printed/<key>.toml``; the package docstring explains the format.

    Parameters
    ----------
    key : str
        The paper.
    checks : dict
        The functions that its claims name, usually the ``globals()`` of a module.
        Entries of a claim other than ``text`` and ``check`` are arguments of the
        function.
    computed : dict
        How each table or figure is computed: its rows, split, columns and, if there is
        one, the function that draws it.

    Returns
    -------
    paper : Paper
        The tables and figures that are computed, in the order given.
    """
    content = tomllib.loads((PRINTED / f"{key}.toml").read_text(encoding="utf-8"))

    def claim(text: str, check: str, **setting: Any) -> Claim:
        return Claim(text, functools.partial(checks[check], **setting))

    def experiment(
        part: str, rows: Any, split: Any, columns: Columns, draw: Any = None
    ) -> Experiment:
        entry = content[part]
        entry["measures"] = tuple(Measure(**measure) for measure in entry["measures"])
        entry["claims"] = tuple(claim(**told) for told in entry.get("claims", ()))
        published = _cells(entry.pop("published", {}), entry.pop("deviations", {}))
        how = {"rows": rows, "split": split, "columns": columns, "draw": draw}
        return Experiment(part, published=published, **how, **entry)

    found = tuple(experiment(part, *how) for part, how in computed.items())
    return Paper(key, content["reference"], found)


def _cells(
    tables: Mapping[str, dict[str, Any]], deviations: Mapping[str, dict[str, Any]]
) -> Cells:
    """Tables of one measure with a head of columns, or of one column with measures."""
    cells: dict[tuple[str, str], dict[str, Published]] = {}
    for title, table in tables.items():
        rows, spreads = dict(table), deviations.get(title, {})
        kind = "columns" if "columns" in rows else "measures"
        head = rows.pop(kind)
        tolerances = rows.pop("tolerance", [None] * len(head))
        roles = rows.pop("role", "printed")
        for row, values in rows.items():
            role = roles if isinstance(roles, str) else roles.get(row, "printed")
            own = spreads.get(row)
            spread = {} if own is None else dict(zip(spreads[kind], own, strict=True))
            for name, value, tolerance in zip(head, values, tolerances, strict=True):
                if value == "-":
                    continue
                column, measure = (name, title) if kind == "columns" else (title, name)
                cells.setdefault((row, column), {})[measure] = Published(
                    float(value), tolerance, deviation=spread.get(name), role=role
                )
    return cells


# ----------------------------------------------------------- data, splits, methods


def table_rows(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows (n, d) of a table and their classes (n,), unscaled."""
    bunch = load_wine() if name == "wine" else fetch_views(name, as_frame=False)
    return bunch.data, bunch.target


def first_rows(
    X: np.ndarray,
    y: np.ndarray,
    per_class: int,
    classes: int | None = None,
    rng: np.random.Generator | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """The first ``per_class`` rows of each class, or of the first few ``classes``.

    With ``rng``, they are drawn at random instead.
    """
    order = np.asarray if rng is None else rng.permutation
    kept = [order(np.flatnonzero(y == c))[:per_class] for c in np.unique(y)[:classes]]
    return X[np.concatenate(kept)], y[np.concatenate(kept)]


def partition(
    data: Sequence[Any],
    rng: np.random.Generator,
    share: float,
    kind: Callable[..., Any] = Split,
    stratify: bool = False,
) -> Any:
    """Rows and classes, divided: a fraction ``share`` become training rows.

    Parameters
    ----------
    data : tuple
        Rows (n, d), their classes (n,), and further fields of the split.
    rng : Generator
        Draws the training rows.
    share : float
        Their share of all rows.
    kind : type, default=Split
        The kind of split.
    stratify : bool, default=False
        Whether to take this share of each class.
    """
    X, y, *more = data
    if stratify:
        train, test = stratified(y, share, rng)
    else:
        train, test = np.split(rng.permutation(len(y)), [round(share * len(y))])
    return kind(X[train], y[train], X[test], y[test], *more)


def stratified(
    y: np.ndarray, share: float, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Training and test rows, as row numbers; ``share`` of each class for training."""
    train, test = train_test_split(
        np.arange(len(y)),
        train_size=share,
        stratify=y,
        random_state=int(rng.integers(2**31)),
    )
    return train, test


def choose_C(machine: Any, X: np.ndarray, y: np.ndarray, grid: Sequence[float]) -> Any:
    """The fitted machine, with C by cross-validation if the grid has several values."""
    if len(grid) == 1:
        return machine.set_params(C=grid[0]).fit(X, y)
    with warnings.catch_warnings():
        # some kinds of brain tumours have fewer rows than there are folds
        warnings.filterwarnings("ignore", "The least populated class")
        return GridSearchCV(machine, {"C": grid}, cv=C_FOLDS).fit(X, y).best_estimator_


def fit_seconds(model: Any, X: np.ndarray, y: np.ndarray) -> float:
    """Fit a model; return the CPU time it takes, in seconds."""
    started = time.process_time()
    model.fit(X, y)
    return time.process_time() - started
