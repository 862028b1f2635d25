"""Cost of PyTorch's profiler in the program that it records."""
