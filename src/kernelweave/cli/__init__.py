"""The command line: ``kernelweave demo``, ``fit`` and ``reproduce``."""
