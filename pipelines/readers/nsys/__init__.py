"""Reader of Nsight Systems' exports (`nsys export --type sqlite`) into `events`, which all trace models read.

    schema.py: tables and columns of an export, as data     stage.py: their rows in DuckDB
    processes.py: processes with GPU work                   ranks.py, communicators.py: their ranks
    export_metadata.py: machine and session                 read.py: the input

The SQL is `sql/ingest/nsys/_nsys_events.sql`. The meaning of numbers in the export is in
`sql/rules/readers/nsys_*.csv`. Source of all names: NVIDIA's "SQLite Schema Reference"
(docs.nvidia.com/nsight-systems/AnalysisGuide), schema 3.28.1 of release 2026.4.
"""
