"""Ingestion of trace files into `events`, `traces` and `findings`, and of rejected files into `rejects`.

Each file is read, in bounded memory, into a private Parquet file. A batch of traces becomes visible when its `traces`
file, the commit marker, is moved into place.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base import database
from pipelines.base.paths import path_text
from pipelines.lake.commit.batches import PARQUET, commit_tables
from pipelines.lake.commit.parquet import join_files
from pipelines.lake.commit.staged_rows import all_or_nothing, insert_reject
from pipelines.lake.lake import Lake, Staged
from pipelines.lake.names import MARK, REJECTS
from pipelines.lake.read.known_rejects import stage_known_rejects
from pipelines.lake.read.superseded_traces import superseded_by_batch
from pipelines.lake.retain.retention import retired_traces
from pipelines.models.catalog import load_catalog
from pipelines.models.dry_run import create_staged
from pipelines.models.header import TRACE
from pipelines.models.sqltext import as_text, quoted
from pipelines.readers.drawings import refused
from pipelines.readers.inputs.find import trace_file
from pipelines.readers.inputs.kinds import TraceFile, TraceRow
from pipelines.readers.inputs.rejects import reason_of
from pipelines.readers.inputs.single_trace import insert_trace
from pipelines.readers.kineto import KnownTrace, ReadRequest, ReadTrace, TraceRejected
from pipelines.readers.kineto.limits import Limits
from pipelines.readers.origin import describe_origin
from pipelines.readers.secrets import masked_text

BATCH_TRACES = 500
BATCH_BYTES = 2 << 30
# Findings that are printed with the file's name.
_PRINTED = ("truncated", "counter_ranges", "empty_counter_ranges", "no_counters")
_TABLES = (MARK, "findings", REJECTS)  # tables whose rows are inserted here; the reader writes `events`


class EventBatch:
    """Batch of traces, staged as private Parquet files until `commit` makes all of them visible."""

    def __init__(self, lake: Lake, job: str | None, limits: Limits | None = None, process: str | None = None) -> None:
        self.limits = limits or Limits.from_environment()
        self.lake, self.job, self.batch, self.process = lake, job, lake.new_batch(), process
        self.folder = lake.staging(self.batch)
        self.catalog = load_catalog()
        self.known = set(lake.known_traces()) | retired_traces(lake)
        self.parts: list[Path] = []
        self.counted: dict[Path, ReadTrace] = {}  # traces with hardware counters, by the file of their events
        self.bytes = 0
        self.rows = database.connect()
        for table in _TABLES:
            create_staged(self.rows, self.catalog, table)

    def __enter__(self) -> EventBatch:
        return self

    def __exit__(self, *_: object) -> None:
        self.rows.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def full(self) -> bool:
        return len(self.parts) >= BATCH_TRACES or self.bytes >= BATCH_BYTES

    def add(self, path: Path, on_bytes: Callable[[int], Any] | None) -> list[TraceRow]:
        """Ingest one file. Return a row for the file, or for each of its traces (`EventInput.parts`), or for `process`.

        An exception rejects only this trace, unless its cause is the lake's disk, the environment or tracelake's rules.
        """
        files: list[TraceFile] = []
        if refused := self._tried(
            path, lambda: files.extend(trace_file(path, self.process, self.limits).traces(self.limits))
        ):
            return [refused]
        rows = [
            self._tried(path, partial(self._take, file, None if index else on_bytes))
            for index, file in enumerate(files)
        ]
        return [row for row in rows if row]

    def _tried(self, path: Path, take: Callable[[], TraceRow | None]) -> TraceRow | None:
        """Return the row from `take` with its duration, or the row of the file's rejection."""
        started = time.perf_counter()
        try:
            with all_or_nothing(self.rows):
                row = take()
            return replace(row, seconds=time.perf_counter() - started) if row else None
        except TraceRejected as error:
            reason, byte_offset = error.reason, error.byte_offset
        except duckdb.IOException:
            raise  # the lake's disk, not this file
        except Exception as error:
            reason, byte_offset = reason_of(error), None
        return self.reject(path, reason, byte_offset, time.perf_counter() - started)

    def _take(self, file: TraceFile, on_bytes: Callable[[int], Any] | None) -> TraceRow:
        request = ReadRequest(
            file.path, self.folder, file.part, self.batch.batch_id, self.known, on_bytes, limits=self.limits
        )
        trace = file.kind.read(request)
        if why := refused(trace.metadata):
            raise TraceRejected(file.path, 0, why)
        origin = describe_origin(file.path, trace.metadata, self.job, file.part)
        row = TraceRow(path_text(file.path), "known", trace.trace_id, origin["rank"])
        if isinstance(trace, KnownTrace):
            return row
        insert_trace(self.rows, trace, self.batch.batch_id, origin, None)
        self.known.add(trace.trace_id)
        events = request.events_path(trace.trace_id)
        self.parts.append(events)
        if any(finding.check_name == "counter_ranges" for finding in trace.findings):
            self.counted[events] = trace
        self.bytes += trace.unpacked_bytes
        reason = "; ".join(finding.detail for finding in trace.findings if finding.check_name in _PRINTED) or None
        return replace(
            row, status=trace.status, n_events=trace.n_events, unpacked_bytes=trace.unpacked_bytes, reason=reason
        )

    def reject(self, path: Path, reason: str, byte_offset: int | None, seconds: float) -> TraceRow:
        reason = masked_text(as_text(reason), is_name=True)  # it may quote the file
        insert_reject(self.rows, path_text(path.absolute()), reason, self.batch, byte_offset)
        return TraceRow(path_text(path), "rejected", seconds=seconds, reason=reason, byte_offset=byte_offset)

    def commit(self) -> set[str]:
        """Move the file of every table into place, the commit marker last.

        Return the ids of traces that another process has committed since this process read them. Their rows in this
        batch have no commit marker, so no view shows them.
        """
        for table in (MARK, "findings"):
            self.rows.execute(f"CREATE OR REPLACE TABLE {table} AS {self.catalog.models[table].sql}")
        if not self.parts:
            with self.lake.commit_lock():
                self._put_rejects()
            return set()
        events = {"events": Staged(self._merged())}
        return commit_tables(self.rows, self.lake, self.batch, TRACE, self._put_rejects, early=events)

    def _put_rejects(self) -> None:
        """Add the rejected files to the lake, unless it has them with the same reason (`known_rejects`)."""
        for path, reason in superseded_by_batch(
            self.rows, self.lake, f"SELECT * FROM main.{MARK}", self.batch.batch_id
        ):
            insert_reject(self.rows, path, reason, self.batch)
        if not self._n_rejects():
            return
        stage_known_rejects(self.rows, self.lake, "SELECT path, reason, seen_at FROM _staged_rejects")
        known = "SELECT (path, reason) FROM _known_rejects"
        self.rows.execute(f"DELETE FROM _staged_rejects WHERE (path, reason) IN ({known})")
        if self._n_rejects():
            target = self.folder / "rejects.table"
            self.rows.execute(f"COPY ({self.catalog.models[REJECTS].sql}) TO {quoted(target)} ({PARQUET})")
            self.lake.put(REJECTS, self.batch, target)

    def _n_rejects(self) -> int:
        return self.rows.execute("SELECT count(*) FROM _staged_rejects").fetchall()[0][0]

    def _merged(self) -> Path:
        if len(self.parts) == 1:
            return self.parts[0]
        target = self.folder / "events.table"
        join_files(sorted(self.parts), target)  # sorted by name, which is the trace id, so that queries skip row groups
        return target
