"""Logs of the NCCL Inspector, NCCL's profiler plugin: a JSON line per collective of a rank, appended over days."""
