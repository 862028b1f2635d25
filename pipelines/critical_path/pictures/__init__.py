"""Traces for Perfetto: overlays, slices, counter tracks."""
