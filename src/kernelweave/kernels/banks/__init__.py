"""Banks: p kernels and the products that criteria need."""
