"""The critical path: the longest path of the edge table, and its derived results."""
