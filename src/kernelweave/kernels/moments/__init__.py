"""Sums over rows that replace the rows themselves."""
