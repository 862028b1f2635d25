"""Reader of Perfetto traces (`.pftrace`) of PyTorch's CUPTI monitor into `events`, which all trace models read.

    packets.py: the file's packets, one at a time     arguments.py: arguments     clocks.py: times
    rows.py: packets as rows                          stage.py: staged tables     read.py: the input

The SQL is `sql/ingest/perfetto/_perfetto_events.sql`. The categories of slices are in
`sql/rules/readers/perfetto_categories.csv`. Sources for PyTorch's output: torch/csrc/profiler/cupti/monitor_pftrace.cpp
and torch/profiler/_cupti/monitor_trace.py. Source for the format: perfetto.dev/docs/reference/trace-packet-proto. The
packets are parsed with the definitions of PyPI's `perfetto`.
"""
