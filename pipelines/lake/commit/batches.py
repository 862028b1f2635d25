"""The commit of a connection's tables as one batch of the lake. The marker's file is committed last."""

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
    before_put: Callable[[], None],
    settled: Callable[[], Set[str]] | None = None,
    early: Mapping[str, Staged] | None = None,
) -> set[str]:
    """Commit the ingested tables of a scope from `con` together. Return the keys that are already in the lake.

    The rows of these keys are not committed. With `settled`, only the rows of the keys that it returns are not
    committed, and the other keys replace the existing rows. `before_put` is called under the lake's lock, after these
    rows are deleted from `con`. `early`: tables that are already files, because they are too large to be written under
    the lock. Their rows are visible only if the marker has the key. Raise duckdb.IOException or OSError if the lake
    cannot be written.
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
            mine = {name for (name,) in con.execute(f"SELECT {key} FROM {mark}").fetchall()}
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
    """Return the keys of a marker table, with the source path of each trace, or None for keys of other scopes."""
    path = "path" if mark == MARK else "NULL"
    return {str(name): where for name, where in con.execute(f"SELECT {key}, {path} FROM {mark}").fetchall()}


def _written(con: duckdb.DuckDBPyConnection, table: str, folder: Path) -> Staged:
    target = folder / f"{table}.parquet"
    con.execute(f"COPY {table} TO {quoted(target)} ({PARQUET})")
    return Staged(target, con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])
