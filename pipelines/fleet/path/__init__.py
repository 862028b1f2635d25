"""The critical path through the ranks of a capture: their graphs joined by collectives, walked backward."""
