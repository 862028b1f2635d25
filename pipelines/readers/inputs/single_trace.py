"""One file that is one trace → `events`, `traces`, `findings` of a connection, without a lake.

A command that asks one file needs no more than this: what a lake needs beside it takes long to import.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.base.paths import path_text, text_path
from pipelines.lake.commit.staged_rows import insert_values
from pipelines.models.catalog import load_catalog
from pipelines.models.dry_run import create_staged
from pipelines.models.sqltext import quoted
from pipelines.readers.drawings import named
from pipelines.readers.inputs.find import events_input
from pipelines.readers.kineto import ReadTrace, TraceRejected
from pipelines.readers.origin import describe_origin
from pipelines.readers.secrets import masked, may_hold_secrets

if TYPE_CHECKING:
    import duckdb

_TABLES = ("traces", "findings")
_SHOWN = 20  # names in a sentence
_TEXTS = ("metadata", "job", "host", "device_name")  # of a trace, that may hold a secret


def insert_trace(
    con: duckdb.DuckDBPyConnection,
    trace: ReadTrace,
    batch_id: str,
    origin: dict[str, Any],
    capture_id: str | None,
) -> None:
    """Add a trace and its findings to `_staged_traces` and `_staged_findings`; `capture_id` None: not known yet."""
    which = {"trace_id": trace.trace_id, "batch_id": batch_id}
    same = ("n_events", "trace_start_ns", "trace_end_ns", "format", "unpacked_bytes", "status")
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
    texts = [name for name in _TEXTS if may_hold_secrets(str(about.get(name)).encode("utf-8", "replace"))]
    if texts:
        hidden = ", ".join(f"{name} = {masked(name)}" for name in texts)
        con.execute(f"UPDATE _staged_traces SET {hidden} WHERE trace_id = {quoted(trace.trace_id)}")
    insert_values(con, "_staged_findings", [which | asdict(finding) for finding in named(trace).findings])


def part_of(path: Path, process: str | None) -> dict[str, str]:
    """The argument of `EventInput.read` for one of several processes. Raises TraceRejected if there is no such one."""
    if process is None:
        return {}
    names = parts(path) if (parts := events_input(path).parts) else []
    if process in names:
        return {"part": process}
    there = f"it has {', '.join(names[:_SHOWN])}" if names else "it holds one trace: leave --process out"
    raise TraceRejected(path_text(path), None, f"the file has no process {process} to choose: {there}")


def load_trace(
    con: duckdb.DuckDBPyConnection,
    path: str | Path,
    on_bytes: Callable[[int], Any] | None = None,
    folder: Path | None = None,
    lean: bool = False,
    process: str | None = None,
) -> ReadTrace:
    """Read one file into `events`, `traces` and `findings` of `con`, without a lake. Raises TraceRejected.

    `process`: which trace of a file that holds several (`EventInput.parts`).

    With a folder, `events` is a view of a Parquet file in it, which must exist as long as `con`; otherwise it is a table. A
    `lean` one lacks the arguments' text, which no model reads.
    """
    with tempfile.TemporaryDirectory() as scratch:
        kept = folder or Path(scratch)
        part = part_of(Path(path), process)
        trace = events_input(Path(path)).read(Path(path), kept, on_bytes=on_bytes, lean=lean, **part)
        assert isinstance(trace, ReadTrace)  # nothing is known here
        part = f"SELECT * FROM read_parquet({quoted(kept / f'{trace.trace_id}.parquet')})"
        con.execute(f"CREATE OR REPLACE {'VIEW' if folder else 'TABLE'} events AS {part}")
    catalog = load_catalog()
    for table in _TABLES:
        create_staged(con, catalog, table)
    origin = describe_origin(Path(path), trace.metadata, None, process)
    insert_trace(con, trace, "", origin, origin["group_id"])  # alone it is a capture, which has the group's name
    for table in _TABLES:
        con.execute(f"CREATE OR REPLACE TABLE {table} AS {catalog.models[table].sql}")
    return trace
