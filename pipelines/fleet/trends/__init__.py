"""Captures against each other: today, regressions, comparisons, metrics."""
