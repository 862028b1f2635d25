"""Copies of a DuckLake's ingested tables for a batch, a job or a trace. Other tables are computed from the copies."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb

from pipelines.base import database
from pipelines.base.close_names import near
from pipelines.lake.lake import Lake, Staged
from pipelines.lake.names import MARK, Batch
from pipelines.lake.read.one_trace import INGESTED, NoSuchTrace
from pipelines.models.catalog import Catalog
from pipelines.models.sqltext import quoted
from pipelines.runs.materialize.per_trace import SOURCES
from pipelines.runs.store.ducklake.attach import LAKE, store_errors
from pipelines.runs.store.ducklake.connection import DuckLake
from pipelines.runs.store.ducklake.reader_views import stored_rows
from pipelines.runs.store.ducklake.schema import lake_columns
from pipelines.runs.store.ducklake.user_tables import catalog_of, write_files

_SHOWN = 10


def copy_traces(store: DuckLake, lake: Lake, job: str | None = None) -> list[str | None]:
    """Copy the ingested tables of all traces, or of a job's traces, and the user's tables into an empty private lake.

    Return the jobs of the store's traces. Raise StoreError.
    """
    with store.reader() as con, store_errors(store.parsed):
        catalog = catalog_of(con)
        if MARK not in lake_columns(con):
            return []
        rows = con.execute(f"SELECT DISTINCT batch_id, job FROM {LAKE}.{MARK} ORDER BY ALL").fetchall()
        chosen = (
            "" if job is None else f" AND trace_id IN (SELECT trace_id FROM {LAKE}.{MARK} WHERE job = {quoted(job)})"
        )
        for name in dict.fromkeys(batch for batch, trace_job in rows if job in (None, trace_job)):
            copy_batch(con, catalog, lake, Batch(name), chosen)
        write_files(con, lake.root)
    return sorted({trace_job for _, trace_job in rows}, key=str)


def copy_batch(con: duckdb.DuckDBPyConnection, catalog: Catalog, lake: Lake, batch: Batch, chosen: str = "") -> bool:
    """Copy a batch's ingested tables into the private lake, and return whether they have rows.

    `chosen`: an SQL condition on the traces, beginning with AND.
    """
    folder, condition = lake.staging(batch), f"WHERE batch_id = {quoted(batch.batch_id)}{chosen}"
    con.begin()  # so that all queries read one state of the store
    columns_by_table = lake_columns(con)
    keys: Mapping[str, str | None] = dict(
        con.execute(f"SELECT trace_id, path FROM {LAKE}.{MARK} {condition}").fetchall()
    )
    files = {table: folder / f"{table}.parquet" for table in sorted(SOURCES, key=lambda name: name == MARK)}
    for table, path in files.items():
        rows = f"SELECT * FROM ({stored_rows(catalog, table, columns_by_table)}) {condition}"
        con.execute(f"COPY ({rows}) TO {quoted(path)} (FORMAT parquet, COMPRESSION zstd)")
    con.rollback()
    if keys:
        lake.put_all(batch, {table: Staged(path) for table, path in files.items()}, keys)
    return bool(keys)


def find_trace(con: duckdb.DuckDBPyConnection, beginning: str, address: str) -> str:
    """Return the id of the trace with this id prefix or, if no id matches, this file name.

    Raise NoSuchTrace if no trace or several traces match.
    """
    name = Path(beginning).name
    query = (
        f"SELECT trace_id, starts_with(trace_id, {quoted(beginning)}) FROM traces "
        f"WHERE starts_with(trace_id, {quoted(beginning)}) OR file = {quoted(name)} ORDER BY 1 LIMIT {_SHOWN + 1}"
    )
    matches = con.execute(query).fetchall()
    ids = [trace_id for trace_id, is_id in matches if is_id] or [trace_id for trace_id, _ in matches]
    if len(ids) == 1:
        return ids[0]
    if ids:
        raise NoSuchTrace(f"{beginning!r} names several traces in {address}", f"Trace ids: {', '.join(ids)}")
    traces = con.execute(f"SELECT trace_id, file FROM traces ORDER BY ingested_at DESC LIMIT {_SHOWN}").fetchall()
    listed = f"Trace ids: {', '.join(trace_id for trace_id, _ in traces)}; files: {', '.join(sorted({file for _, file in traces}))}"
    hints = [*near(name, [file for _, file in traces]), listed] if traces else ["It has no traces."]
    raise NoSuchTrace(f"{beginning!r} is not a file, and no trace in {address} is named so", " ".join(hints))


def copy_trace(store: duckdb.DuckDBPyConnection, con: duckdb.DuckDBPyConnection, beginning: str, address: str) -> str:
    """Create `traces`, `events` and `findings` of a trace in `con` and return its id. Raise NoSuchTrace.

    `store`: a connection with the tables of the DuckLake at `address`.
    """
    trace_id = find_trace(store, beginning, address)
    for table in INGESTED:
        query = f"SELECT * FROM {table} WHERE trace_id = {quoted(trace_id)}"
        con.from_arrow(database.arrow_result(store, query).to_arrow_reader()).create(table)
    return trace_id
