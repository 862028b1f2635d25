"""Hardware counters of kernels, of a run of their own: rocprofv3's counter collections and `ncu --csv`."""
