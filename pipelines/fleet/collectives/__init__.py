"""The matching of communication kernels of several ranks to collectives, and the ranks that others wait for."""
