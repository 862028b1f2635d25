"""One clock for the ranks of a capture."""
