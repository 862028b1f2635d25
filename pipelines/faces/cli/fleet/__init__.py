"""Commands on the ranks of a capture, on jobs and on fleets."""
