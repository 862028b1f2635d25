"""Nine groups of assets, so that Dagster's lineage fits on one screen.

They lead from a file (left) to the answers (right).
"""

from pathlib import Path

from pipelines.base.datafiles import SQL_DIR
from pipelines.models.catalog import Model

GROUPS = (
    "traces",
    "events",
    "kernels",
    "intervals_waits",
    "critical_path",
    "causes",
    "utilization",
    "fleet",
    "schedules",
)
"""Groups from left to right. No table reads a table of a later group."""
_PLACES = {
    "ingest": "traces",
    "rules": "traces",
    "ingest/traces/events": "events",
    "canonical": "events",
    "rules/calls": "events",
    "rules/collectives": "events",
    "rules/devices": "events",
    "rules/events": "events",
    "rules/frames": "events",
    "rules/path/switches": "events",
    "gpu": "kernels",
    "rules/kernels": "kernels",
    "cpu": "intervals_waits",
    "gpu/launches": "intervals_waits",
    "gpu/merged_intervals": "intervals_waits",
    "gpu/min_launch_latency": "intervals_waits",
    "gpu/queue_length": "intervals_waits",
    "gpu/step_lengths": "intervals_waits",
    "summary": "intervals_waits",
    "modelling/host": "intervals_waits",
    "sync": "intervals_waits",
    "rules/steps": "intervals_waits",
    "rules/waits": "intervals_waits",
    "critical_path": "critical_path",
    "rules/path": "critical_path",
    "summary/critical_path_caveats": "critical_path",
    "summary/critical_path_summary": "critical_path",
    "summary/quality": "critical_path",
    "critical_path/causes": "causes",
    "modelling/idle": "causes",
    "rules/causes": "causes",
    "rules/fixes": "causes",
    "rules/profiler": "causes",
    "modelling": "utilization",
    "rules/counters": "utilization",
    "rules/operators": "utilization",
    "rules/serving": "utilization",
    "fleet": "fleet",
    "rules/fleet": "fleet",
    "rules/lake/model_failures": "fleet",
    "ingest/schedule_runs": "schedules",
    "schedule": "schedules",
}
"""Group by folder or file under `sql/`, without the suffix. The longest matching entry wins."""


def group_of(model: Model) -> str:
    """Return the group of a table's asset."""
    folder = model.path.parent.relative_to(SQL_DIR) if model.path.is_relative_to(SQL_DIR) else Path(model.layer)
    place = folder / model.name
    return next(_PLACES[name] for name in map(str, (place, *place.parents)) if name in _PLACES)
