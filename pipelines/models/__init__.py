"""The SQL models: catalog, run, materialize."""
