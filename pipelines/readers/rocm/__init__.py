"""Reader of the output of rocprofv3 (ROCm's rocprofiler-sdk) into `events`, the table that all models of traces read.

    schema.py: tables and columns of a rocpd database, as data
    stage.py: the staged tables, and their rows from a database     csv_files.py: their rows from CSV files
    read.py, read_csv.py, read_json.py: the three inputs

The SQL is `sql/ingest/rocm/_rocm_events.sql`. `sql/rules/readers/rocm_*.csv` contain the meaning of domains and
directions. Source of all names: github.com/ROCm/rocprofiler-sdk, source/share/rocprofiler-sdk-rocpd/rocpd_tables.sql
(schema version 3) for the tables, source/lib/output/generateRocpd.cpp for their contents, generateCSV.cpp and
source/docs/data for CSV files.
"""
