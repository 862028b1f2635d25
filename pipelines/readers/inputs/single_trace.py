"""Loading of one trace file into `events`, `traces`, `findings` of a connection, without a lake.

Commands that read one file import this module instead of the modules for a lake, which take long to import.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipelines.base.paths import path_text
from pipelines.lake.commit.staged_rows import insert_values
from pipelines.models.catalog import load_catalog
from pipelines.models.dry_run import create_staged
from pipelines.models.sqltext import parquet_rows, quoted
from pipelines.readers.drawings import named
from pipelines.readers.inputs.find import trace_file
from pipelines.readers.kineto import ReadRequest, ReadTrace
from pipelines.readers.kineto.limits import Limits
from pipelines.readers.origin import describe_origin
from pipelines.readers.secrets import masked, masked_text, may_hold_secrets

if TYPE_CHECKING:
    import duckdb

_TABLES = ("traces", "findings")
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
        "path": path_text(trace.path.absolute()),
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
    findings = [
        {**keys, **asdict(finding), "detail": masked_text(finding.detail, is_name=True)}
        for finding in named(trace).findings
    ]
    insert_values(con, "_staged_findings", findings)


def load_trace(
    con: duckdb.DuckDBPyConnection,
    path: str | Path,
    on_bytes: Callable[[int], Any] | None = None,
    folder: Path | None = None,
    lean: bool = False,
    process: str | None = None,
) -> ReadTrace:
    """Read one file into `events`, `traces` and `findings` of `con`, without a lake.

    Raise TraceRejected if the file cannot be ingested, and OSError if it cannot be read. `process`: name of a trace,
    for a file of several traces (`EventInput.parts`). With a `folder`, `events` is a view of a Parquet file in it,
    which must exist as long as `con`. Otherwise `events` is a table. `lean`: see ReadRequest.
    """
    file = trace_file(Path(path), process, Limits.from_environment())
    with tempfile.TemporaryDirectory() as scratch:
        request = ReadRequest(file.path, folder or Path(scratch), file.part, on_bytes=on_bytes, lean=lean)
        trace = file.kind.read(request)
        assert isinstance(trace, ReadTrace)  # not a KnownTrace, because no ids were passed
        part = parquet_rows(request.events_path(trace.trace_id))
        con.execute(f"CREATE OR REPLACE {'VIEW' if folder else 'TABLE'} events AS FROM {part}")
    catalog = load_catalog()
    for table in _TABLES:
        create_staged(con, catalog, table)
    origin = describe_origin(file.path, trace.metadata, None, file.part)
    insert_trace(con, trace, "", origin, origin["group_id"])  # a single trace is a capture, named after its group
    for table in _TABLES:
        con.execute(f"CREATE OR REPLACE TABLE {table} AS {catalog.models[table].sql}")
    return trace
