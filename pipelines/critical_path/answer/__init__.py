"""A path as an answer, and as a file that can be opened and edited."""
