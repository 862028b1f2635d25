"""Recorders that run concurrently with training and write Parquet for the lake: host and GPU counters, sampled times of modules.

The package needs torch (spans only), pyarrow and the standard library, and nothing else of this project.
"""
