"""Retention: old batches are removed, small ones merged."""
