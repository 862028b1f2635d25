"""Which kernels of the ranks are one collective, and who is waited for."""
