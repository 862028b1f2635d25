"""Provenance of torch.compile's kernels (graph nodes, source lines), from Inductor's debug folders or TORCH_TRACE's log.

graphs.py: the kernels of one compiled graph. torch_log.py: the graphs of a log. lake.py: the tables.
"""
