"""Windows, and the dependency graph of each."""
