"""Provenance of torch.compile's kernels: graph nodes and source lines, from Inductor's debug folders or TORCH_TRACE.

graphs.py: the kernels of one compiled graph. torch_log.py: the graphs of a log. lake.py: the tables.
"""
