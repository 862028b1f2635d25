"""Hardware counters of kernels, measured in a separate run: rocprofv3's counter collections and `ncu --csv`."""
