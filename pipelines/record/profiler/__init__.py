"""What PyTorch's profiler costs the program that it records."""
