"""Removal of one trace from all tables of a DuckLake in one transaction."""

from __future__ import annotations

import duckdb

from pipelines.lake.names import CAPTURE_MARK, MARK, REJECTS, mark_of
from pipelines.models.sqltext import quoted
from pipelines.runs.forget import Forgotten, NoSuchTrace
from pipelines.runs.store.ducklake.attach import LAKE, attach, told
from pipelines.runs.store.ducklake.batch_files import all_or_nothing
from pipelines.runs.store.ducklake.locks import COMMIT, locked
from pipelines.runs.store.ducklake.schema import FAILURES, KEYS_TABLE, lake_columns
from pipelines.runs.store.ducklake.store import TRIES, DuckLakeStore
from pipelines.runs.store.interface import StoreError


def forget(store: DuckLakeStore, beginning: str, for_good: bool = False) -> Forgotten:
    """Remove the one trace whose id starts with `beginning`. Its content may be ingested again, unless `for_good`.

    `compact` deletes its files a day later. Captures that contained the trace are not changed: `has_captures` returns
    whether there are any to recompute. Raises NoSuchTrace, StoreError.
    """
    with store.writer() as con, locked(con, store.parsed, COMMIT), told(store.parsed):
        tables = [table for table in lake_columns(con) if mark_of(table) == MARK and table != REJECTS]
        matches = _find(con, beginning) if MARK in tables else []
        if len(matches) != 1 or not beginning:
            several = f"{len(matches)} trace ids start with {beginning!r}: {', '.join(t for t, *_ in matches[:5])}; give more of the id"
            raise NoSuchTrace(several if matches else f"no trace id in {store.address} starts with {beginning!r}")
        trace_id, batch, path = matches[0]
        condition, n_rows = f"trace_id = {quoted(trace_id)}", 0

        def remove() -> bool:
            nonlocal n_rows
            n_rows = 0
            for table in tables:
                (n,) = con.execute(f"DELETE FROM {LAKE}.{table} WHERE {condition}").fetchall()[0]
                n_rows += 0 if table == MARK else n
            con.execute(f"DELETE FROM {FAILURES} WHERE {condition}")
            if not for_good:
                con.execute(f"DELETE FROM {KEYS_TABLE} WHERE mark = {quoted(MARK)} AND key = {quoted(trace_id)}")
            return True

        if not any(all_or_nothing(con, remove) for _ in range(TRIES)):
            raise StoreError(f"{store.address}: other writers changed the same tables {TRIES} times; try again")
    return Forgotten(trace_id, batch, path, for_good, n_rows)


def has_captures(store: DuckLakeStore) -> bool:
    """Return whether tables of captures were ever computed."""
    with attach(store.parsed, read_only=True) as con:
        return CAPTURE_MARK in lake_columns(con)


def _find(con: duckdb.DuckDBPyConnection, id_prefix: str) -> list[tuple[str, str, str | None]]:
    query = f"SELECT trace_id, batch_id, path FROM {LAKE}.{MARK} WHERE starts_with(trace_id, {quoted(id_prefix)}) ORDER BY 1"
    return con.execute(query).fetchall()
