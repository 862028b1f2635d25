"""Windows and their dependency graphs."""
