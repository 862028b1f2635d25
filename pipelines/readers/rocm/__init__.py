"""What rocprofv3 (ROCm's rocprofiler-sdk) writes → `events`, on which all models of traces work.

    schema.py → tables and columns of a rocpd database, as data;  stage.py → the staged tables, and how a database fills them
    csv_files.py → how CSV files fill them;  read.py, read_csv.py → the two inputs

The SQL is `sql/ingest/rocm/_rocm_events.sql`; what domains and directions mean is in `sql/rules/readers/rocm_*.csv`. Source of all names:
github.com/ROCm/rocprofiler-sdk, source/share/rocprofiler-sdk-rocpd/rocpd_tables.sql (schema version 3) for the tables,
source/lib/output/generateRocpd.cpp for what is in them, generateCSV.cpp and source/docs/data for the CSV files.
"""
