"""Loading of one trace file into `events`, `traces`, `findings` of a connection, without a lake.

Commands that read one file import this module and not those for a lake, which take long to import.
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
_SHOWN = 20  # names in a message
_TEXTS = ("metadata", "job", "host", "device_name")  # columns of `traces` that may contain a secret


def insert_trace(
    con: duckdb.DuckDBPyConnection,
    trace: ReadTrace,
    batch_id: str,
    origin: dict[str, Any],
    capture_id: str | None,
) -> None:
    """Add a trace and its findings to `_staged_traces` and `_staged_findings`. `capture_id`: None if it is unknown."""
    keys = {"trace_id": trace.trace_id, "batch_id": batch_id}
    copied_names = ("n_events", "trace_start_ns", "trace_end_ns", "format", "unpacked_bytes", "status")
    trace_row = {
        **keys,
        "path": path_text(text_path(trace.path).absolute()),
        "capture_id": capture_id,
        **origin,
        **{name: getattr(trace, name) for name in copied_names},
        "ingested_at": datetime.now(UTC),
        "metadata": json.dumps(trace.metadata, default=str),
    }
    insert_values(con, "_staged_traces", [trace_row])
    text_columns = [name for name in _TEXTS if may_hold_secrets(str(trace_row.get(name)).encode("utf-8", "replace"))]
    if text_columns:
        assignments = ", ".join(f"{name} = {masked(name)}" for name in text_columns)
        con.execute(f"UPDATE _staged_traces SET {assignments} WHERE trace_id = {quoted(trace.trace_id)}")
    insert_values(con, "_staged_findings", [keys | asdict(finding) for finding in named(trace).findings])


def part_of(path: Path, process: str | None) -> dict[str, str]:
    """Return the argument `part` of `EventInput.read` for a process, {} if `process` is None.

    Raise TraceRejected if the file has no such process.
    """
    if process is None:
        return {}
    names = parts(path) if (parts := events_input(path).parts) else []
    if process in names:
        return {"part": process}
    alternatives = f"it has {', '.join(names[:_SHOWN])}" if names else "it holds one trace: leave --process out"
    raise TraceRejected(path_text(path), None, f"the file has no process {process} to choose: {alternatives}")


def load_trace(
    con: duckdb.DuckDBPyConnection,
    path: str | Path,
    on_bytes: Callable[[int], Any] | None = None,
    folder: Path | None = None,
    lean: bool = False,
    process: str | None = None,
) -> ReadTrace:
    """Read one file into `events`, `traces` and `findings` of `con`, without a lake. Raise TraceRejected, or OSError.

    `process`: name of a trace, for a file of several traces (`EventInput.parts`). With a `folder`, `events` is a view of a
    Parquet file in it, which must exist as long as `con`. Otherwise `events` is a table. `lean`: omit the content
    that no model reads (see `load_events`).
    """
    with tempfile.TemporaryDirectory() as scratch:
        events_folder = folder or Path(scratch)
        part = part_of(Path(path), process)
        trace = events_input(Path(path)).read(Path(path), events_folder, on_bytes=on_bytes, lean=lean, **part)
        assert isinstance(trace, ReadTrace)  # not a KnownTrace, because no ids were passed
        part = f"SELECT * FROM read_parquet({quoted(events_folder / f'{trace.trace_id}.parquet')})"
        con.execute(f"CREATE OR REPLACE {'VIEW' if folder else 'TABLE'} events AS {part}")
    catalog = load_catalog()
    for table in _TABLES:
        create_staged(con, catalog, table)
    origin = describe_origin(Path(path), trace.metadata, None, process)
    insert_trace(con, trace, "", origin, origin["group_id"])  # a single trace is a capture, named after its group
    for table in _TABLES:
        con.execute(f"CREATE OR REPLACE TABLE {table} AS {catalog.models[table].sql}")
    return trace
