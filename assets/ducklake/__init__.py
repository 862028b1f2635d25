"""The same assets for a lake at an address. Units are committed to that lake, and Dagster's own files are in a folder."""
