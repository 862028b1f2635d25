"""The SQL models: catalog, run, the tables that Python makes."""
