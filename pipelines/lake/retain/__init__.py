"""Retention: the removal of old batches, and the merging of small batches."""
