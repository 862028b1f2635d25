"""Reader of XSpace files of XLA's profiler (`.xplane.pb`: JAX, TensorFlow) into `events`, which all trace models read.

    wire.py: fields of protobuf messages     planes.py: planes, lines and events as rows
    stage.py: staged tables                  read.py: the input

The SQL is `sql/ingest/xplane/_xplane_events.sql`. The categories of events are in
`sql/rules/readers/xplane_categories.csv`. Source of the format: tsl/profiler/protobuf/xplane.proto of
github.com/openxla/xla, and xplane_schema.cc for names of planes and stats.

wire.py decodes the messages itself. PyPI's `xprof` and `tensorflow` have the definitions, but take 100 MB and more for
eight messages without recursion.
"""
