"""Ingestion of sets of files into the tables of their scope. All new sets form one batch with one commit marker."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base import database
from pipelines.base.paths import path_text, total_size
from pipelines.lake.commit.batches import commit_tables
from pipelines.lake.lake import Lake
from pipelines.lake.names import KEYS, Batch, tables_of
from pipelines.lake.read.views import committed_rows
from pipelines.models.catalog import load_catalog
from pipelines.models.sqltext import as_text, first_line
from pipelines.readers.inputs.kinds import SetInput, TraceRow
from pipelines.readers.inputs.reading import Reading
from pipelines.readers.inputs.rejects import reason_of
from pipelines.readers.inputs.spilling import limit, spilling
from pipelines.readers.kineto.limits import Limits
from pipelines.readers.secrets import masked_text


def ingest_sets(
    kind: SetInput,
    sets: Mapping[Path, Collection[Path]],
    lake: Lake,
    job: str | None = None,
    on_bytes: Callable[[int], Any] | None = None,
    limits: Limits | None = None,
) -> list[TraceRow]:
    """Ingest sets. Return a row per set, and a row per file that is rejected although its set is ingested.

    Raise WrongLimit, duckdb.IOException or OSError if the lake cannot be written, and TooLittleMemory if memory does
    not suffice for the commit.
    """
    mark = tables_of(kind.scope)[0]
    batch = lake.new_batch()

    def known() -> dict[str, Any]:
        return states(kind, committed_row_dicts(lake, mark)) if kind.state else dict(lake.known(mark))

    with spilling() as con:
        reading = Reading(con, load_catalog(), kind.scope, known(), job, limits)
        rows: list[TraceRow] = []
        for path, files in sets.items():
            rows += _take(kind, reading, path, files, batch)
            if on_bytes:
                on_bytes(total_size(files))
        if any(row.trace_id and row.status != "known" for row in rows):
            # A set's state is that of its newest batch. The state read here may be newer than a batch that began later.
            if any(other.batch_id > batch.batch_id for other in lake.batches(mark)):
                batch = lake.new_batch()
                reading.move(batch)
            before_put = kind.before_put or (lambda *_: None)
            already_committed = commit_tables(
                con,
                lake,
                batch,
                kind.scope,
                lambda: before_put(con, lake),
                lambda: kind.settled(known(), reading.known),
            )
            rows = [TraceRow(r.path, "known", r.trace_id) if r.trace_id in already_committed else r for r in rows]
    return rows


def committed_row_dicts(lake: Lake, mark: str) -> list[dict[str, Any]]:
    """Return the committed rows of a marker table, with the newest row of each key."""
    files = lake.committed_files(mark)
    if not files:
        return []
    with database.scratch() as con:
        return database.rows_of(con, committed_rows(mark, files))


def states(kind: SetInput, rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the state of each key in rows of a marker table, from the key's last row. Without states, return {}."""
    key = KEYS[tables_of(kind.scope)[0]]
    return {row[key]: kind.state(row) for row in rows} if kind.state else {}


def _take(kind: SetInput, reading: Reading, path: Path, files: Collection[Path], batch: Batch) -> list[TraceRow]:
    """Read one set, and return its rows. An exception rejects only this set, unless `reason_of` raises it."""
    started = time.perf_counter()
    path_name, row = path_text(path), None
    reading.begin()
    try:
        if result := kind.read(reading, path, files):
            if result.status != "known":
                reading.keep(result.key, batch)
                reading.known[result.key] = result.state
            row = TraceRow(path_name, result.status, result.key, n_events=result.n_rows, reason=result.reason)
    except kind.refusals as refusal:
        row = TraceRow(path_name, "rejected", reason=masked_text(as_text(str(refusal)), is_name=True))
    except duckdb.OutOfMemoryException as error:
        database.raise_if_disk_is_full(error, tempfile.gettempdir())
        row = TraceRow(path_name, "rejected", reason=f"{database.too_little(limit())} ({first_line(error)})")
    except Exception as error:
        row = TraceRow(path_name, "rejected", reason=reason_of(error))
    rejections = [
        TraceRow(path_text(file), "rejected", reason=masked_text(as_text(reason), is_name=True))
        for file, reason in reading.rejected.items()
    ]
    return [*([replace(row, seconds=time.perf_counter() - started)] if row else []), *rejections]
