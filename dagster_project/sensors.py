"""What starts runs: new files in the watched folder, and once a day whatever was missed."""

import json
import time

import dagster as dg

from assets.common import today
from assets.traces import INBOX, batch_hash, inbox_files, without_files
from dagster_project.jobs import ingest_and_analyse
from pipelines.paths import path_text

QUIET_SECONDS = 5.0


@dg.sensor(job=ingest_and_analyse, minimum_interval_seconds=30)
def new_trace_files(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
    """All new or changed files of `TRACELAKE_INBOX` that have been quiet for some seconds → one batch → one run."""
    states = inbox_files()
    requested: dict[str, str] = json.loads(context.cursor or "{}")
    before = time.time_ns() - int(QUIET_SECONDS * 1e9)
    # A file that is still being written has a young time of change; the next tick takes it.
    quiet = {path: state for path, state in states.items() if int(state.split(":")[1]) < before}
    new = {path: state for path, state in quiet.items() if requested.get(path_text(path)) != state}
    if not new:
        return dg.SkipReason(f"no new files in {INBOX}" if states else without_files())
    kept = {path: state for path, state in requested.items() if path in {path_text(p) for p in states}}
    files = [path_text(path) for path in sorted(new)]
    run = dg.RunRequest(
        run_key=batch_hash(new),
        partition_key=today(),
        run_config={"ops": {"ingest": {"config": {"files": files}}}},
        tags={"tracelake/files": str(len(files))},
    )
    return dg.SensorResult(run_requests=[run], cursor=json.dumps({**kept, **{path_text(p): s for p, s in new.items()}}))


@dg.schedule(job=ingest_and_analyse, cron_schedule="30 0 * * *", execution_timezone="UTC")
def daily(context: dg.ScheduleEvaluationContext) -> dg.RunRequest:
    """Once a day the whole watched folder, with a sensor or without: known content changes nothing."""
    day = f"{context.scheduled_execution_time:%Y-%m-%d}"
    return dg.RunRequest(run_key=f"daily-{day}", partition_key=day)
