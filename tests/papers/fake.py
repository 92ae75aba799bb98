"""A paper whose experiments take no time."""

from __future__ import annotations

import functools
import warnings

import numpy as np
from threadpoolctl import threadpool_info

from kernelweave.exceptions import MissingDataError
from reproduce import Claim, Experiment, Measure, Paper, Published


def half():
    return 0.5


def nowhere():
    raise MissingDataError("the data set 'moon' was not found; fly there")


def draw_number(data, rng):
    return data + rng.standard_normal()


def same(split):
    return {"score": split, "list": [1.0, 2.0]}


def shifted(split, by):
    return {"score": split + by}


def warns(split):
    warnings.warn(f"in float64 the gap is {split:.3e}", UserWarning, stacklevel=1)
    return {"score": split}


def count_threads(split):
    """The largest number of threads of any linear algebra library."""
    return {"score": float(max(pool["num_threads"] for pool in threadpool_info()))}


def shift_is_seen(results):
    mean, error = results.difference("half", "shifted", "same", "score")
    yield mean > 2 * error, f"{mean:+.2f}"


def needs_the_moon(results):
    return [(results.mean("moon", "same", "score") > 0, "never")]


def picture(results):
    from reproduce.figures import bars

    return bars(results, ("score",), ("score",))


TABLE = Experiment(
    key="table1",
    title="Table 1: numbers",
    rows={"half": half, "moon": nowhere},
    split=draw_number,
    columns={
        "same": same,
        "shifted": functools.partial(shifted, by=10.0),
        "lost": functools.partial(shifted, by=-10.0),
        "warns": warns,
    },
    measures=(Measure("score", digits=2),),
    splits=8,
    quick=2,
    published={
        ("half", "same"): {"score": Published(0.5, tolerance=3.0)},
        ("half", "shifted"): {"score": Published(0.5)},
        ("half", "lost"): {"score": Published(0.5)},
    },
    claims=(
        Claim("shifted is larger", shift_is_seen),
        Claim("the moon is cheese", needs_the_moon),
    ),
    draw=picture,
)
FIGURE = Experiment(
    key="figure3",
    title="Figure 3: nothing",
    rows={"half": half},
    split=draw_number,
    columns={"same": same},
    measures=(Measure("score"),),
    splits=3,
    quick=1,
)
PAPER = Paper("fake", "Nobody (1900): Nothing.", (TABLE, FIGURE))
GENERATOR = np.random.default_rng(0)
