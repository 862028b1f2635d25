"""Upkeep of a DuckLake: remove old traces and their files, merge small files, delete files of killed writers."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb

from pipelines.lake.names import MARK, REJECTS, Batch, mark_of
from pipelines.models.sqltext import quoted
from pipelines.runs.store.ducklake.address import Address
from pipelines.runs.store.ducklake.attach import LAKE, told
from pipelines.runs.store.ducklake.batch_files import is_conflict
from pipelines.runs.store.ducklake.locks import COMMIT, UPKEEP, locked
from pipelines.runs.store.ducklake.schema import lake_columns
from pipelines.runs.store.interface import Compacted, Expired

_TRIES = 8
_FILE_BYTES = 512 << 20  # DuckLake's default: no merged file is larger


def expire(
    con: duckdb.DuckDBPyConnection,
    address: Address,
    keep_days: int,
    grace: timedelta,
    dry_run: bool,
    now: datetime | None,
) -> list[Expired]:
    """Remove the rows of traces ingested more than `keep_days` days ago, and return the traces by batch.

    Their keys stay, so that they are not ingested again. Raises ValueError for less than one day or a negative grace.
    """
    if keep_days < 1 or grace < timedelta(0):
        raise ValueError(f"keep at least 1 day and a grace of at least 0, not {keep_days} days and {grace}")
    before = f"{(now or datetime.now(UTC)) - timedelta(days=keep_days):%Y%m%dT%H%M%S%f}"
    columns_by_table = lake_columns(con)
    due = _due(con, before) if MARK in columns_by_table else []
    if dry_run:
        return [Expired(name, Batch(name).day, "due", traces) for name, traces in due]
    with locked(con, address, UPKEEP), told(address):
        if due:
            _delete(con, address, [table for table in columns_by_table if mark_of(table) == MARK], before)
        _drop_old_files(con, grace)
    return [Expired(name, Batch(name).day, "removed", traces) for name, traces in due]


def _due(con: duckdb.DuckDBPyConnection, before: str) -> list[tuple[str, tuple[str, ...]]]:
    rows = con.execute(
        f"SELECT batch_id, list(trace_id ORDER BY trace_id) FROM {LAKE}.{MARK} WHERE batch_id < {quoted(before)} "
        "GROUP BY batch_id ORDER BY batch_id"
    ).fetchall()
    return [(name, tuple(traces)) for name, traces in rows]


def _delete(con: duckdb.DuckDBPyConnection, address: Address, tables: list[str], before: str) -> None:
    with locked(con, address, COMMIT):  # otherwise a concurrent commit that adds a column would fail
        con.begin()
        try:
            for table in sorted({*tables, REJECTS} & lake_columns(con).keys()):
                con.execute(f"DELETE FROM {LAKE}.{table} WHERE batch_id < {quoted(before)}")
            con.commit()
        except BaseException:
            con.rollback()
            raise


def compact(con: duckdb.DuckDBPyConnection, address: Address, dry_run: bool, grace: timedelta) -> list[Compacted]:
    """Merge small files of every table, rewrite files with removed rows, and return the tables that change.

    Files that are no longer needed are deleted after `grace`, because a query may still read them.
    """
    if dry_run:
        return [
            Compacted(table, files, after)
            for table, (files, size) in _files(con).items()
            if (after := max(1, math.ceil(size / _FILE_BYTES))) < files
        ]
    with locked(con, address, UPKEEP), told(address):
        before = _files(con)
        _retried(con, "ducklake_flush_inlined_data")
        _retried(con, "ducklake_rewrite_data_files")
        _retried(con, "ducklake_merge_adjacent_files")
        _drop_old_files(con, grace)
        after = _files(con)
    return [
        Compacted(table, files, after[table][0]) for table, (files, _) in before.items() if after[table][0] != files
    ]


def _retried(con: duckdb.DuckDBPyConnection, name: str) -> None:
    """Call a function of DuckLake, and retry it if a writer changed the same tables concurrently."""
    for attempt in range(1, _TRIES + 1):
        try:
            con.execute(f"CALL {name}({quoted(LAKE)})")
            return
        except duckdb.TransactionException as error:
            if attempt == _TRIES or not is_conflict(error):
                raise


def _files(con: duckdb.DuckDBPyConnection) -> dict[str, tuple[int, int]]:
    """Return the number of files of each data table, and their size in bytes."""
    rows = con.execute(
        f"SELECT table_name, file_count, file_size_bytes FROM ducklake_table_info({quoted(LAKE)})"
    ).fetchall()
    columns_by_table = lake_columns(con)
    return {table: (files, size) for table, files, size in rows if table in columns_by_table}


def _drop_old_files(con: duckdb.DuckDBPyConnection, grace: timedelta) -> None:
    """Expire snapshots older than `grace`, and delete the files that only they needed."""
    then = f"{datetime.now(UTC) - grace:%Y-%m-%d %H:%M:%S.%f}+00"
    con.execute(f"CALL ducklake_expire_snapshots({quoted(LAKE)}, older_than => TIMESTAMPTZ {quoted(then)})")
    con.execute(f"CALL ducklake_cleanup_old_files({quoted(LAKE)}, older_than => TIMESTAMPTZ {quoted(then)})")


def sweep(con: duckdb.DuckDBPyConnection, older_than: timedelta) -> list[Path]:
    """Delete files at the data path that no snapshot needs and that are older than `older_than`. Return their paths."""
    then = f"{datetime.now(UTC) - older_than:%Y-%m-%d %H:%M:%S.%f}+00"
    rows = con.execute(
        f"CALL ducklake_delete_orphaned_files({quoted(LAKE)}, older_than => TIMESTAMPTZ {quoted(then)})"
    ).fetchall()
    return [Path(name) for (name, *_) in rows]
