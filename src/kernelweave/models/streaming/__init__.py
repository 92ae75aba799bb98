"""Fits to explicit features and to rows that come in portions."""
