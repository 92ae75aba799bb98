"""Algorithms and bounds exactly as printed, needed only for the papers."""
