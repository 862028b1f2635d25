"""Traces for Perfetto: overlays, redrawn traces, slices, timelines of captures; counter tracks."""
