"""The analysts' DuckDB file (contents and publication), and the tables that users supply."""
