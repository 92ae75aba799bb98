"""Multi-view data for examples and experiments, and the data sets of the papers."""

from kernelweave.datasets.expression import fetch_expression
from kernelweave.datasets.generators import make_views
from kernelweave.datasets.tables import fetch_views

__all__ = ["fetch_expression", "fetch_views", "make_views"]
