"""Sums over rows that stand for the rows."""
