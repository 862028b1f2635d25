"""The longest path, and what follows from it: slack, drag, the next longest."""
