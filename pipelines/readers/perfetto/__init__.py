"""Perfetto traces (`.pftrace`), as PyTorch's CUPTI monitor writes them → `events`, the table that all models of traces read.

    packets.py → the file's packets, one at a time;  arguments.py → arguments;  clocks.py → times
    rows.py → packets as rows;  stage.py → the staged tables;  read.py → the input

The SQL is `sql/ingest/perfetto/_perfetto_events.sql`; the categories of slices are in `sql/rules/readers/perfetto_categories.csv`. Source of
what PyTorch writes: torch/csrc/profiler/cupti/monitor_pftrace.cpp and torch/profiler/_cupti/monitor_trace.py; of the format:
perfetto.dev/docs/reference/trace-packet-proto, read with the definitions of PyPI's `perfetto`.
"""
