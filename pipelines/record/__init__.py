"""Recorders that write Parquet for the lake during training: host and GPU counters, stacks, sampled times of modules.

The package needs torch (spans only), pyarrow and the standard library, but no other package of this project.
"""
