"""One run of a plan: options, measurements, tables."""
