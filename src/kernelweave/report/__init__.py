"""One self-contained HTML page that says what a model has learned."""

from kernelweave.report.write import write_report

__all__ = ["write_report"]
