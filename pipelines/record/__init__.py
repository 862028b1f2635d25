"""Recorders that run beside training: host and GPU counters, sampled times of modules; Parquet that the lake takes in.

Needs torch (spans alone), pyarrow and the standard library; nothing else of this project.
"""
