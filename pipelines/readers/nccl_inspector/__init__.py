"""Logs of the NCCL Inspector, NCCL's profiler plugin: a line of JSON for each collective of a rank, day after day."""
