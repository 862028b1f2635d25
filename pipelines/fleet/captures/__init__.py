"""The grouping of traces into captures, and the roles that the user assigns to ranks."""
