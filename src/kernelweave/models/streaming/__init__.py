"""Fits from explicit features and from rows in portions."""
