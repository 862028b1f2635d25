"""The sensor and the schedule that start runs: for new or changed files in the watched folder, failed runs, and daily."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import dagster as dg
import duckdb
from dagster._core.definitions.data_version import DATA_VERSION_TAG
from dagster._core.storage.tags import RUN_KEY_TAG

from assets.metadata import DAYS, TRACE_FILES, lake_address, today
from assets.results import run_tables
from assets.today import today_page
from assets.traces import (
    INBOX,
    LAKE_TABLES,
    batch_hash,
    inbox_files,
    is_inbox_away,
    no_inbox,
    outcome_metadata,
    watched_folder,
)
from dagster_project.jobs import ingest_and_analyse
from dagster_project.resources import lake_folder
from dagster_project.runs_in_progress import PARTITION_TAG, PURPOSE_TAG, failed_last, under_way
from pipelines.base.paths import path_text
from pipelines.lake import Lake
from pipelines.lake.commit.sensor_lists import asked_of, clean, put_asked, put_files
from pipelines.lake.inbox import look, skipped_clause, waiting
from pipelines.lake.names import MARK, REJECTS
from pipelines.runs.store import StoreError, open_store

QUIET_SECONDS = 5.0
MAX_FILES = 1000
"""Maximum number of files of one run. The others wait for the next run."""
FIRST_WAIT_SECONDS = 30.0
LONGEST_WAIT_SECONDS = 3600.0
MAX_REPEATS = 3
"""Maximum number of reruns of a day whose newest run failed. After that, the user must intervene."""
REPEAT_TAG = "tracelake/repeat"
SIGNS_OF_LIFE = tuple(dg.AssetKey(name) for name in (MARK, REJECTS, "fleet_today"))
"""Assets that `daily` writes if there is nothing to do: the assets with a freshness policy, and `rejects`."""
_ASKED, _NOTHING = "asked", "{}"  # the cursor's key for the name of the list of requested files, and an empty cursor
_NOT_THERE = (OSError, ValueError, duckdb.Error, sqlite3.Error, StoreError)


@dataclass(frozen=True)
class Asked:
    """A file requested from a run: its state at that time, the number of requests, and the time of the last (s since 1970)."""

    state: str
    tries: int
    at: float

    def is_due(self, now: float) -> bool:
        """Return whether the file may be requested again. The wait doubles after each attempt, up to an hour."""
        return now >= self.at + wait_seconds(self.tries)


def wait_seconds(tries: int) -> float:
    """Return the wait in seconds between attempt `tries` (from 1) and the next."""
    return min(LONGEST_WAIT_SECONDS, FIRST_WAIT_SECONDS * 2.0 ** min(tries - 1, 20))


@dataclass
class _Tick:
    """State of the folder and the lake at one tick of the sensor."""

    lake: Lake
    waiting: dict[Path, str]
    asked: dict[str, Asked]
    assets: list[dg.AssetKey] | None  # that a run computes; None for all
    remarks: list[str] = field(default_factory=list)
    is_lost: bool = False  # the list of earlier requests is missing or damaged

    def tries(self, path: Path) -> int:
        request = self.asked.get(str(path))
        return request.tries if request and request.state == self.waiting[path] else 0

    def due(self, now: float) -> list[Path]:
        """Return the files to request now, at most MAX_FILES, ordered by the number of attempts."""
        ready = [p for p in self.waiting if not self.tries(p) or self.asked[str(p)].is_due(now)]
        return sorted(ready, key=lambda path: (self.tries(path), path))[:MAX_FILES]


def trace_file_sensor(lake_path: str = "", job: Any = ingest_and_analyse) -> dg.SensorDefinition:
    """Return the sensor of the watched folder for the lake in `lake_path`. If it is empty, use LakeResource's lake."""
    observed = ""  # digest of the folder's state that was reported last
    assets = _assets(lake_path)

    @dg.sensor(
        name="new_trace_files",
        job=job,
        minimum_interval_seconds=10,
        description=f"Files of `{INBOX}` that are neither in `traces` nor in `rejects` and have not changed for "
        f"{QUIET_SECONDS:.0f} s → one run. One run at a time; a file whose run failed is retried, after a longer delay each time.",
    )
    def new_trace_files(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        now = time.time()
        folder = watched_folder()
        if folder is None:
            return dg.SkipReason(no_inbox())
        inbox = look(folder)
        lake = Lake(lake_folder(lake_path))
        try:
            files = inbox.changed_before(time.time_ns() - int(QUIET_SECONDS * 1e9))
            quiet = waiting(lake, files, known=open_store(lake_address(lake_path)).accounted_for)
        except _NOT_THERE as error:  # the sensor must survive a disk that is unavailable for a while
            return dg.SkipReason(f"the lake cannot be read: {error}")
        requests, is_lost = _read_cursor(lake, context.cursor)
        remarks = _remarks(inbox.passed_over, [path.path for path in lake.broken({MARK})])
        tick = _Tick(lake, quiet, requests, assets, remarks, is_lost)
        for remark in tick.remarks:
            context.log.warning(remark)
        try:
            answer = _answer(context, tick, now)
        except OSError as error:  # the lists of files are written into the lake
            return dg.SkipReason(f"the lake cannot be written: {error}")
        nonlocal observed
        if (state := batch_hash(inbox.files)) == observed:
            return answer
        observed = state
        return _with_observation(answer, inbox.files, state, context.cursor)

    return new_trace_files


def _with_observation(
    answer: dg.SensorResult | dg.SkipReason, files: dict[Path, str], state: str, cursor: str | None
) -> dg.SensorResult:
    """Return the answer with an observation of the watched folder added."""
    tags = {DATA_VERSION_TAG: state}
    observation = dg.AssetObservation(TRACE_FILES, metadata=outcome_metadata(files), tags=tags)
    if isinstance(answer, dg.SkipReason):
        return dg.SensorResult(skip_reason=answer, cursor=cursor, asset_events=[observation])
    return answer._replace(asset_events=[observation])


def _answer(context: dg.SensorEvaluationContext, tick: _Tick, now: float) -> dg.SensorResult | dg.SkipReason:
    instance = _instance(context)
    if instance and (runs := under_way(instance, ingest_and_analyse.name, datetime.fromtimestamp(now, UTC))):
        return _skipped(tick, f"run {runs[0].run_id} is in progress, {len(tick.waiting)} files wait")
    # A run for waiting files also computes the tables that a failed run of today left, but not those of an earlier day.
    repeat = _repeated(instance, now, tick.assets, except_day=today() if tick.waiting else "") if instance else None
    if repeat:
        return dg.SensorResult(run_requests=[repeat], cursor=context.cursor if tick.waiting else _NOTHING)
    due = tick.due(now)
    if due:
        return _asking(tick, due, now)
    if tick.waiting:
        soonest = min(tick.asked[str(path)].at + wait_seconds(tick.tries(path)) for path in tick.waiting)
        names = skipped_clause(dict.fromkeys(tick.waiting, "was not ingested by its run"))
        return _skipped(tick, f"{len(tick.waiting)} files will be retried in {soonest - now:.0f} s: {names}")
    return _skipped(tick, f"no new files in {path_text(watched_folder() or '')}", forget=True)


def _asking(tick: _Tick, due: list[Path], now: float) -> dg.SensorResult:
    states = {path: tick.waiting[path] for path in due}
    max_tries = max(tick.tries(path) for path in due)
    # Dagster starts no second run with the same key. If earlier requests are lost, the key may be in use, so append the
    # time.
    key = f"{batch_hash(states)}-{max_tries}" + (f"-{now:.0f}" if tick.is_lost else "")
    run = dg.RunRequest(
        run_key=key,
        partition_key=today(),
        # A file that crashed a run is ingested in a separate process the next time, and the others continue.
        run_config=_run_config({"file_list": put_files(tick.lake, key, due), "isolate": max_tries > 0}),
        asset_selection=tick.assets,
        tags={"tracelake/files": str(len(due)), "tracelake/try": str(max_tries + 1), **_tags(tick.assets)},
    )
    requests = {str(path): Asked(state, tick.tries(path) + 1, now) for path, state in states.items()}
    earlier = {name: request for name, request in tick.asked.items() if Path(name) in tick.waiting}
    return dg.SensorResult(run_requests=[run], cursor=_cursor(tick.lake, {**earlier, **requests}))


def _assets(lake_path: str) -> list[dg.AssetKey] | None:
    """Return the assets that a run computes, or None for all (assets/results.py)."""
    tables = run_tables(lake_path)
    return None if tables is None else [*map(dg.AssetKey, (*LAKE_TABLES, *sorted(tables))), *today_page.keys]


def _tags(assets: list[dg.AssetKey] | None) -> dict[str, str]:
    """Return the tags of a run of these assets, as `_assets` returns them."""
    return {} if assets is None else {PURPOSE_TAG: "fleet"}


def _repeated(
    instance: dg.DagsterInstance, now: float, assets: list[dg.AssetKey] | None, except_day: str
) -> dg.RunRequest | None:
    """Return a request to rerun a day whose newest run failed, so that its tables are still computed.

    It is a run of `assets`, or of the whole job if the failed run was started by hand for more than these. Return None if
    no day but `except_day` failed, if its wait is not over, if its repeats are used up, or if the repeat was cancelled.
    """
    for record in failed_last(instance, ingest_and_analyse.name):
        run = record.dagster_run
        # A day before the lake's first batch is not a partition.
        if run.tags[PARTITION_TAG] == except_day or not DAYS.has_partition_key(run.tags[PARTITION_TAG]):
            continue
        # Dagster starts no second run with the same key, even if the first was cancelled.
        times, key = int(run.tags.get(REPEAT_TAG, "0")), f"repeat-{run.run_id}"
        if instance.get_run_records(dg.RunsFilter(tags={RUN_KEY_TAG: key}), limit=1):
            continue
        if times < MAX_REPEATS and now >= record.update_timestamp.timestamp() + wait_seconds(times + 1):
            selected = assets if PURPOSE_TAG in run.tags or _is_of(run, assets) else None
            return dg.RunRequest(
                run_key=key,
                partition_key=run.tags[PARTITION_TAG],
                run_config=_run_config({"files": []}),
                asset_selection=selected,
                tags={REPEAT_TAG: str(times + 1), **_tags(selected)},
            )
    return None


def _is_of(run: dg.DagsterRun, assets: list[dg.AssetKey] | None) -> bool:
    """Return whether a run computes only these assets."""
    return run.asset_selection is not None and run.asset_selection <= {*(assets or ())}


def _run_config(ingest: dict[str, Any]) -> dict[str, Any]:
    return {"ops": {"ingest": {"config": {name: value for name, value in ingest.items() if value is not False}}}}


def _instance(context: dg.SensorEvaluationContext | dg.ScheduleEvaluationContext) -> dg.DagsterInstance | None:
    """Return the Dagster instance, or None in a context without an instance, such as a test or a notebook."""
    try:
        return context.instance
    except dg.DagsterInvariantViolationError:
        return None


def _skipped(tick: _Tick, message: str, forget: bool = False) -> dg.SensorResult | dg.SkipReason:
    reason = "; ".join([message, *tick.remarks])
    if forget and tick.asked:
        return dg.SensorResult(skip_reason=reason, cursor=_NOTHING)
    return dg.SkipReason(reason)


def _remarks(passed_over: Mapping[Path, str], broken: list[Path]) -> list[str]:
    remarks = [f"skipped: {skipped_clause(passed_over)}"] if passed_over else []
    return [*remarks, *(f"{path_text(path)} cannot be read; see tracelake check" for path in broken[:5])]


def _read_cursor(lake: Lake, cursor: str | None) -> tuple[dict[str, Asked], bool]:
    """Return the requests by path, and whether they were lost. Remove unreferenced lists."""
    try:
        name = json.loads(cursor or _NOTHING).get(_ASKED)
        clean(lake, name)
        rows = {} if name is None else asked_of(lake, name)
        return {path: Asked(*row) for path, row in (rows or {}).items()}, rows is None
    except (OSError, ValueError, TypeError, AttributeError):
        return {}, True


def _cursor(lake: Lake, requests: Mapping[str, Asked]) -> str:
    return json.dumps(
        {
            _ASKED: put_asked(
                lake, {path: [request.state, request.tries, request.at] for path, request in requests.items()}
            )
        }
    )


new_trace_files = trace_file_sensor()


def daily_schedule(lake_path: str = "", job: Any = ingest_and_analyse) -> dg.ScheduleDefinition:
    """Return the schedule `daily` for the lake in `lake_path`. If it is empty, use LakeResource's lake."""
    assets = _assets(lake_path)

    @dg.schedule(name="daily", job=job, cron_schedule="30 0 * * *", execution_timezone="UTC")
    def daily(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | list[dg.RunRequest]:
        """Request the daily run, which ingests rejected files and files that the sensor did not request.

        The sensor may be on or off. An earlier day whose newest run failed is also rerun. If there is nothing to do,
        the run only proves that the schedule is alive: it writes `traces`, `rejects` and `fleet_today`.
        """
        day, instance = f"{context.scheduled_execution_time:%Y-%m-%d}", _instance(context)
        key = f"daily-{day}"
        if not _is_all_done(instance, lake_path):
            whole = dg.RunRequest(run_key=key, partition_key=day, asset_selection=assets, tags=_tags(assets))
            repeat = _repeated(instance, time.time(), assets, except_day=day) if instance else None
            return [whole, repeat] if repeat else whole
        nothing = _run_config({"files": []})
        return dg.RunRequest(run_key=key, partition_key=day, run_config=nothing, asset_selection=list(SIGNS_OF_LIFE))

    return daily


def _is_all_done(instance: dg.DagsterInstance | None, lake_path: str) -> bool:
    """Return whether the whole job would have nothing to do.

    The job has nothing to do if the watched folder is available, no file waits, no file was rejected, no day's newest
    run failed, and all committed batches are published.
    """
    try:
        if instance is None or is_inbox_away() or failed_last(instance, ingest_and_analyse.name):
            return False
        lake, store = Lake(lake_folder(lake_path)), open_store(lake_address(lake_path))
        return not waiting(lake, inbox_files(), True, store.accounted_for) and store.shows_all()
    except _NOT_THERE:  # the run reports the error
        return False


daily = daily_schedule()
