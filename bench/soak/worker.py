"""One run that the sensor requested: `python -m bench.soak.worker LAKE REQUEST.json`. Prints its peak memory in MiB."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import dagster as dg

from dagster_project.definitions import definitions


def main(lake: str, request: Path) -> None:
    """Run the job in this process. Exceptions of its steps pass through."""
    asked = json.loads(request.read_text())
    job = definitions(lake).resolve_job_def("ingest_and_analyse")
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    with dg.DagsterInstance.ephemeral() as instance:
        result = job.execute_in_process(
            run_config={**asked["run_config"], **quiet}, instance=instance, partition_key=asked["partition_key"]
        )
    assert result.success
    status = Path("/proc/self/status")
    if status.exists():
        peak = next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        print(int(peak) / 1024)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
