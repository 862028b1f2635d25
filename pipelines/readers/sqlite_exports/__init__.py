"""Reading of SQLite files that other profilers write, for the packages that convert them to events (nsys, rocm).

open_export.py: a file, opened as untrusted
sources.py: its tables and columns as data, and their rows in DuckDB
ranges.py: the texts of its ranges
"""
