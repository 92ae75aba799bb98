"""Where data enters: column groups, precomputed kernels, and their checks."""
