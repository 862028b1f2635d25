"""Several ranks of a job together: who waits for whom, and what it costs."""
