"""Which runs of a job are in progress, which only appear so because their process was killed, and which failed last."""

from __future__ import annotations

from datetime import datetime

import dagster as dg
from dagster._core.storage.dagster_run import IN_PROGRESS_RUN_STATUSES

from assets.common import PROCESS_TAG
from pipelines.processes import is_alive

# From leaving the queue until its first step; after that a run says which process it is.
START_SECONDS = 600
PARTITION_TAG = "dagster/partition"
_LAST_RUNS = 50


def under_way(instance: dg.DagsterInstance, job: str, now: datetime) -> list[dg.DagsterRun]:
    """Returns the runs of a job that are queued or running. Those whose process is gone are marked as failed."""
    records = instance.get_run_records(dg.RunsFilter(job_name=job, statuses=IN_PROGRESS_RUN_STATUSES))
    alive = []
    for record in records:
        if why := _why_dead(record, now):
            instance.report_run_failed(record.dagster_run, why)
        else:
            alive.append(record.dagster_run)
    return alive


def _why_dead(record: dg.RunRecord, now: datetime) -> str | None:
    run = record.dagster_run
    if process := run.tags.get(PROCESS_TAG):
        return None if is_alive(process) else f"its process {process} no longer exists"
    if run.status == dg.DagsterRunStatus.QUEUED:
        return None
    seconds = now.timestamp() - record.update_timestamp.timestamp()
    return f"it did not start within {START_SECONDS} s" if seconds > START_SECONDS else None


def failed_last(instance: dg.DagsterInstance, job: str) -> list[dg.RunRecord]:
    """Returns, for each partition whose newest run failed, that run, newest first."""
    newest: dict[str, dg.RunRecord] = {}
    for record in instance.get_run_records(dg.RunsFilter(job_name=job), limit=_LAST_RUNS):
        newest.setdefault(record.dagster_run.tags.get(PARTITION_TAG, ""), record)
    return [r for day, r in newest.items() if day and r.dagster_run.status == dg.DagsterRunStatus.FAILURE]


def fail_lost(instance: dg.DagsterInstance, before: float) -> None:
    """Mark runs as failed that no process has worked on since a time (s since 1970): those of a UI that was killed."""
    statuses = [status for status in IN_PROGRESS_RUN_STATUSES if status != dg.DagsterRunStatus.QUEUED]
    for record in instance.get_run_records(dg.RunsFilter(statuses=statuses)):
        process = record.dagster_run.tags.get(PROCESS_TAG)
        if record.update_timestamp.timestamp() < before and not (process and is_alive(process)):
            instance.report_run_failed(record.dagster_run, "the Dagster instance that started it has ended")
