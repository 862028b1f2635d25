"""The update of the lake's tables, first per trace, then per capture. Each run publishes once, at its end."""
