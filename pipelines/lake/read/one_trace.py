"""One trace of a lake in a connection: what ingestion wrote of it, and those of its tables that are up to date.

Only the files of its batch are looked at, however many batches the lake has.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.base.close_names import near
from pipelines.base.errors import TracelakeError
from pipelines.lake.names import MARK, Batch, table_file
from pipelines.models.sqltext import quoted

if TYPE_CHECKING:
    import duckdb

    from pipelines.lake.lake import Lake

STORED = "memory.stored"
"""The schema of a trace's stored tables: a table that is asked for with other switches than theirs is computed beside them."""
_SHOWN = 10
INGESTED = (MARK, "events", "findings")


class NoSuchTrace(TracelakeError, LookupError):
    """No trace is named so, or several are; `hint` says what there is."""


def find_trace(lake: Lake, beginning: str) -> tuple[str, Batch]:
    """Returns the id of the trace whose id begins so, or whose file is named so, and its batch. Raises NoSuchTrace."""
    traces = lake.known_traces()
    matching = sorted(trace for trace in traces if trace.startswith(beginning))
    what = f"is a prefix of {len(matching)} trace ids"
    files = {} if matching or not traces else _files(lake)
    if not matching:
        matching = sorted(trace for trace, file in files.items() if file == Path(beginning).name)
        what = f"is the name of {len(matching)} traces' files"
    if not matching:
        raise NoSuchTrace(*_unknown(lake, beginning, files))
    if len(matching) == 1:
        return matching[0], traces[matching[0]]
    raise NoSuchTrace(f"{beginning!r} {what} in the lake {lake.root}", f"Trace ids: {', '.join(matching)}")


def _unknown(lake: Lake, name: str, files: dict[str, str]) -> tuple[str, str]:
    """Returns what to say of a name that no trace has, and what it may have meant. `files`: by trace."""
    if not files:
        return f"{name!r} is not a file, and there is no lake with traces at {lake.root}", ""
    what = f"{name!r} is not a file, and no trace id starts with it, nor is a trace's file named so, in the lake {lake.root}"
    names = sorted({*files.values()})
    listed = f"Trace ids: {', '.join(sorted(files)[:_SHOWN])}; files: {', '.join(names[:_SHOWN])}"
    return what, " ".join([*near(Path(name).name, names), listed])


def _files(lake: Lake) -> dict[str, str]:
    """Returns the file's name of each trace."""
    with lake.connect([MARK]) as con:
        return dict(con.execute(f"SELECT trace_id, file FROM {MARK}").fetchall())


def show_trace(
    con: duckdb.DuckDBPyConnection, lake: Lake, trace_id: str, batch: Batch, tables: Iterable[str] = ()
) -> None:
    """Create views `traces`, `events` and `findings` of one trace in `con`, and in schema `stored` those of its `tables`
    that are up to date.

    A table is if its file is whole and was computed by its model as it is now, which did not fail on this trace. Raises
    BrokenFiles for what ingestion wrote.
    """
    from pipelines.lake.read.damage import BrokenFiles

    if broken := lake.broken(INGESTED, [batch]):
        raise BrokenFiles(broken)
    for table in INGESTED:
        con.execute(f"CREATE OR REPLACE VIEW {table} AS {_rows(lake, table, batch, trace_id)}")
    if current := _up_to_date(lake, batch, trace_id, list(tables)):
        con.execute(f"CREATE SCHEMA IF NOT EXISTS {STORED}")
    for table in current:
        con.execute(f"CREATE OR REPLACE VIEW {STORED}.{table} AS {_rows(lake, table, batch, trace_id)}")


def stored_tables(con: duckdb.DuckDBPyConnection, schema: str = "stored") -> frozenset[str]:
    """Returns the names of the views that `show_trace` created in schema `stored`; or of all views in another schema."""
    query = f"SELECT view_name FROM duckdb_views() WHERE schema_name = {quoted(schema)}"
    return frozenset(name for (name,) in con.execute(query).fetchall())


def _rows(lake: Lake, table: str, batch: Batch, trace_id: str) -> str:
    columns = "*" if table in INGESTED else "* EXCLUDE (batch_id)"
    file = quoted(table_file(lake.root, table, batch))
    return f"SELECT {columns} FROM read_parquet({file}, hive_partitioning = false) WHERE trace_id = {quoted(trace_id)}"


def _up_to_date(lake: Lake, batch: Batch, trace_id: str, tables: list[str]) -> list[str]:
    from pipelines.lake.commit.batch_rows import LEFT_OUT
    from pipelines.lake.commit.manifest import shown  # sqlite3, which one file does not need

    if not tables:
        return []
    catalog, versions = lake.catalog(), lake.versions_of(batch, tables)
    log = shown(lake.root).get(batch.batch_id)
    failures = log.failures if log else {}
    without = {one.table for one in lake.broken(tables, [batch])}
    without |= {
        table
        for table, failed in failures.items()
        if any(one.trace_id == trace_id and one.outcome == LEFT_OUT for one in failed)
    }
    return [table for table in tables if table not in without and versions.get(table) == catalog.version(table)]
