"""Comparisons of captures: the fleet today, regressions, comparisons of two sides, metrics."""
