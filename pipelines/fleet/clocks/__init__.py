"""The alignment of the clocks of a capture's ranks."""
