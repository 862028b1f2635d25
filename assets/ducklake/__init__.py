"""The same assets for the lake at an address: units are committed there, and Dagster keeps its own files in a folder."""
