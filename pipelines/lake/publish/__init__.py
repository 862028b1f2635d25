"""The analysts' DuckDB file (contents and publication), and the tables that the user supplies."""
