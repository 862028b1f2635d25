"""Copy of a trace's ingested tables from a DuckLake into a private connection, in which its other tables are computed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.base import database
from pipelines.base.close_names import near
from pipelines.lake.read.one_trace import INGESTED, NoSuchTrace
from pipelines.models.sqltext import quoted

if TYPE_CHECKING:
    import duckdb

_SHOWN = 10


def find_in(store: duckdb.DuckDBPyConnection, beginning: str, address: str) -> str:
    """Return the id of the trace with this id prefix or, if no id matches, this file name.

    Raise NoSuchTrace if no trace or several traces match.
    """
    name = Path(beginning).name
    query = (
        f"SELECT trace_id, starts_with(trace_id, {quoted(beginning)}) FROM traces "
        f"WHERE starts_with(trace_id, {quoted(beginning)}) OR file = {quoted(name)} ORDER BY 1 LIMIT {_SHOWN + 1}"
    )
    matches = store.execute(query).fetchall()
    ids = [trace_id for trace_id, is_id in matches if is_id] or [trace_id for trace_id, _ in matches]
    if len(ids) == 1:
        return ids[0]
    if ids:
        raise NoSuchTrace(f"{beginning!r} names several traces in {address}", f"Trace ids: {', '.join(ids)}")
    traces = store.execute(f"SELECT trace_id, file FROM traces ORDER BY ingested_at DESC LIMIT {_SHOWN}").fetchall()
    listed = f"Trace ids: {', '.join(trace_id for trace_id, _ in traces)}; files: {', '.join(sorted({file for _, file in traces}))}"
    hints = [*near(name, [file for _, file in traces]), listed] if traces else ["It has no traces."]
    raise NoSuchTrace(f"{beginning!r} is not a file, and no trace in {address} is named so", " ".join(hints))


def copy_trace(con: duckdb.DuckDBPyConnection, address: str, beginning: str) -> str:
    """Create `traces`, `events` and `findings` of a trace in `con` and return its id. Raise NoSuchTrace or StoreError."""
    from pipelines.runs.store import open_store

    opened = open_store(address)
    with opened.connect(locked=False) as store:
        trace_id = find_in(store, beginning, opened.address)
        for table in INGESTED:
            query = f"SELECT * FROM {table} WHERE trace_id = {quoted(trace_id)}"
            rows = database.arrow_result(store, query).to_arrow_reader()
            con.from_arrow(rows).create(table)
    return trace_id
