"""Multi-view data for examples and experiments, and the data sets of the papers."""

from kernelweave.datasets._sources import MissingDataError
from kernelweave.datasets.expression import fetch_expression
from kernelweave.datasets.generators import (
    make_gaussian_views,
    make_views,
    make_waveform,
)
from kernelweave.datasets.tables import (
    fetch_table,
    fetch_views,
    load_breast_cancer_views,
    load_digits_views,
)

__all__ = [
    "MissingDataError",
    "fetch_expression",
    "fetch_table",
    "fetch_views",
    "load_breast_cancer_views",
    "load_digits_views",
    "make_gaussian_views",
    "make_views",
    "make_waveform",
]
