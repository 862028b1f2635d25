"""A run as the daemon would start it, which pauses while it computes a table of its first batch, as with a big trace.

`python -m tests.dagster.pausing LAKE FILE GATE` creates a file GATE when the run pauses. The run continues once GATE is
removed.
"""

import sys
import time
from pathlib import Path
from typing import Any

import dagster as dg

import pipelines.runs.materialize.per_trace as per_trace
from assets.metadata import today
from assets.traces import LAKE_TABLES
from dagster_project.definitions import definitions

TABLES = ("kernels", "captures", "capture_ranks")
_compute = per_trace._compute_batch


def run(lake: str, file: str) -> bool:
    """Return whether the run succeeded."""
    job = definitions(lake).resolve_job_def("ingest_and_analyse")
    return job.execute_in_process(
        run_config={"ops": {"ingest": {"config": {"files": [file]}}}},
        partition_key=today(),
        asset_selection=[dg.AssetKey(name) for name in (*LAKE_TABLES, *TABLES)],
        raise_on_error=False,
    ).success


def main() -> int:
    """Execute a run that pauses at its first batch."""
    lake, file, gate = sys.argv[1], sys.argv[2], Path(sys.argv[3])

    def compute(*args: Any) -> Any:
        gate.touch()
        while gate.exists():
            time.sleep(0.05)
        return _compute(*args)

    per_trace._compute_batch = compute
    return 0 if run(lake, file) else 1


if __name__ == "__main__":
    raise SystemExit(main())
