"""Bring the lake's tables up to date: per trace, per capture, in that order; each run publishes once, at its end."""
