"""The longest path, and the quantities derived from it: slack, drag, the next longest paths."""
