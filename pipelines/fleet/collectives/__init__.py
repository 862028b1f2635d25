"""The matching of several ranks' communication kernels to collectives, and the ranks that others wait for."""
