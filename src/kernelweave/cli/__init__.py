"""The command line: ``kernelweave demo`` and ``kernelweave fit``."""
