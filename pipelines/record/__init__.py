"""Recorders that run beside training: host and GPU counters, sampled times of modules; they write Parquet for the lake.

Needs torch (spans only), pyarrow and the standard library; nothing else of this project.
"""
