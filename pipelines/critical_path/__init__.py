"""From the edge table to the longest path and its faces."""
