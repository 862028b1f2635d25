"""Sets of files → the tables of their scope: all that are new in one batch, visible with the file of its mark."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb

from pipelines.base import database
from pipelines.base.paths import path_text, total_size
from pipelines.lake.commit.batches import commit_tables
from pipelines.lake.lake import Lake
from pipelines.lake.names import Batch, tables_of
from pipelines.models.catalog import load_catalog
from pipelines.models.sqltext import as_text, first_line
from pipelines.readers.inputs.kinds import SetInput, TraceRow
from pipelines.readers.inputs.reading import Reading
from pipelines.readers.inputs.rejects import reason_of
from pipelines.readers.inputs.spilling import limit, spilling


def ingest_sets(
    kind: SetInput,
    sets: Mapping[Path, Collection[Path]],
    lake: Lake,
    job: str | None = None,
    on_bytes: Callable[[int], Any] | None = None,
) -> list[TraceRow]:
    """Ingest sets; returns one row per set, and one per file that is rejected on its own.

    Raises duckdb.IOException or OSError if the lake cannot be written, TooLittleMemory if there is too little to commit them.
    """
    mark = tables_of(kind.scope)[0]
    batch = lake.new_batch()

    def known() -> dict[str, Any]:
        return kind.known(lake) if kind.known else dict(lake.known(mark))

    with spilling() as con:
        reading = Reading(con, load_catalog(), kind.scope, known(), job)
        rows: list[TraceRow] = []
        for path, files in sets.items():
            rows += _take(kind, reading, path, files, batch)
            if on_bytes:
                on_bytes(total_size(files))
        if any(row.trace_id and row.status != "known" for row in rows):
            before_put = kind.before_put or (lambda *_: None)
            already_committed = commit_tables(
                con, lake, batch, kind.scope, lambda: before_put(con, lake), lambda: kind.settled(known())
            )
            rows = [TraceRow(r.path, "known", r.trace_id) if r.trace_id in already_committed else r for r in rows]
    return rows


def _take(kind: SetInput, reading: Reading, path: Path, files: Collection[Path], batch: Batch) -> list[TraceRow]:
    """Read one set. Any exception rejects only this set, except those that are no file's fault."""
    started = time.perf_counter()
    text, row = path_text(path), None
    reading.begin()
    try:
        if found := kind.read(reading, path, files):
            if found.status != "known":
                reading.keep(found.key, batch)
                reading.known[found.key] = found.state
            row = TraceRow(text, found.status, found.key, n_events=found.n_rows, reason=found.reason)
    except kind.refusals as refusal:
        row = TraceRow(text, "rejected", reason=as_text(str(refusal)))
    except duckdb.OutOfMemoryException as error:
        database.raise_if_disk_is_full(error, tempfile.gettempdir())
        row = TraceRow(text, "rejected", reason=f"{database.too_little(limit())} ({first_line(error)})")
    except Exception as error:
        row = TraceRow(text, "rejected", reason=reason_of(error))
    parts = [TraceRow(path_text(part), "rejected", reason=as_text(why)) for part, why in reading.rejected.items()]
    return [*([replace(row, seconds=time.perf_counter() - started)] if row else []), *parts]
