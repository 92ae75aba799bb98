"""Data in several views, to try things on."""

from kernelweave.datasets.bundled import load_breast_cancer_views, load_digits_views
from kernelweave.datasets.synthetic import make_views

__all__ = ["load_breast_cancer_views", "load_digits_views", "make_views"]
