"""The experiments of the papers, rebuilt; one module per paper.

``python -m reproduce PAPER`` runs them, compares each cell of a table with what the
paper reports, and draws its figures.

To add a paper, write a module ``<key>.py`` that ends in::

    PAPER = read_paper(key, globals(), {"table1": (rows, split, columns, draw), ...})

and add its key to :data:`PAPERS`. An :class:`Experiment` is one table or figure, and
reads like the corresponding section of the paper:

===============  ====================================================================
``key, title``   ``"table1"``, ``"figure2"`` or another word, and a one-line title
``rows``         name -> function without arguments that returns the data; if it
                 raises ``MissingDataError``, the row is left out, with a line that
                 says how to get the data
``split``        function of (data, generator) that draws one split or repetition
``columns``      name -> function of the split that returns ``{measure: value}`` with
                 numbers or lists of numbers; one column per method
``measures``     what is compared: name, number of digits, which direction is better
``published``    (row, column) -> ``{measure: Published(value)}``
``claims``       sentences of the paper that can be tested, each with a function of
                 the results that yields, once or for each case, whether the sentence
                 holds and what was found
``draw``         function of the results that returns a matplotlib figure
``splits``       number of splits in the paper (1: a table of facts);
                 ``quick``: number in a quick run
``stated``       False if the paper does not state its number of splits
``quick_form``   experiment that a quick run uses instead, if fewer splits are not
                 enough; its ``variant`` separates the results of the two
``version``      to be increased when the protocol changes, so that old results are
                 not used
===============  ====================================================================

What the paper prints is in ``printed/<key>.toml``: its reference and, for each table or
figure, the fields ``title``, ``measures``, ``splits``, ``quick``, ``published`` and
``claims``, and those other fields that differ from their defaults. A table of
``published`` is named after a measure, and has a line ``columns``; or it is named after
a column, and has a line ``measures``. Each other line is a row of the table, with "-"
for a dash; ``tolerance`` replaces two standard errors, and ``role``, one for the whole
table or a table of rows, is that of :class:`Published`. ``deviations`` has the same
form, and holds the standard deviations that the paper prints. A claim has a ``text``,
and names the function that checks it; further entries are arguments of this function.

Functions must be importable (at module level, or ``functools.partial`` of such), since
splits run in several processes. Everything else - caching splits, resuming, progress
bars, tables, CSV files and plots - is common to all papers and done by the modules
:mod:`~reproduce.run` and :mod:`~reproduce.report`.
"""

from __future__ import annotations

import importlib

from reproduce.experiment import Claim, Experiment, Measure, Paper, Published, Split

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

#: Modules of this package that hold a paper, in chronological order.
PAPERS = ("lanckriet2002", "ye2007", "chen2008", "yan2009", "zhao2009")


def load_paper(key: str) -> Paper:
    """Import the experiments of one of :data:`PAPERS`."""
    if key not in PAPERS:
        raise ValueError(f"the paper must be one of {', '.join(PAPERS)}; got {key!r}")
    paper: Paper = importlib.import_module(f"reproduce.{key}").PAPER
    return paper
