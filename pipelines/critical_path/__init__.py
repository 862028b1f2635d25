"""The critical path: from the edge table to the longest path, and everything derived from it."""
