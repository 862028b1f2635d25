"""XSpace files of XLA's profiler (`.xplane.pb`: JAX, TensorFlow) → `events`, on which all models of traces work.

    wire.py → fields of protobuf messages;  planes.py → planes, lines and events as rows;  stage.py → the staged tables
    read.py → the input

The SQL is `sql/ingest/xplane/_xplane_events.sql`; which category an event has is in `sql/rules/readers/xplane_categories.csv`. Source of the
format: tsl/profiler/protobuf/xplane.proto of github.com/openxla/xla, and xplane_schema.cc for names of planes and stats.

The messages are decoded here: PyPI's `xprof` and `tensorflow` have the definitions, and weigh 100 MB and more for eight
messages without recursion.
"""
