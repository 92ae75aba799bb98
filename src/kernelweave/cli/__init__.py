"""The command line: ``kernelweave fit``, ``predict``, ``evaluate`` and others."""
