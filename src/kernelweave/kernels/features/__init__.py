"""Explicit feature maps: kernels as inner products of finitely many features."""
