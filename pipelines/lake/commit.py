"""Writes tables of a connection as a batch of the lake, the mark's file last."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Set
from pathlib import Path

import duckdb

from pipelines.lake.layout import KEYS, Batch, tables_of
from pipelines.lake.rows import derive
from pipelines.lake.store import Lake, Staged
from pipelines.models.catalog import load_catalog
from pipelines.sqltext import quoted, row

_PARQUET = "FORMAT parquet, COMPRESSION zstd"


def commit_tables(
    con: duckdb.DuckDBPyConnection,
    lake: Lake,
    batch: Batch,
    scope: str,
    before_put: Callable[[], None] = lambda: None,
    settled: Callable[[], Set[str]] | None = None,
) -> set[str]:
    """Put the tables of a scope in place together, from `con`; returns the keys that are already in the lake.

    Rows with those keys are left out; with `settled`, only the rows whose keys it returns are left out, and the others
    replace the existing ones. `before_put` is called under the lake's lock, when these rows are removed. Raises
    duckdb.IOException or OSError if the lake cannot be written.
    """
    tables = tables_of(scope)
    mark, *others = tables
    key = KEYS[mark]
    folder = lake.staging(batch)
    try:
        with lake.commit_lock():
            mine = {found for (found,) in con.execute(f"SELECT {key} FROM {mark}").fetchall()}
            already_committed = mine & set(settled() if settled else lake.known(mark))
            for table in tables:
                con.execute(f"DELETE FROM {table} WHERE {key} IN {row(['', *already_committed])}")
            before_put()
            derive(con, load_catalog(), scope)
            if mine - already_committed:
                staged = {table: _written(con, table, folder) for table in (*others, mark)}
                lake.put_all(batch, staged, dict.fromkeys(map(str, mine - already_committed)))
        return already_committed
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _written(con: duckdb.DuckDBPyConnection, table: str, folder: Path) -> Staged:
    target = folder / f"{table}.parquet"
    con.execute(f"COPY {table} TO {quoted(target)} ({_PARQUET})")
    return Staged(target, con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])
