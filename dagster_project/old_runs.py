"""Deletion of old runs from Dagster's storage, with events and logs.

At 4 MB per run, the storage would grow by 10 GB a day.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import dagster as dg
from dagster._core.storage.dagster_run import FINISHED_STATUSES

from assets.traces import INBOX, inbox_files
from dagster_project.resources import lake_folder
from pipelines.lake import Lake
from pipelines.lake.commit.ingested_files import forget_missing

KEEP_DAYS, KEEP_RUNS = "TRACELAKE_KEEP_RUN_DAYS", "TRACELAKE_KEEP_RUNS"
_DAYS, _RUNS = 14.0, 100
_AT_ONCE = 100
_BUDGET_SECONDS = 20.0


def delete_old_runs(
    instance: dg.DagsterInstance, keep_days: float = _DAYS, keep_runs: int = _RUNS, now: datetime | None = None
) -> int:
    """Delete finished runs beyond the newest `keep_runs` or older than `keep_days`. Return the number of deleted runs.

    One call deletes at most 100 runs beyond `keep_runs` and stops after 20 s. The newest run stays, because it shows whether
    the last run failed. Raise ValueError if `keep_runs` is less than 1 or `keep_days` is not positive.
    """
    if keep_runs < 1 or keep_days <= 0:
        raise ValueError(f"keep at least 1 run and more than 0 days, not {keep_runs} runs and {keep_days} days")
    before = (now or datetime.now(UTC)) - timedelta(days=keep_days)
    finished = dg.RunsFilter(statuses=FINISHED_STATUSES)
    newest = instance.get_run_records(finished, limit=keep_runs)
    if not newest:
        return 0
    beyond = instance.get_run_records(finished, limit=_AT_ONCE, cursor=newest[-1].dagster_run.run_id)
    old = [r for r in newest[1:] if r.update_timestamp.timestamp() < before.timestamp()]
    until, n = time.monotonic() + _BUDGET_SECONDS, 0
    for record in (*reversed(beyond), *reversed(old)):
        if time.monotonic() > until:  # a tick must be short; the next one continues
            break
        _delete(instance, record.dagster_run.run_id)
        n += 1
    return n


def _delete(instance: dg.DagsterInstance, run_id: str) -> None:
    """Delete the run, its events and its output.

    SQLite stores each run's events in a file, which must be deleted to free space.
    """
    instance.compute_log_manager.delete_logs(prefix=[run_id])
    instance.delete_run(run_id)
    path_of = getattr(instance.event_log_storage, "path_for_shard", None)
    if path_of:
        for suffix in ("", "-wal", "-shm"):
            Path(path_of(run_id) + suffix).unlink(missing_ok=True)
    with suppress(
        OSError, NotImplementedError
    ):  # default folder of step outputs, which this project writes into the lake instead
        shutil.rmtree(Path(instance.storage_directory()) / run_id)


def old_runs_sensor(lake_path: str) -> dg.SensorDefinition:
    """Return a sensor that deletes old runs every ten minutes. It starts no runs and is on by default."""

    @dg.sensor(
        name="old_runs",
        minimum_interval_seconds=600,
        default_status=dg.DefaultSensorStatus.RUNNING,
        description=f"Deletes the records of all runs except the newest {_RUNS} (`{KEEP_RUNS}`), and those older than "
        f"{_DAYS:.0f} days (`{KEEP_DAYS}`). Starts no run.",
    )
    def old_runs(context: dg.SensorEvaluationContext) -> dg.SkipReason:
        try:
            days, runs = float(os.environ.get(KEEP_DAYS) or _DAYS), int(os.environ.get(KEEP_RUNS) or _RUNS)
            n = delete_old_runs(context.instance, days, runs)
            # If its disk is not mounted, the watched folder is empty or missing. Forgetting its files would cause a
            # re-read later.
            if inbox_files() or not os.environ.get(INBOX):
                forget_missing(Lake(lake_folder(lake_path)))
        except (OSError, ValueError, OverflowError) as error:
            return dg.SkipReason(f"nothing was deleted: {error}")
        return dg.SkipReason(f"deleted the records of {n} runs" if n else "no run is old enough to delete")

    return old_runs
