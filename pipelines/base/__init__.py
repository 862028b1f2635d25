"""What every room stands on: paths, processes, quiet DuckDB connections, text that is safe to show."""
