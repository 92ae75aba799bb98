"""Local searches for a stationary point of non-convex problems."""
