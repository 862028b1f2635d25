"""XSpace files of XLA's profiler (`.xplane.pb`: JAX, TensorFlow) → `events`, the table that all models of traces read.

    wire.py → fields of protobuf messages;  planes.py → planes, lines and events as rows;  stage.py → the staged tables
    read.py → the input

The SQL is `sql/ingest/xplane/_xplane_events.sql`; the categories of events are in `sql/rules/readers/xplane_categories.csv`. Source of the
format: tsl/profiler/protobuf/xplane.proto of github.com/openxla/xla, and xplane_schema.cc for names of planes and stats.

wire.py decodes the messages itself, because PyPI's `xprof` and `tensorflow`, which have the definitions, take 100 MB and more
for eight messages without recursion.
"""
