"""An old name, kept for programs outside the project: what was here is in pipelines/runs/materialize/.

It imports upward, out of its room; no file of the project imports it (tests/test_rooms.py, OLD_NAMES).
"""

from pipelines.runs.materialize.per_capture import Part, materialize_captures, part_of, stale_captures, trace_tables
from pipelines.runs.materialize.run_order import materialize_all as materialize

__all__ = ["Part", "materialize", "materialize_captures", "part_of", "stale_captures", "trace_tables"]
