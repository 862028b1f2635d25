"""The grouping of traces to captures, and the roles of ranks that users supply."""
