"""The checks of a lake and its watched folder for probes. They are cheap and read-only, and explain each problem."""

from __future__ import annotations

import os
import shlex
import shutil
import sqlite3
import time
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import duckdb

from pipelines.base.paths import path_text
from pipelines.base.units import counted
from pipelines.lake.commit.batch_rows import LEFT_OUT
from pipelines.lake.commit.model_failures import FAILURES
from pipelines.lake.inbox import Inbox, look, skipped_clause, waiting
from pipelines.lake.lake import Lake
from pipelines.lake.names import ANALYST, MARK, REJECTS, Batch
from pipelines.lake.publish.analyst_file import connect_attached, is_published
from pipelines.lake.table_files import table_files
from pipelines.models.questions import rejected_files
from pipelines.models.sqltext import quoted

DAY = timedelta(days=1)
DAGSTER = ".dagster"
"""The folder of a lake with the history of its runs, which `tracelake ui` shows."""
RUNS = Path(DAGSTER, "history", "runs.db")


@dataclass(frozen=True)
class Limits:
    """The limits that a healthy lake does not exceed."""

    lag_seconds: float = 3600.0
    """Maximum time that a waiting file has been in the watched folder, s."""
    backlog: int | None = None
    rejected: int | None = None
    """Maximum number of files rejected within a day. None allows any number, which `warnings` then reports."""
    failed: int = 0
    """Maximum number of failures: Dagster jobs whose newest run failed, plus models that failed on a trace."""
    idle_seconds: float | None = None
    """Maximum time since the last commit, s."""
    free_percent: float = 5.0


@dataclass
class Status:
    """The result of a check. Times are in s; None means unknown, not measured or not requested.

    `is_on_disk`: whether the lake is a folder of this machine, with a disk, Dagster runs and an analysts' file. `wrong`
    has a sentence for each problem. `warnings` has a sentence for each finding that needs attention although the lake
    is healthy.
    """

    lake: str
    last_commit: str | None = None
    idle_seconds: float | None = None
    batches: int | None = None
    traces: int | None = None
    inbox: str | None = None
    backlog: int | None = None
    lag_seconds: float | None = None
    passed_over: dict[str, str] = field(default_factory=dict)
    rejected_last_day: int | None = None
    failed_runs: list[str] = field(default_factory=list)
    failed_models: list[str] = field(default_factory=list)
    published: str | None = None
    lake_bytes: int | None = None
    dagster_bytes: int | None = None
    free_bytes: int | None = None
    free_percent: float | None = None
    wrong: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    is_on_disk: bool = True

    def as_json(self) -> dict[str, Any]:
        """Return the status as a JSON-compatible dictionary."""
        return {name: value for name, value in asdict(self).items() if name != "is_on_disk"}


def status(lake: Lake, inbox: Path | None, limits: Limits | None = None, now: float | None = None) -> Status:
    """Check a lake and, unless `inbox` is None, its watched folder. Report parts that cannot be read in `wrong`."""
    limits, now = limits or Limits(), now or time.time()
    result = Status(str(lake.root))
    if not lake.root.is_dir():
        result.wrong.append(f"there is no lake in {lake.root}")
        return result
    for part in (_commits, _rejects, _runs, _disk, _published):
        _check_part(result, part, lake, now)
    if inbox is not None:
        result.inbox = path_text(inbox)
        _check_part(result, partial(_inbox, folder=inbox), lake, now)
    result.wrong += _over(result, limits)
    if limits.rejected is None and result.rejected_last_day:
        result.warnings.append(_rejected(result))
    return result


def status_of_store(con: duckdb.DuckDBPyConnection, address: str, batches: list[str], limits: Limits) -> Status:
    """Check the batches, rejected files and failed models of a DuckLake through a connection with its tables."""
    now = time.time()
    since = f"{datetime.fromtimestamp(now, UTC) - DAY:%F %T}"
    ((traces,),) = con.execute(f"SELECT count(*) FROM {MARK}").fetchall()
    result = Status(address, batches=len(batches), traces=traces, is_on_disk=False)
    if batches:
        begun = _begun(max(batches))
        result.last_commit, result.idle_seconds = f"{begun:%Y-%m-%dT%H:%M:%SZ}", max(0.0, now - begun.timestamp())
    query = f"SELECT count(*) FROM {rejected_files(con)} WHERE seen_at >= {quoted(since)}"
    result.rejected_last_day = con.execute(query).fetchall()[0][0]
    result.failed_models = _failed(con)
    result.wrong += _over(result, limits)
    if limits.rejected is None and result.rejected_last_day:
        result.warnings.append(_rejected(result))
    return result


def _check_part(result: Status, part: Any, lake: Lake, now: float) -> None:
    try:
        part(result, lake, now)
    except (OSError, ValueError, duckdb.Error, sqlite3.Error) as error:
        result.wrong.append(f"is unknown: {str(error).splitlines()[0]}")


def _commits(result: Status, lake: Lake, now: float) -> None:
    batches = lake.all_batches()
    result.batches = len(batches)
    result.traces = len(lake.known_traces())
    result.wrong += [
        f"{path_text(broken.path)} {broken.why}; see tracelake check" for broken in lake.broken({MARK})[:5]
    ]
    if batches:
        begun = _moment(max(batches))
        result.last_commit, result.idle_seconds = f"{begun:%Y-%m-%dT%H:%M:%SZ}", max(0.0, now - begun.timestamp())


def _moment(batch: Batch) -> datetime:
    return _begun(batch.batch_id)


def _begun(batch_id: str) -> datetime:
    return datetime.strptime(batch_id[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)


def _rejects(result: Status, lake: Lake, now: float) -> None:
    since = datetime.fromtimestamp(now, UTC) - DAY
    if not any(path.stem >= f"{since:%Y%m%dT%H%M%S}" for path in table_files(lake.root, REJECTS)):
        result.rejected_last_day = 0
    else:
        with Lake(lake.root, without_broken=True).connect([MARK, REJECTS]) as con:
            query = f"SELECT count(*) FROM {rejected_files(con)} WHERE seen_at >= {quoted(f'{since:%F %T}')}"
            result.rejected_last_day = con.execute(query).fetchall()[0][0]


def _runs(result: Status, lake: Lake, now: float) -> None:
    """Set `failed_runs` from Dagster's run database: the jobs whose newest finished run failed, each with the run.

    The tables of a failed run are missing.
    """
    home = Path(os.environ.get("DAGSTER_HOME") or lake.root / RUNS.parts[0])
    path = home / Path(*RUNS.parts[1:])
    if not path.exists():
        return
    newest = "SELECT max(id) FROM runs WHERE status IN ('SUCCESS', 'FAILURE') GROUP BY pipeline_name"
    query = f"SELECT pipeline_name, run_id FROM runs WHERE id IN ({newest}) AND status = 'FAILURE' ORDER BY 1"
    with closing(sqlite3.connect(f"file:{quote(os.fsencode(path))}?mode=ro", uri=True, timeout=5)) as con:
        result.failed_runs = [f"{job} {run}" for job, run in con.execute(query).fetchall()]


def _disk(result: Status, lake: Lake, now: float) -> None:
    disk = shutil.disk_usage(lake.root)
    result.free_bytes, result.free_percent = disk.free, round(100 * disk.free / disk.total, 2) if disk.total else 0.0
    result.lake_bytes = _size(lake.root)
    result.dagster_bytes = _size(lake.root / DAGSTER)


def _size(folder: Path) -> int:
    """Return the total size of all files under a folder, bytes. Skip files that disappear and unreadable folders."""
    total, todo = 0, [str(folder)]
    while todo:
        with suppress(FileNotFoundError, PermissionError), os.scandir(todo.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    todo.append(entry.path)
                    continue
                with suppress(FileNotFoundError):
                    total += entry.stat(follow_symlinks=False).st_size
    return total


def _published(result: Status, lake: Lake, now: float) -> None:
    if not (lake.root / ANALYST).exists():
        result.published = "never"
    else:
        result.published = "fresh" if is_published(lake, []) else "stale"
        with connect_attached(lake.root / ANALYST) as con:
            if con.execute(f"SELECT 1 FROM duckdb_tables() WHERE table_name = {quoted(FAILURES)}").fetchall():
                result.failed_models = _failed(con)


def _failed(con: duckdb.DuckDBPyConnection) -> list[str]:
    query = f"SELECT model, count(DISTINCT trace_id) FROM {FAILURES} WHERE outcome = '{LEFT_OUT}' GROUP BY 1 ORDER BY 1"
    return [f"{model} ({counted(n, 'trace')})" for model, n in con.execute(query).fetchall()]


def _inbox(result: Status, lake: Lake, now: float, folder: Path) -> None:
    if not folder.is_dir():
        result.wrong.append(f"the watched folder {path_text(folder)} is not a folder on this machine")
        return
    inbox: Inbox = look(folder)
    result.passed_over = {path_text(path): why for path, why in inbox.passed_over.items()}
    closed = {path: why for path, why in inbox.passed_over.items() if why.startswith("cannot")}
    if closed:
        result.wrong.append(skipped_clause(closed))
    waits = waiting(lake, inbox.files)
    result.backlog = len(waits)
    oldest = min((inbox.arrived_ns[path] for path in waits), default=None)
    result.lag_seconds = None if oldest is None else max(0.0, now - oldest / 1e9)


def _rejected(result: Status) -> str:
    n = result.rejected_last_day
    were = f"{n} file{' was' if n == 1 else 's were'} rejected in the last day"
    return f"{were}: tracelake ask rejected-files --lake {shlex.quote(result.lake)}"


def _over(result: Status, limits: Limits) -> list[str]:
    """Return a sentence for each value beyond its limit."""
    over: list[str] = []
    if result.lag_seconds is not None and result.lag_seconds > limits.lag_seconds:
        over.append(f"the oldest waiting file (of {result.backlog}) has been waiting for {result.lag_seconds:,.0f} s")
    if limits.backlog is not None and (result.backlog or 0) > limits.backlog:
        over.append(f"{result.backlog} files are waiting")
    if limits.rejected is not None and (result.rejected_last_day or 0) > limits.rejected:
        over.append(_rejected(result))
    if len(result.failed_runs) + len(result.failed_models) > limits.failed:
        kinds = (("the newest run failed for", result.failed_runs), ("models failed", result.failed_models))
        over += [f"{label}: {', '.join(names)}" for label, names in kinds if names]
    if limits.idle_seconds is not None and (result.idle_seconds is None or result.idle_seconds > limits.idle_seconds):
        since = "ever" if result.idle_seconds is None else f"for {result.idle_seconds:,.0f} s"
        over.append(f"nothing was committed {since}")
    if result.free_percent is not None and result.free_percent < limits.free_percent:
        over.append(f"only {result.free_percent} % of the disk is free ({(result.free_bytes or 0) / 1e9:,.1f} GB)")
    return over
