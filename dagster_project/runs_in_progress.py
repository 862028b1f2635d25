"""Runs of a job that are in progress, that only appear to be because their process was killed, or that failed last."""

from __future__ import annotations

from datetime import datetime

import dagster as dg
from dagster._core.execution.stats import StepEventStatus
from dagster._core.storage.dagster_run import IN_PROGRESS_RUN_STATUSES

from assets.metadata import LEFT_OUT_TAG, PROCESS_TAG
from assets.results import CHECKS
from pipelines.base.processes import is_alive

# Time limit between leaving the queue and the first step. From then on, a tag of the run names its process.
START_SECONDS = 600
PARTITION_TAG = "dagster/partition"
PURPOSE_TAG = "tracelake/for"
"""Tag of a run that computes only the tables that a purpose needs (TRACELAKE_FOR).

It counts as a run of the whole job.
"""
_LAST_RUNS = 50


def under_way(instance: dg.DagsterInstance, job: str, now: datetime) -> list[dg.DagsterRun]:
    """Return the runs of a job that are requested, queued or running. Mark runs whose process no longer exists as failed."""
    statuses = [*IN_PROGRESS_RUN_STATUSES, dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.QUEUED]
    records = instance.get_run_records(dg.RunsFilter(job_name=job, statuses=statuses))
    alive = []
    for record in records:
        if reason := _why_dead(instance, record, now):
            instance.report_run_failed(record.dagster_run, reason)
        else:
            alive.append(record.dagster_run)
    return alive


def _why_dead(instance: dg.DagsterInstance, record: dg.RunRecord, now: datetime) -> str | None:
    if record.dagster_run.status == dg.DagsterRunStatus.QUEUED:
        return None
    if process := _process(instance, record.dagster_run):
        return None if is_alive(process) else f"its process {process} no longer exists"
    seconds = now.timestamp() - record.update_timestamp.timestamp()
    return f"it did not start within {START_SECONDS} s" if seconds > START_SECONDS else None


def _process(instance: dg.DagsterInstance, run: dg.DagsterRun) -> str | None:
    """Return the process that works on a run, or None before it has begun.

    Before that, a re-executed run has its parent's tag, because Dagster copies tags.
    """
    process = run.tags.get(PROCESS_TAG)
    parent = instance.get_run_by_id(run.parent_run_id) if process and run.parent_run_id else None
    return None if parent and parent.tags.get(PROCESS_TAG) == process else process


def failed_last(instance: dg.DagsterInstance, job: str) -> list[dg.RunRecord]:
    """Return, for each partition, the run that failed last, unless a later run succeeded. The newest run comes first.

    A run that was started before the failure does not count as later, because it may have listed the files before the failed run's
    files arrived. Neither does a run of a part of the job, such as `daily` with nothing to do, except for a purpose
    (PURPOSE_TAG). A run that failed only because a trace is missing from tables counts as successful.
    """
    failed: dict[str, dg.RunRecord] = {}
    begun: dict[str, float] = {}
    for record in instance.get_run_records(dg.RunsFilter(job_name=job), limit=_LAST_RUNS):
        day, status = record.dagster_run.tags.get(PARTITION_TAG, ""), record.dagster_run.status
        if status == dg.DagsterRunStatus.SUCCESS or _did_the_rest(instance, record.dagster_run):
            if record.dagster_run.asset_selection and PURPOSE_TAG not in record.dagster_run.tags:
                continue
            begun[day] = max(begun.get(day, 0.0), record.start_time or record.create_timestamp.timestamp())
        elif status == dg.DagsterRunStatus.FAILURE and (day not in failed or _ended(record) > _ended(failed[day])):
            failed[day] = record
    return [record for day, record in failed.items() if day and begun.get(day, 0.0) < _ended(record)]


def _did_the_rest(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Return whether every step succeeded except the checks, which found a missing trace.

    LEFT_OUT_TAG alone does not prove it, because Dagster copies tags to a re-executed run.
    """
    if LEFT_OUT_TAG not in run.tags:
        return False
    statuses = {step.step_key: step.status for step in instance.get_run_step_stats(run.run_id)}
    return statuses.pop(CHECKS, None) == StepEventStatus.FAILURE and {*statuses.values()} <= {StepEventStatus.SUCCESS}


def _ended(record: dg.RunRecord) -> float:
    return record.end_time or record.update_timestamp.timestamp()


def fail_lost(instance: dg.DagsterInstance, before: float) -> None:
    """Mark runs of an earlier code server as failed: not updated since `before` (s since 1970), and without a process."""
    for record in instance.get_run_records(dg.RunsFilter(statuses=IN_PROGRESS_RUN_STATUSES)):  # excludes queued runs
        process = _process(instance, record.dagster_run)
        if record.update_timestamp.timestamp() < before and not (process and is_alive(process)):
            instance.report_run_failed(record.dagster_run, "the code server that started it has ended")
