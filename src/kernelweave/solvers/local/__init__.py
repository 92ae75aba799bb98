"""Searches for a stationary point, for problems that are not convex."""
