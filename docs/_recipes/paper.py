"""A new paper: one table, with a claim.

In the folder ``reproduce`` this is a module that defines ``PAPER`` at the end, and its
key is listed in ``reproduce.PAPERS``; by hand, run this file with ``PYTHONPATH=.`` from
the root of a checkout. Rows are data sets and columns are methods. Functions are
defined at module level, since splits run in several processes. Caching of splits,
resuming, tables and figures are shared by all papers.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from sklearn.datasets import load_wine

from kernelweave import KernelFDA, MultipleKernelFDA
from reproduce import Claim, Experiment, Measure, Paper, Published
from reproduce.experiment import partition
from reproduce.run import run_experiment


def wine():
    """The data set of a row."""
    return load_wine(return_X_y=True)


def halves(data, rng):
    """One split: train on half of the rows."""
    return partition(data, rng, share=0.5)


def uniform(split):
    """A column: equal weights."""
    model = KernelFDA(cv=None).fit(split.train, split.y_train)
    return {"accuracy": 100 * model.score(split.test, split.y_test)}


def learned(split):
    """A column: learned weights."""
    model = MultipleKernelFDA(norm=2, cv=None).fit(split.train, split.y_train)
    return {"accuracy": 100 * model.score(split.test, split.y_test)}


def both_are_good(results):
    """Whether the claim holds, and what was found."""
    means = [results.mean("wine", name, "accuracy") for name in ("uniform", "learned")]
    yield min(means) > 90.0, f"{means[0]:.1f} and {means[1]:.1f} %"


TABLE = Experiment(
    key="table1",
    title="Table 1: accuracy in percent",
    rows={"wine": wine},
    split=halves,
    columns={"uniform": uniform, "learned": learned},
    measures=(Measure("accuracy", digits=1),),
    splits=30,
    quick=3,
    published={("wine", "learned"): {"accuracy": Published(97.0, tolerance=5.0)}},
    claims=(Claim("wine is easy with any weights", both_are_good),),
)
PAPER = Paper("toy2026", "Nobody (2026): A toy.", (TABLE,))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        results = run_experiment(TABLE, n_splits=TABLE.quick, cache=Path(folder))
    ((text, verdict, found),) = results.claims()
    assert verdict == "reproduced", found
    assert PAPER.experiments == (TABLE,)
    print(f"{text}: {found}")
