"""Comparisons of captures: the fleet's current state, regressions, comparisons of two sides, and metrics."""
