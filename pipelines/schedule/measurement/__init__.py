"""One run of a plan: its options, its measurements, its tables."""
