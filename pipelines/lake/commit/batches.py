"""Writes tables of a connection as a batch of the lake, the mark's file last."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Set
from pathlib import Path

import duckdb

from pipelines.lake.commit.staged_rows import derive
from pipelines.lake.lake import Lake, Staged
from pipelines.lake.names import KEYS, MARK, Batch, tables_of
from pipelines.models.catalog import load_catalog
from pipelines.models.sqltext import quoted, row

PARQUET = "FORMAT parquet, COMPRESSION zstd"


def commit_tables(
    con: duckdb.DuckDBPyConnection,
    lake: Lake,
    batch: Batch,
    scope: str,
    before_put: Callable[[], None] = lambda: None,
    settled: Callable[[], Set[str]] | None = None,
    early: Mapping[str, Staged] | None = None,
) -> set[str]:
    """Put what ingestion wrote of a scope in place together, from `con`; returns the keys that are already in the lake.

    Their rows are left out; with `settled`, only those whose keys it returns, and the others replace what is there.
    `before_put` is called under the lake's lock, when these rows are gone. `early`: tables that are files already, too
    large to wait for with the lock; rows in them whose key is not in the mark are not shown. Raises duckdb.IOException or
    OSError if the lake cannot be written.
    """
    early = early or {}
    catalog, mark = load_catalog(), tables_of(scope)[0]
    tables = sorted(set(catalog.ingested(scope)) - early.keys(), key=lambda table: (table == mark, table))
    key = KEYS[mark]
    folder = lake.staging(batch)
    try:
        if early:
            lake.put_all(batch, early)
        with lake.commit_lock():
            mine = {found for (found,) in con.execute(f"SELECT {key} FROM {mark}").fetchall()}
            already_committed = mine & set(settled() if settled else lake.known(mark))
            for table in tables:
                con.execute(f"DELETE FROM {table} WHERE {key} IN {row(['', *already_committed])}")
            before_put()
            derive(con, catalog, tables)
            if mine - already_committed:
                lake.put_all(batch, {table: _written(con, table, folder) for table in tables}, _keys(con, mark, key))
        if early and mine == already_committed:
            lake.take_away(batch, early)
        return already_committed
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _keys(con: duckdb.DuckDBPyConnection, mark: str, key: str) -> dict[str, str | None]:
    """The keys of a mark, of traces with the paths that they came from."""
    path = "path" if mark == MARK else "NULL"
    return {str(found): where for found, where in con.execute(f"SELECT {key}, {path} FROM {mark}").fetchall()}


def _written(con: duckdb.DuckDBPyConnection, table: str, folder: Path) -> Staged:
    target = folder / f"{table}.parquet"
    con.execute(f"COPY {table} TO {quoted(target)} ({PARQUET})")
    return Staged(target, con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])
