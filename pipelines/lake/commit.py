"""Tables of a connection → a batch of the lake, the mark's file last."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence, Set
from pathlib import Path

import duckdb

from pipelines.lake.layout import KEYS, Batch
from pipelines.lake.store import Lake, Staged
from pipelines.sqltext import quoted, row

_PARQUET = "FORMAT parquet, COMPRESSION zstd"


def commit_tables(
    con: duckdb.DuckDBPyConnection,
    lake: Lake,
    batch: Batch,
    tables: Sequence[str],
    before_put: Callable[[], None] = lambda: None,
    settled: Callable[[], Set[str]] | None = None,
) -> set[str]:
    """Put the tables of `con` (the first is their mark) in place together; returns the keys that are already in the lake.

    Their rows are left out; with `settled`, only those whose keys it returns, and the others replace what is there.
    `before_put` is called under the lake's lock, when these rows are gone. Raises duckdb.IOException or OSError if the
    lake cannot be written.
    """
    mark, *others = tables
    key = KEYS[mark]
    folder = lake.staging(batch)
    try:
        with lake.commit_lock():
            mine = {found for (found,) in con.execute(f"SELECT {key} FROM {mark}").fetchall()}
            beaten = mine & set(settled() if settled else lake.known(mark))
            for table in tables:
                con.execute(f"DELETE FROM {table} WHERE {key} IN {row(['', *beaten])}")
            before_put()
            if mine - beaten:
                staged = {table: _written(con, table, folder) for table in (*others, mark)}
                lake.put_all(batch, staged, dict.fromkeys(map(str, mine - beaten)))
        return beaten
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _written(con: duckdb.DuckDBPyConnection, table: str, folder: Path) -> Staged:
    target = folder / f"{table}.parquet"
    con.execute(f"COPY {table} TO {quoted(target)} ({_PARQUET})")
    return Staged(target, con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0])
