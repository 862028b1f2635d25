"""Foundations of all packages: paths, processes, quiet DuckDB connections, text that is safe to show."""
