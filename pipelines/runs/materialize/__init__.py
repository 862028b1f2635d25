"""Brings the lake's tables up to date: per trace, then per capture; each run publishes once, at its end."""
