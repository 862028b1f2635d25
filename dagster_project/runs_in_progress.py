"""Which runs of a job are in progress, which only appear so because their process was killed, and which failed last."""

from __future__ import annotations

from datetime import datetime

import dagster as dg
from dagster._core.execution.stats import StepEventStatus
from dagster._core.storage.dagster_run import IN_PROGRESS_RUN_STATUSES

from assets.metadata import LEFT_OUT_TAG, PROCESS_TAG
from assets.results import CHECKS
from pipelines.base.processes import is_alive

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
    """Returns, for each partition, the run that failed last, newest first, unless a later one succeeded.

    A run that was started before the other failed does not count as later: it may have looked before the other's files came in.
    One that did all that can be done, and failed as tables lack a trace, counts as one that succeeded.
    """
    failed: dict[str, dg.RunRecord] = {}
    begun: dict[str, float] = {}
    for record in instance.get_run_records(dg.RunsFilter(job_name=job), limit=_LAST_RUNS):
        day, status = record.dagster_run.tags.get(PARTITION_TAG, ""), record.dagster_run.status
        if status == dg.DagsterRunStatus.SUCCESS or _did_the_rest(instance, record.dagster_run):
            begun[day] = max(begun.get(day, 0.0), record.start_time or record.create_timestamp.timestamp())
        elif status == dg.DagsterRunStatus.FAILURE and (day not in failed or _ended(record) > _ended(failed[day])):
            failed[day] = record
    return [record for day, record in failed.items() if day and begun.get(day, 0.0) < _ended(record)]


def _did_the_rest(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Returns whether no step failed but the check that found a trace left out."""
    if LEFT_OUT_TAG not in run.tags:
        return False
    stats = instance.get_run_step_stats(run.run_id)
    return not [one for one in stats if one.step_key != CHECKS and one.status != StepEventStatus.SUCCESS]


def _ended(record: dg.RunRecord) -> float:
    return record.end_time or record.update_timestamp.timestamp()


def fail_lost(instance: dg.DagsterInstance, before: float) -> None:
    """Mark runs as failed that no process has worked on since a time (s since 1970): those of a UI that was killed."""
    statuses = [status for status in IN_PROGRESS_RUN_STATUSES if status != dg.DagsterRunStatus.QUEUED]
    for record in instance.get_run_records(dg.RunsFilter(statuses=statuses)):
        process = record.dagster_run.tags.get(PROCESS_TAG)
        if record.update_timestamp.timestamp() < before and not (process and is_alive(process)):
            instance.report_run_failed(record.dagster_run, "the Dagster instance that started it has ended")
