"""Checks a lake and its watched folder, for probes: cheap, writes nothing, and reports everything wrong as a sentence."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time
from contextlib import closing
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base import database
from pipelines.base.paths import path_text
from pipelines.lake.commit.batch_rows import LEFT_OUT
from pipelines.lake.commit.model_failures import FAILURES
from pipelines.lake.inbox import Inbox, accounted_for, look, told, waiting
from pipelines.lake.lake import Lake
from pipelines.lake.layout import ANALYST, MARK, REJECTS, Batch, table_files
from pipelines.lake.publish.analyst_file import is_published
from pipelines.lake.read.views import SUPERSEDED
from pipelines.models.sqltext import file_list, quoted

DAY = timedelta(days=1)
RUNS = Path(".dagster", "history", "runs.db")


@dataclass(frozen=True)
class Limits:
    """Thresholds above which something is wrong."""

    lag_seconds: float = 3600.0
    """Age of the oldest waiting file in the watched folder."""
    backlog: int | None = None
    rejected: int | None = None
    """Files rejected within a day; None: any number, of which `warnings` tell."""
    failed: int = 0
    """Jobs of Dagster whose newest run failed, and models that failed on a trace."""
    idle_seconds: float | None = None
    """Time since the last commit."""
    free_percent: float = 5.0


@dataclass
class Status:
    """The result; times in s, None: unknown or not requested. `wrong` has a sentence for each problem, `warnings` for what
    somebody should look at, although the lake is healthy.
    """

    lake: str
    last_commit: str | None = None
    idle_seconds: float | None = None
    batches: int = 0
    traces: int = 0
    inbox: str | None = None
    backlog: int | None = None
    lag_seconds: float | None = None
    passed_over: dict[str, str] = field(default_factory=dict)
    rejected_last_day: int = 0
    failed_runs: list[str] = field(default_factory=list)
    failed_models: list[str] = field(default_factory=list)
    published: str = "never"
    lake_bytes: int = 0
    dagster_bytes: int = 0
    free_bytes: int = 0
    free_percent: float = 0.0
    wrong: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Returns the object for programs."""
        return asdict(self)


def status(lake: Lake, inbox: Path | None, limits: Limits | None = None, now: float | None = None) -> Status:
    """Check a lake and, if given, its watched folder. What cannot be read is reported in `wrong`."""
    limits, now = limits or Limits(), now or time.time()
    found = Status(str(lake.root))
    if not lake.root.is_dir():
        found.wrong.append(f"there is no lake in {lake.root}")
        return found
    for part in (_commits, _rejects, _runs, _disk, _published):
        _told_by(found, part, lake, now)
    if inbox is not None:
        found.inbox = path_text(inbox)
        _told_by(found, partial(_inbox, folder=inbox), lake, now)
    found.wrong += _over(found, limits)
    if limits.rejected is None and found.rejected_last_day:
        found.warnings.append(_rejected(found))
    return found


def status_of_store(
    con: duckdb.DuckDBPyConnection, address: str, batches: list[str], limits: Limits, now: float | None = None
) -> Status:
    """Check a DuckLake through a connection that shows its tables: its batches, rejected files, failed models."""
    now = now or time.time()
    since = f"{datetime.fromtimestamp(now, UTC) - DAY:%F %T}"
    ((traces,),) = con.execute(f"SELECT count(*) FROM {MARK}").fetchall()
    found = Status(address, batches=len(batches), traces=traces, free_percent=100.0)
    if batches:
        at = _begun(max(batches))
        found.last_commit, found.idle_seconds = f"{at:%Y-%m-%dT%H:%M:%SZ}", max(0.0, now - at.timestamp())
    query = f"SELECT count(*) FROM {REJECTS} WHERE seen_at >= {quoted(since)} AND NOT contains(reason, {quoted(SUPERSEDED)})"
    found.rejected_last_day = con.execute(query).fetchall()[0][0]
    found.failed_models = _failed(con)
    found.wrong += _over(found, limits)
    if limits.rejected is None and found.rejected_last_day:
        found.warnings.append(_rejected(found))
    return found


def _told_by(found: Status, part: Any, lake: Lake, now: float) -> None:
    try:
        part(found, lake, now)
    except (OSError, ValueError, duckdb.Error, sqlite3.Error) as error:
        found.wrong.append(f"is unknown: {str(error).splitlines()[0]}")


def _commits(found: Status, lake: Lake, now: float) -> None:
    batches = lake.all_batches()
    found.batches = len(batches)
    found.traces = len(accounted_for(lake))
    found.wrong += [f"{path_text(one.path)} {one.why}; see tracelake check" for one in lake.broken({MARK})[:5]]
    if batches:
        at = _moment(max(batches))
        found.last_commit, found.idle_seconds = f"{at:%Y-%m-%dT%H:%M:%SZ}", max(0.0, now - at.timestamp())


def _moment(batch: Batch) -> datetime:
    return _begun(batch.batch_id)


def _begun(batch_id: str) -> datetime:
    return datetime.strptime(batch_id[:15], "%Y%m%dT%H%M%S").replace(tzinfo=UTC)


def _rejects(found: Status, lake: Lake, now: float) -> None:
    since = datetime.fromtimestamp(now, UTC) - DAY
    files = [path for path in table_files(lake.root, REJECTS) if path.stem >= f"{since:%Y%m%dT%H%M%S}"]
    if files:
        query = (
            f"SELECT count(*) FROM read_parquet({file_list(files)}) WHERE seen_at >= {quoted(f'{since:%F %T}')} "
            f"AND NOT contains(reason, {quoted(SUPERSEDED)})"
        )
        with database.scratch() as con:
            found.rejected_last_day = con.execute(query).fetchall()[0][0]


def _runs(found: Status, lake: Lake, now: float) -> None:
    """Returns the jobs whose newest run failed, from Dagster's own records: their tables were not computed."""
    home = Path(os.environ.get("DAGSTER_HOME") or lake.root / RUNS.parts[0])
    path = home / Path(*RUNS.parts[1:])
    if not path.exists():
        return
    newest = "SELECT max(id) FROM runs WHERE status IN ('SUCCESS', 'FAILURE') GROUP BY pipeline_name"
    query = f"SELECT pipeline_name, run_id FROM runs WHERE id IN ({newest}) AND status = 'FAILURE' ORDER BY 1"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=5)) as con:
        found.failed_runs = [f"{job} {run}" for job, run in con.execute(query).fetchall()]


def _disk(found: Status, lake: Lake, now: float) -> None:
    disk = shutil.disk_usage(lake.root)
    found.free_bytes, found.free_percent = disk.free, round(100 * disk.free / disk.total, 2) if disk.total else 0.0
    found.lake_bytes = _size(lake.root)
    found.dagster_bytes = _size(lake.root / ".dagster")


def _size(folder: Path) -> int:
    """Returns the bytes of all files under a folder, ignoring those that disappear meanwhile."""
    total, todo = 0, [str(folder)]
    while todo:
        try:
            with os.scandir(todo.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        todo.append(entry.path)
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
        except (FileNotFoundError, PermissionError):
            continue
    return total


def _published(found: Status, lake: Lake, now: float) -> None:
    if (lake.root / ANALYST).exists():
        found.published = "fresh" if is_published(lake, []) else "stale"
        with database.connect(lake.root / ANALYST, read_only=True) as con:
            if con.execute(f"SELECT 1 FROM duckdb_tables() WHERE table_name = {quoted(FAILURES)}").fetchall():
                found.failed_models = _failed(con)


def _failed(con: duckdb.DuckDBPyConnection) -> list[str]:
    query = f"SELECT model, count(DISTINCT trace_id) FROM {FAILURES} WHERE outcome = '{LEFT_OUT}' GROUP BY 1 ORDER BY 1"
    return [f"{model} ({n} traces)" for model, n in con.execute(query).fetchall()]


def _inbox(found: Status, lake: Lake, now: float, folder: Path) -> None:
    if not folder.is_dir():
        found.wrong.append(f"the watched folder {path_text(folder)} is not a folder on this machine")
        return
    inbox: Inbox = look(folder)
    found.passed_over = {path_text(path): why for path, why in inbox.passed_over.items()}
    closed = {path: why for path, why in inbox.passed_over.items() if why.startswith("cannot")}
    if closed:
        found.wrong.append(told(closed))
    waits = waiting(lake, inbox.files)
    found.backlog = len(waits)
    oldest = min((int(state.split(":")[1]) for state in waits.values()), default=None)
    found.lag_seconds = None if oldest is None else max(0.0, now - oldest / 1e9)


def _rejected(found: Status) -> str:
    n = found.rejected_last_day
    return f"{n} file{' was' if n == 1 else 's were'} rejected in the last day: tracelake ask rejected-files"


def _over(found: Status, limits: Limits) -> list[str]:
    """Returns a sentence for each value beyond its limit."""
    over: list[str] = []
    if found.lag_seconds is not None and found.lag_seconds > limits.lag_seconds:
        over.append(f"the oldest waiting file (of {found.backlog}) has been waiting for {found.lag_seconds:,.0f} s")
    if limits.backlog is not None and (found.backlog or 0) > limits.backlog:
        over.append(f"{found.backlog} files are waiting")
    if limits.rejected is not None and found.rejected_last_day > limits.rejected:
        over.append(_rejected(found))
    if len(found.failed_runs) + len(found.failed_models) > limits.failed:
        kinds = (("the newest run failed for", found.failed_runs), ("models failed", found.failed_models))
        over += [f"{what}: {', '.join(names)}" for what, names in kinds if names]
    if limits.idle_seconds is not None and (found.idle_seconds is None or found.idle_seconds > limits.idle_seconds):
        since = "ever" if found.idle_seconds is None else f"for {found.idle_seconds:,.0f} s"
        over.append(f"nothing was committed {since}")
    if found.free_percent < limits.free_percent:
        over.append(f"only {found.free_percent} % of the disk is free ({found.free_bytes / 1e9:,.1f} GB)")
    return over
