"""The answer about a critical path, and the file that stores the path with its graph."""
