"""Exports of Nsight Systems (`nsys export --type sqlite`) → `events`, on which all models of traces work.

    schema.py → its tables and columns, as data;  stage.py → what DuckDB gets of it
    processes.py → who did GPU work;  about.py → machine and session;  read.py → the input

The SQL is `sql/ingest/nsys/_nsys_events.sql`; what numbers in the export mean is in `sql/rules/readers/nsys_*.csv`. Source of all names:
NVIDIA's "SQLite Schema Reference" (docs.nvidia.com/nsight-systems/AnalysisGuide), schema 3.28.1 of release 2026.4.
"""
