"""An old name, kept for programs outside the project: what was here is in pipelines/runs/materialize/.

It imports upward, out of its room. That makes no circle only because no file of the project imports this one, which
tests/test_rooms.py (OLD_NAMES) checks.
"""

from pipelines.runs.materialize.per_trace import materialize, stale
from pipelines.runs.materialize.publishing import Materialized

__all__ = ["Materialized", "materialize", "stale"]
