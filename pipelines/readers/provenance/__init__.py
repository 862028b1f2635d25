"""What torch.compile made its kernels of: Inductor's provenance, from its debug folders or the log of TORCH_TRACE.

graphs.py → the kernels of one compiled graph;  torch_log.py → the graphs of a log;  lake.py → the tables
"""
