"""The ranks of a job together: which rank waits for which, and the cost of waiting."""
