"""The critical path through the ranks of a capture, found by a backward walk in their graphs joined by collectives."""
