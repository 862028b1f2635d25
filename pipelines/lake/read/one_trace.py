"""One trace of a lake in a connection, with its ingested tables and its up-to-date computed tables.

Only the files of its batch are read, so the number of batches in the lake does not matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.base.close_names import near
from pipelines.base.errors import TracelakeError
from pipelines.lake.names import DIGEST, MARK, REDUCED, Batch, table_file
from pipelines.models.sqltext import parquet_rows, quoted

if TYPE_CHECKING:
    import duckdb

    from pipelines.lake.lake import Lake

STORED = "memory.stored"
"""The schema of a trace's stored tables. If a table is requested with other switches, it is computed separately."""
DIGEST_ONLY = "only a digest of this trace is kept: its events were deleted (retention --keep digest)"
_SHOWN = 10
INGESTED = (MARK, "events", "findings")


class OnlyDigest(TracelakeError):
    """A failure of an answer that needs the events of a trace with only a digest."""

    hint = "`why`, `compare` and SQL over the tables of a digest answer from it; for anything else forget the trace, and ingest its file again."


class NoSuchTrace(TracelakeError, LookupError):
    """A name that matches no trace, or several traces (`has_several`). `hint` lists candidates."""

    def __init__(self, message: str, hint: str = "", *, has_several: bool = False) -> None:
        super().__init__(message, hint)
        self.has_several = has_several


def find_trace(lake: Lake, beginning: str) -> tuple[str, Batch]:
    """Return the id and the batch of the trace with this id prefix or file name. Raise NoSuchTrace."""
    traces = lake.known_traces()
    matching = sorted(trace for trace in traces if trace.startswith(beginning))
    problem = f"is a prefix of {len(matching)} trace ids"
    files = {} if matching or not traces else _files(lake)
    if not matching:
        matching = sorted(trace for trace, file in files.items() if file == Path(beginning).name)
        problem = f"is the name of {len(matching)} traces' files"
    if not matching:
        raise NoSuchTrace(*_unknown(lake, beginning, files))
    if len(matching) == 1:
        return matching[0], traces[matching[0]]
    message = f"{beginning!r} {problem} in the lake {lake.root}"
    raise NoSuchTrace(message, f"Trace ids: {', '.join(matching)}", has_several=True)


def _unknown(lake: Lake, name: str, files: dict[str, str]) -> tuple[str, str]:
    """Return the error message and the hint for a name that no trace has. `files`: file name by trace."""
    if not files:
        return f"{name!r} is not a file, and there is no lake with traces at {lake.root}", ""
    problem = f"{name!r} is not a file, and no trace id starts with it, nor is a trace's file named so, in the lake {lake.root}"
    names = sorted({*files.values()})
    listed = f"Trace ids: {', '.join(sorted(files)[:_SHOWN])}; files: {', '.join(names[:_SHOWN])}"
    return problem, " ".join([*near(Path(name).name, names), listed])


def _files(lake: Lake) -> dict[str, str]:
    """Return the file name of each trace."""
    with lake.connect([MARK]) as con:
        return dict(con.execute(f"SELECT trace_id, file FROM {MARK}").fetchall())


def show_trace(con: duckdb.DuckDBPyConnection, lake: Lake, trace_id: str, batch: Batch, tables: Iterable[str]) -> None:
    """Create views of one trace in `con`: `traces`, `events`, `findings`, and up-to-date `tables` in schema `stored`.

    A table is up to date if its file is undamaged, and the current version of its model computed it without failing on
    this trace. Tables of a digest are always up to date. If the trace has only a digest, reading `events` raises a
    duckdb.Error with DIGEST_ONLY. Raise BrokenFiles for damaged ingested tables.
    """
    from pipelines.lake.read.damage import BrokenFiles

    if broken := lake.broken(INGESTED, [batch]):
        raise BrokenFiles(broken)
    for table in INGESTED:
        if table == "events" and lake.is_digest(batch):
            con.execute(f"CREATE OR REPLACE VIEW {table} AS {_refusal(lake, table)}")
            continue
        con.execute(f"CREATE OR REPLACE VIEW {table} AS {_rows(lake, table, batch, trace_id)}")
    if current := _up_to_date(lake, batch, trace_id, list(tables)):
        con.execute(f"CREATE SCHEMA IF NOT EXISTS {STORED}")
    for table in current:
        con.execute(f"CREATE OR REPLACE VIEW {STORED}.{table} AS {_rows(lake, table, batch, trace_id)}")


def refuse_digest(con: duckdb.DuckDBPyConnection, capture_id: str) -> None:
    """Raise OnlyDigest if only a digest of the capture remains, according to the tables of a lake in `con`."""
    query = (
        f"SELECT 1 FROM findings JOIN capture_ranks USING (trace_id) WHERE check_name = {quoted(REDUCED)} "
        f"AND capture_id = {quoted(capture_id)} LIMIT 1"
    )
    if con.execute(query).fetchall():
        raise OnlyDigest(
            f"{capture_id}: only a digest of this capture is kept: its events were deleted (retention --keep digest)"
        )


def stored_windows(con: duckdb.DuckDBPyConnection, trace_id: str) -> list[str]:
    """Return the windows of a trace with only a digest (`full`, then its steps in order), or [] for other traces."""
    reduced = f"SELECT trace_id FROM findings WHERE check_name = {quoted(REDUCED)} AND trace_id = {quoted(trace_id)}"
    if "window_gpu_time" not in stored_tables(con):
        return []
    rows = con.execute(f"SELECT window_id FROM {STORED}.window_gpu_time WHERE trace_id IN ({reduced})").fetchall()
    return sorted((name for (name,) in rows), key=lambda name: int(name.partition("#")[2] or -1))


def stored_tables(con: duckdb.DuckDBPyConnection, schema: str = "stored") -> frozenset[str]:
    """Return the names of the views in a schema, by default the views that `show_trace` created."""
    query = f"SELECT view_name FROM duckdb_views() WHERE schema_name = {quoted(schema)}"
    return frozenset(name for (name,) in con.execute(query).fetchall())


def _refusal(lake: Lake, table: str) -> str:
    """Return a SELECT with a table's columns that raises an error when it is read."""
    from pipelines.lake.publish.contents import column_types
    from pipelines.lake.publish.empty_file import refusal

    return refusal(column_types(lake.catalog())[table], DIGEST_ONLY)


def _rows(lake: Lake, table: str, batch: Batch, trace_id: str) -> str:
    columns = "*" if table in INGESTED else "* EXCLUDE (batch_id)"
    rows = parquet_rows(table_file(lake.root, table, batch))
    return f"SELECT {columns} FROM {rows} WHERE trace_id = {quoted(trace_id)}"


def _up_to_date(lake: Lake, batch: Batch, trace_id: str, tables: list[str]) -> list[str]:
    from pipelines.lake.commit.batch_rows import LEFT_OUT
    from pipelines.lake.commit.manifest import shown  # imports sqlite3, which commands on a single file do not need

    if not tables:
        return []
    catalog, versions = lake.catalog(), lake.versions_of(batch, tables)
    log = shown(lake.root).get(batch.batch_id)
    failures = log.failures if log else {}
    without = {file.table for file in lake.broken(tables, [batch])}
    without |= {
        table
        for table, failed in failures.items()
        if any(failure.trace_id == trace_id and failure.outcome == LEFT_OUT for failure in failed)
    }
    return [
        table for table in tables if table not in without and versions.get(table) in (catalog.version(table), DIGEST)
    ]
