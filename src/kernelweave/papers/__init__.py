"""The experiments of the papers, rebuilt; one module a paper.

``kernelweave reproduce PAPER`` runs them, compares each cell of a table with what the
paper reports, and draws its figures.

To add a paper, write a module ``<key>.py`` that ends in::

    PAPER = Paper(key, reference, experiments=(Experiment(...), ...))

and add its key to :data:`PAPERS`. An :class:`Experiment` is one table or figure, and
reads like the section of the paper it stands for:

===============  ====================================================================
``key, title``   ``"table1"``, ``"figure2"`` or another word, and a line about it
``rows``         name -> function without arguments that returns the data; it may
                 raise ``MissingDataError``, and the row is then left out with a line
                 that says how to get the data
``split``        function of (data, generator) that draws one split or repetition
``columns``      name -> function of the split that returns ``{measure: value}`` with
                 numbers or lists of numbers; one column is one method
``measures``     what is compared: name, number of digits, which way is better
``published``    (row, column) -> ``{measure: Published(value)}``
``claims``       sentences of the paper that can be tested, each with a function of
                 the results that returns whether it holds and what was found
``draw``         function of the results that returns a matplotlib figure
``splits``       how many splits the paper had; ``quick`` how many a quick run has
``stated``       False if the paper does not say how many splits it had
``quick_form``   what a quick run takes in its place, if few splits are not enough; its
                 ``variant`` keeps the results of the two apart
``version``      to be raised when the protocol changes, so that no old result is used
===============  ====================================================================

Functions must be importable (module level, or ``functools.partial`` of such), since
splits run in several processes. Everything else - the cache of each split, resuming,
progress bars, tables, CSV files and pictures - is done by the modules
:mod:`~kernelweave.papers.run` and :mod:`~kernelweave.papers.report` and is the same for
all papers.
"""

from __future__ import annotations

import importlib

from kernelweave.papers.experiment import (
    Claim,
    Experiment,
    Measure,
    Paper,
    Published,
    Split,
)

__all__ = [
    "PAPERS",
    "Claim",
    "Experiment",
    "Measure",
    "Paper",
    "Published",
    "Split",
    "load_paper",
]

#: Modules of this package that hold a paper, in the order of their years.
PAPERS = ("lanckriet2002", "ye2007", "chen2008", "yan2009", "zhao2009")


def load_paper(key: str) -> Paper:
    """Import the experiments of one of :data:`PAPERS`."""
    if key not in PAPERS:
        raise ValueError(f"the paper must be one of {', '.join(PAPERS)}; got {key!r}")
    paper = importlib.import_module(f"kernelweave.papers.{key}").PAPER
    assert isinstance(paper, Paper)
    return paper
