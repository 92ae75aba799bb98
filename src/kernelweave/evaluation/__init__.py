"""Judge a model, and simpler ones, on rows that they have not seen."""

from kernelweave.evaluation.evaluate import evaluate

__all__ = ["evaluate"]
