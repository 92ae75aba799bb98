"""Judge a model on rows that it has not seen, beside simpler ones."""

from kernelweave.evaluation.evaluate import evaluate

__all__ = ["evaluate"]
