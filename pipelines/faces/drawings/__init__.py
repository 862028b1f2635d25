"""Traces for Perfetto: overlays, redrawn traces, slices, and timelines of captures, with counter tracks."""
