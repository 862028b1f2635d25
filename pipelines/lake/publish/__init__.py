"""The analysts' DuckDB file: what is in it, and how it is made; the tables that users give."""
