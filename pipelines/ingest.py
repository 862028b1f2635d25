"""A batch of files → the lake.

Each file is read, in bounded memory, into a private Parquet file. A batch of traces becomes visible when its `traces`
file is put in place, and not before. What is rejected becomes a row of `rejects`, and the rest goes on.
"""

from __future__ import annotations

import errno
import glob
import json
import shutil
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb

from pipelines import database
from pipelines.fleet.straggler.lake import ingest_jobs, job_files
from pipelines.flight_recorder.lake import dump_files, ingest_dumps
from pipelines.lake.layout import MARK, REJECTS, table_files
from pipelines.lake.parquet import join_files
from pipelines.lake.retention import retired_traces
from pipelines.lake.rows import (
    all_or_nothing,
    create_staged,
    insert_reject,
    insert_values,
    unforeseen,
)
from pipelines.lake.settled import Outcome, settle, states_of
from pipelines.lake.store import Lake, Staged
from pipelines.lake.views import SUPERSEDED, superseded
from pipelines.load import load_events
from pipelines.models.catalog import load_catalog
from pipelines.models.errors import CatalogError
from pipelines.origin import WrongPattern, describe_origin
from pipelines.paths import files_under, is_folder, path_text, text_path
from pipelines.recordings import ingest_recordings, is_recording_part, recording_folders
from pipelines.runs import ingest_runs, is_run_table, run_folders
from pipelines.sqltext import as_text, file_list, first_line, quoted, row
from pipelines.traces import KnownTrace, ReadTrace, TraceRejected
from pipelines.traces.limits import Limits

BATCH_TRACES = 500
BATCH_BYTES = 2 << 30
LAKE_ERRNOS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)
# What no file can be blamed for: the lake's disk, the environment, the rules that come with tracelake.
_NO_FAULT_OF_A_FILE = (duckdb.IOException, WrongPattern, CatalogError)
_PARQUET = "FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 122880"
_TABLES = (MARK, "findings", REJECTS)  # whose rows are made here; events are a file of their own


@dataclass(frozen=True)
class TraceRow:
    """What became of one file. `status`: ok, repaired, partial, known (its content is in the lake, or was until
    retention removed it) or rejected.

    The folder of a schedule run is one row: `trace_id` is the run's id, `n_events` its task timings. So is the
    op-level trace of a job: `trace_id` is its job_id, `n_events` its ops. And so are the Flight Recorder dumps of a
    folder: `trace_id` is their set_id, `n_events` the calls in their rings; and the folder of a recording: `trace_id` is
    its recording_id, `n_events` its samples.
    """

    path: str
    status: str
    trace_id: str | None = None
    rank: int | None = None
    n_events: int | None = None
    unpacked_bytes: int | None = None
    seconds: float = 0.0
    reason: str | None = None
    byte_offset: int | None = None


@dataclass(frozen=True)
class IngestReport:
    """One row per file, in the order in which they were read."""

    rows: list[TraceRow] = field(default_factory=list)

    @property
    def rejected(self) -> list[TraceRow]:
        """The files that were rejected."""
        return [file for file in self.rows if file.status == "rejected"]


def expand(paths: Iterable[str | Path]) -> list[Path]:
    """The files that files, folders (recursively, without hidden ones) and globs name, each once, in order.

    What cannot be accessed is included too (an unlistable folder stands for its files), to be rejected by name.
    """
    found: dict[Path, None] = {}
    for given in paths:
        path = Path(given)
        if is_folder(path):
            found.update(dict.fromkeys(files_under(path)))
        elif not glob.has_magic(str(given)) or _exists(path):
            found[path] = None
        else:
            matches = [Path(p) for p in sorted(glob.glob(str(given), recursive=True))]
            found.update(dict.fromkeys(expand(matches)) if matches else {path: None})
    return list(found)


def _exists(path: Path) -> bool:
    """Also what cannot be accessed: reading it says why."""
    try:
        return path.exists()
    except OSError:
        return True


def ingest(
    paths: Iterable[str | Path],
    lake: Lake,
    job: str | None = None,
    on_file: Callable[[TraceRow], Any] | None = None,
    on_bytes: Callable[[int], Any] | None = None,
    limits: Limits | None = None,
) -> IngestReport:
    """Ingest files, folders and globs into the lake; content that is already there is skipped.

    `on_file(row)` is called after each file, `on_bytes(n)` as compressed bytes are read. Files are committed in batches
    of 500 traces or 2 GiB of JSON, so a crash loses at most the current batch, and running again completes it. Files of
    the lake itself are skipped. Folders of schedule runs are ingested too (`pipelines/runs.py`), and so are
    op-level traces of jobs with the YAML file next to them (`pipelines/fleet/straggler/lake.py`), the Flight Recorder
    dumps of a folder (`pipelines/flight_recorder/lake.py`), and folders of recordings (`pipelines/recordings.py`).
    What is larger than `limits` (by default the environment's) is rejected. Raises WrongLimit, and duckdb.IOException or
    OSError if the lake cannot be written.
    """
    lake.sweep()
    report = IngestReport()
    given = [path for path in expand(paths) if not path.absolute().is_relative_to(lake.root)]
    states = states_of(given)  # as they were before they were read
    runs = run_folders(given)
    recordings = recording_folders(given)
    given = [path for path in given if not is_recording_part(path)]
    jobs = job_files(path for path in given if not is_run_table(path))
    dumps = dump_files(path for path in given if not is_run_table(path))
    of_others = {path for several in (*jobs.values(), *dumps.values()) for path in several}
    files = deque(path for path in given if path not in of_others and not (is_run_table(path) and path.parent in runs))
    while files:
        with _OpenBatch(lake, job, limits) as batch:
            rows: list[TraceRow] = []
            while files and not batch.full:
                rows.append(batch.add(files.popleft(), on_bytes))
                if on_file:
                    on_file(rows[-1])
            already_committed = batch.commit()
            report.rows.extend(replace(r, status="known") if r.trace_id in already_committed else r for r in rows)
    if runs:
        found = ingest_runs(runs, lake)
        rows = [
            TraceRow(path_text(r.folder), r.status, r.run_id, None, r.n_timings, None, r.seconds, r.reason)
            for r in found
        ]
        _report_others(rows, lake, report, on_file)
    if jobs:
        taken = ingest_jobs(jobs, lake, job)
        rows = [
            TraceRow(path_text(r.path), r.status, r.job_id, None, r.n_ops, None, r.seconds, r.reason) for r in taken
        ]
        _report_others(rows, lake, report, on_file)
    if dumps:
        sets = ingest_dumps(dumps, lake, job)
        rows = [
            TraceRow(path_text(r.path), r.status, r.set_id, None, r.n_entries, None, r.seconds, r.reason) for r in sets
        ]
        _report_others(rows, lake, report, on_file)
    if recordings:
        kept = ingest_recordings(recordings, lake)
        rows = [
            TraceRow(path_text(r.folder), r.status, r.recording_id, None, r.n_rows, None, r.seconds, r.reason)
            for r in kept
        ]
        _report_others(rows, lake, report, on_file)
    settle(lake, _outcomes(states, report.rows))
    return report


def _outcomes(states: Mapping[Path, str], rows: Iterable[TraceRow]) -> dict[Path, Outcome]:
    """What became of every given file, except files that were modified meanwhile, whose fate is open."""
    told = {
        text_path(row.path).absolute(): row for row in rows if row.unpacked_bytes or row.status in ("known", "rejected")
    }
    whole = {path: (row.status, row.trace_id) for path, row in told.items()}
    is_same = states_of(states).items() & states.items()
    return {path: Outcome(state, *whole.get(path, ("part", None))) for path, state in is_same}


def reject_files(reasons: Mapping[Path, str], lake: Lake) -> IngestReport:
    """Make files rows of `rejects` unread, for the given reasons."""
    states = states_of(reasons)
    with _OpenBatch(lake, None) as batch:
        rows = [batch.reject(path, TraceRejected(path_text(path), None, why), 0.0) for path, why in reasons.items()]
        batch.commit()
    settle(lake, _outcomes(states, rows))
    return IngestReport(rows)


def _report_others(
    rows: list[TraceRow], lake: Lake, report: IngestReport, on_file: Callable[[TraceRow], Any] | None
) -> None:
    """Runs, jobs, dumps and recordings are ingested together; those that fail become rows in `rejects`, as files do."""
    rows = [replace(r, reason=r.reason and as_text(r.reason)) for r in rows]
    if rejected := [r for r in rows if r.status == "rejected"]:
        with _OpenBatch(lake, None) as batch:
            for r in rejected:
                batch.reject(text_path(r.path), TraceRejected(r.path, None, r.reason or ""), r.seconds)
            batch.commit()
    report.rows.extend(rows)
    for found_row in rows:
        if on_file:
            on_file(found_row)


class _OpenBatch:
    """The traces read so far, staged as private Parquet files, until `commit` makes them visible together."""

    def __init__(self, lake: Lake, job: str | None, limits: Limits | None = None) -> None:
        self.limits = limits or Limits.of_environment()
        self.lake, self.job, self.batch = lake, job, lake.new_batch()
        self.folder = lake.staging(self.batch)
        self.catalog = load_catalog()
        self.known = set(lake.known_traces()) | retired_traces(lake)
        self.parts: list[Path] = []
        self.bytes = 0
        self.rows = database.connect()
        for table in _TABLES:
            create_staged(self.rows, self.catalog, table)

    def __enter__(self) -> _OpenBatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.rows.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def full(self) -> bool:
        return len(self.parts) >= BATCH_TRACES or self.bytes >= BATCH_BYTES

    def add(self, path: Path, on_bytes: Callable[[int], Any] | None) -> TraceRow:
        """Ingest one file. Any exception rejects only this file, except those that are no file's fault."""
        started = time.perf_counter()
        try:
            with all_or_nothing(self.rows):
                return self._take(path, on_bytes, started)
        except TraceRejected as rejection:
            return self.reject(path, rejection, time.perf_counter() - started)
        except _NO_FAULT_OF_A_FILE:
            raise
        except OSError as error:
            if error.errno in LAKE_ERRNOS:
                raise  # the lake's disk, not this file
            reason = f"cannot be read: {error.strerror or error}"
        except duckdb.Error as error:
            reason = f"DuckDB cannot read it: {first_line(error)}"
        except Exception as error:  # a fault of ours that this file brings to light: the others go in
            reason = unforeseen(error)
        return self.reject(path, TraceRejected(path_text(path), None, reason), time.perf_counter() - started)

    def _take(self, path: Path, on_bytes: Callable[[int], Any] | None, started: float) -> TraceRow:
        trace = load_events(path, self.folder, self.batch.batch_id, self.known, on_bytes, limits=self.limits)
        seconds = time.perf_counter() - started
        origin = describe_origin(path, trace.metadata, self.job)
        if isinstance(trace, KnownTrace):
            return TraceRow(path_text(path), "known", trace.trace_id, origin["rank"], seconds=seconds)
        insert_trace(self.rows, trace, self.batch.batch_id, origin, None)
        self.known.add(trace.trace_id)
        self.parts.append(self.folder / f"{trace.trace_id}.parquet")
        self.bytes += trace.unpacked_bytes
        n_events = trace.n_events
        rank = origin["rank"]
        return TraceRow(path_text(path), trace.status, trace.trace_id, rank, n_events, trace.unpacked_bytes, seconds)

    def reject(self, path: Path, rejection: TraceRejected, seconds: float) -> TraceRow:
        reason = as_text(rejection.reason)
        insert_reject(self.rows, path_text(path.absolute()), reason, self.batch, rejection.byte_offset)
        return TraceRow(path_text(path), "rejected", seconds=seconds, reason=reason, byte_offset=rejection.byte_offset)

    def commit(self) -> set[str]:
        """Put every table's file in place, the mark last; returns the traces that another process has committed meanwhile.

        Their rows in this batch's files have no mark, so no view shows them.
        """
        if self.parts:
            staged = {"events": Staged(self._merged()), "findings": Staged(self._staged("findings"))}
            self.lake.put_all(self.batch, staged)
        with self.lake.commit_lock():
            mine = {path.stem for path in self.parts}
            already_committed = mine & set(self.lake.known_traces())
            self.rows.execute(f"DELETE FROM _staged_traces WHERE trace_id IN {row(['', *already_committed])}")
            self._tell_superseded()
            self._commit_rejects()
            if mine - already_committed:
                rows = self.rows.execute("SELECT trace_id, path FROM _staged_traces").fetchall()
                self.lake.put(MARK, self.batch, self._staged(MARK), len(rows), dict(rows))
        if mine and mine == already_committed:
            self.lake.take_away(self.batch, ["events", "findings"])
        return already_committed

    def _tell_superseded(self) -> None:
        """A row in `rejects` for each truncated trace that a better one now replaces."""
        bad = {one.path for one in self.lake.broken({MARK})}
        files = [path for path in self.lake.committed_files(MARK) if path not in bad]
        rows = "SELECT * FROM _staged_traces"
        if files:
            rows += f" UNION ALL BY NAME SELECT * FROM read_parquet({file_list(files)}, union_by_name = true)"
        columns = "trace_id, batch_id, path, capture_id, group_id, job, rank, status, n_events, first_ts_ns, last_ts_ns"
        query = (
            f"SELECT p.path, p.trace_id, p.n_events, w.trace_id, w.path, w.n_events, w.status "
            f"FROM ({superseded('SELECT * FROM _marks')}) AS s "
            f"JOIN _marks AS p ON p.trace_id = s.trace_id JOIN _marks AS w ON w.trace_id = s.superseded_by "
            f"WHERE {quoted(self.batch.batch_id)} IN (p.batch_id, w.batch_id)"
        )
        try:
            self.rows.execute(f"CREATE OR REPLACE TEMP TABLE _marks AS SELECT {columns} FROM ({rows})")
            found = self.rows.execute(query).fetchall()
        except duckdb.Error:  # a mark that cannot be read blocks no ingestion: this only tells what the views do
            return
        for path, trace_id, n_events, by, by_path, by_events, status in found:
            reason = (
                f"trace {trace_id} was truncated ({n_events:,} events) and is left out of all tables: {SUPERSEDED} "
                f"{by} ({by_path}, {by_events:,} events, {status})"
            )
            insert_reject(self.rows, path, reason, self.batch)

    def _commit_rejects(self) -> None:
        """Add the rejected files to the lake; the same file rejected again for the same reason is not repeated."""
        if earlier := table_files(self.lake.root, REJECTS):
            known = f"SELECT (path, reason) FROM read_parquet({file_list(earlier)})"
            self.rows.execute(f"DELETE FROM _staged_rejects WHERE (path, reason) IN ({known})")
        if self.rows.execute("SELECT count(*) FROM _staged_rejects").fetchall()[0][0]:
            self.lake.put(REJECTS, self.batch, self._staged(REJECTS))

    def _staged(self, table: str) -> Path:
        target = self.folder / f"{table}.table"
        self.rows.execute(f"COPY ({self.catalog.models[table].sql}) TO {quoted(target)} ({_PARQUET})")
        return target

    def _merged(self) -> Path:
        if len(self.parts) == 1:
            return self.parts[0]
        target = self.folder / "events.table"
        join_files(sorted(self.parts), target)  # named by trace: sorted, so that row groups prune
        return target


def insert_trace(
    con: duckdb.DuckDBPyConnection,
    trace: ReadTrace,
    batch_id: str,
    origin: dict[str, Any],
    capture_id: str | None,
) -> None:
    """Add a trace and its findings to `_staged_traces` and `_staged_findings`; `capture_id` None: not known yet."""
    which = {"trace_id": trace.trace_id, "batch_id": batch_id}
    same = ("n_events", "first_ts_ns", "last_ts_ns", "format", "unpacked_bytes", "status")
    about = {
        **which,
        "path": path_text(text_path(trace.path).absolute()),
        "capture_id": capture_id,
        **origin,
        **{name: getattr(trace, name) for name in same},
        "ingested_at": datetime.now(UTC),
        "metadata": json.dumps(trace.metadata, default=str),
    }
    insert_values(con, "_staged_traces", [about])
    insert_values(con, "_staged_findings", [which | asdict(finding) for finding in trace.findings])


def load_trace(
    con: duckdb.DuckDBPyConnection,
    path: str | Path,
    on_bytes: Callable[[int], Any] | None = None,
    folder: Path | None = None,
    lean: bool = False,
) -> ReadTrace:
    """Read one file into `events`, `traces` and `findings` of `con`, without a lake. Raises TraceRejected.

    With a folder, `events` is a view of a Parquet file in it, which must exist as long as `con`; otherwise it is a table. A
    `lean` one lacks the arguments' text, which no model reads.
    """
    with tempfile.TemporaryDirectory() as scratch:
        kept = folder or Path(scratch)
        trace = load_events(Path(path), kept, on_bytes=on_bytes, lean=lean)
        assert isinstance(trace, ReadTrace)  # nothing is known here
        part = f"SELECT * FROM read_parquet({quoted(kept / f'{trace.trace_id}.parquet')})"
        con.execute(f"CREATE OR REPLACE {'VIEW' if folder else 'TABLE'} events AS {part}")
    catalog = load_catalog()
    for table in _TABLES:
        create_staged(con, catalog, table)
    origin = describe_origin(Path(path), trace.metadata, None)
    insert_trace(con, trace, "", origin, origin["group_id"])  # alone it is a capture, which has the group's name
    for table in ("traces", "findings"):
        con.execute(f"CREATE OR REPLACE TABLE {table} AS {catalog.models[table].sql}")
    return trace
