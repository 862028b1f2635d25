"""The upkeep of a DuckLake: forgetting a trace, expiring old traces, merging small files, and deleting leftovers."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import duckdb

from pipelines.lake.names import CAPTURE_MARK, COUNTER_MARK, MARK, REJECTS, Batch, mark_of, time_in_id
from pipelines.models.sqltext import quoted, row
from pipelines.runs.forget import Forgotten, NoSuchTrace
from pipelines.runs.store.ducklake.address import Address
from pipelines.runs.store.ducklake.attach import LAKE, store_errors
from pipelines.runs.store.ducklake.batch_files import all_or_nothing, is_conflict
from pipelines.runs.store.ducklake.connection import TRIES, DuckLake
from pipelines.runs.store.ducklake.locks import COMMIT, UPKEEP, locked
from pipelines.runs.store.ducklake.schema import FAILURES, KEYS_TABLE, lake_columns
from pipelines.runs.store.interface import Compacted, Expired, StoreError

# A commit writes `<table>/<batch>-<run>.parquet`. DuckLake itself writes `<table>/ducklake-<UUID>.parquet` and
# `…-delete.parquet`.
_OF_A_STORE = re.compile(
    r"/(main|tracelake)/\w+/(\d{8}T\d{12}(-[0-9a-f]{8}){2}|ducklake-[0-9a-f-]{36}(-delete)?)\.parquet$"
)
# The share of removed rows above which a file is rewritten. By default, DuckLake keeps a file until 95 % of its rows
# are removed. A forgotten trace would then stay readable in the file as long as the other traces of its unit. Files
# without removed rows are not rewritten.
_ANY_REMOVED = 1e-9
_FILE_BYTES = 512 << 20  # DuckLake's default limit for the size of merged files


def expire(
    con: duckdb.DuckDBPyConnection,
    address: Address,
    keep_days: int,
    grace: timedelta,
    dry_run: bool,
    now: datetime | None,
) -> list[Expired]:
    """Remove the rows of traces ingested more than `keep_days` days ago, and return the traces by batch.

    Their keys stay, so that the traces are not ingested again. Raise ValueError for less than one day or a negative
    grace.
    """
    if keep_days < 1 or grace < timedelta(0):
        raise ValueError(f"keep at least 1 day and a grace of at least 0, not {keep_days} days and {grace}")
    before = time_in_id((now or datetime.now(UTC)) - timedelta(days=keep_days))
    columns_by_table = lake_columns(con)
    due = _due(con, before) if MARK in columns_by_table else []
    if dry_run:
        return [Expired(name, Batch(name).day, "due", traces) for name, traces in due]
    with locked(con, address, UPKEEP), store_errors(address):
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
    with locked(con, address, COMMIT):  # without the lock, a concurrent commit that adds a column would fail
        con.begin()
        try:
            for table in sorted({*tables, REJECTS} & lake_columns(con).keys()):
                con.execute(f"DELETE FROM {LAKE}.{table} WHERE batch_id < {quoted(before)}")
            if tables:  # without tables, the store is empty and has no bookkeeping
                of_traces = f"batch_id < {quoted(before)} AND table_name IN {row(tables)}"
                con.execute(f"DELETE FROM {FAILURES} WHERE {of_traces}")
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
    with locked(con, address, UPKEEP), store_errors(address):
        before = _files(con)
        _retried(con, "ducklake_flush_inlined_data")
        _retried(con, "ducklake_rewrite_data_files", f", delete_threshold => {_ANY_REMOVED}")
        _retried(con, "ducklake_merge_adjacent_files")
        _drop_old_files(con, grace)
        after = _files(con)
    return [
        Compacted(table, files, after[table][0]) for table, (files, _) in before.items() if after[table][0] != files
    ]


def _retried(con: duckdb.DuckDBPyConnection, name: str, options: str = "") -> None:
    """Call a function of DuckLake, and retry it if a writer changed the same tables concurrently."""
    for attempt in range(1, TRIES + 1):
        try:
            con.execute(f"CALL {name}({quoted(LAKE)}{options})")
            return
        except duckdb.TransactionException as error:
            if attempt == TRIES or not is_conflict(error):
                raise


def _files(con: duckdb.DuckDBPyConnection) -> dict[str, tuple[int, int]]:
    """Return the number of files of each data table, and their size in bytes."""
    rows = con.execute(
        f"SELECT table_name, file_count, file_size_bytes FROM ducklake_table_info({quoted(LAKE)})"
    ).fetchall()
    columns_by_table = lake_columns(con)
    return {table: (files, size) for table, files, size in rows if table in columns_by_table}


def _drop_old_files(con: duckdb.DuckDBPyConnection, grace: timedelta) -> None:
    """Expire snapshots older than `grace`, and delete the files that only these snapshots needed."""
    then = f"{datetime.now(UTC) - grace:%Y-%m-%d %H:%M:%S.%f}+00"
    con.execute(f"CALL ducklake_expire_snapshots({quoted(LAKE)}, older_than => TIMESTAMPTZ {quoted(then)})")
    con.execute(f"CALL ducklake_cleanup_old_files({quoted(LAKE)}, older_than => TIMESTAMPTZ {quoted(then)})")


def sweep(con: duckdb.DuckDBPyConnection, older_than: timedelta) -> list[Path]:
    """Delete files at the data path that no snapshot needs and that are older than `older_than`. Return their paths.

    DuckLake would also delete a Parquet file that is not from a store. If there is such a file, raise StoreError and
    delete nothing.
    """
    then = f"{datetime.now(UTC) - older_than:%Y-%m-%d %H:%M:%S.%f}+00"
    call = f"CALL ducklake_delete_orphaned_files({quoted(LAKE)}, older_than => TIMESTAMPTZ {quoted(then)}{{}})"
    due = [name for (name, *_) in con.execute(call.format(", dry_run => true")).fetchall()]
    if foreign := [name for name in due if not _OF_A_STORE.search(name)]:
        n_more = len(foreign) - 1
        more = f" and {n_more} more file{'s' * (n_more > 1)}" if n_more else ""
        raise StoreError(
            f"{foreign[0]}{more}: not a store's, but among its files, where DuckLake deletes every Parquet file that its "
            "catalog does not name",
            "Keep the data of a store in a separate folder or prefix. Nothing was deleted.",
        )
    return [Path(name) for (name, *_) in con.execute(call.format("")).fetchall()]


def forget(store: DuckLake, beginning: str, for_good: bool = False) -> Forgotten:
    """Remove the one trace whose id starts with `beginning`. Its content may be ingested again, unless `for_good`.

    The next `compact` rewrites the files that have its rows. A `compact` a day later deletes the old files. Captures
    that contained the trace are not changed. `has_captures` returns whether there are captures to recompute. Raise
    NoSuchTrace or StoreError.
    """
    with store.writer() as con, locked(con, store.parsed, COMMIT), store_errors(store.parsed):
        # The set of hardware counters that came with a trace has the trace's id.
        marks = (MARK, COUNTER_MARK)
        tables = [table for table in lake_columns(con) if mark_of(table) in marks and table != REJECTS]
        matches = _matching_traces(con, beginning) if MARK in tables else []
        if len(matches) != 1 or not beginning:
            several = f"{len(matches)} trace ids start with {beginning!r}: {', '.join(t for t, *_ in matches[:5])}; give more of the id"
            none = f"no trace id in {store.address} starts with {beginning!r}"
            raise NoSuchTrace(several if matches else none, store.address)
        trace_id, batch, path = matches[0]
        condition, n_rows = f"trace_id = {quoted(trace_id)}", 0

        def remove() -> bool:
            nonlocal n_rows
            n_rows = 0
            for table in tables:
                (n,) = con.execute(f"DELETE FROM {LAKE}.{table} WHERE {condition}").fetchall()[0]
                n_rows += 0 if table in marks else n
            con.execute(f"DELETE FROM {FAILURES} WHERE {condition}")
            if not for_good:
                con.execute(f"DELETE FROM {KEYS_TABLE} WHERE mark IN {row(marks)} AND key = {quoted(trace_id)}")
            return True

        if not any(all_or_nothing(con, remove) for _ in range(TRIES)):
            raise store.conflict()
    return Forgotten(trace_id, batch, path, for_good, n_rows)


def has_captures(store: DuckLake) -> bool:
    """Return whether tables of captures were ever computed."""
    with store.reader() as con:
        return CAPTURE_MARK in lake_columns(con)


def _matching_traces(con: duckdb.DuckDBPyConnection, id_prefix: str) -> list[tuple[str, str, str | None]]:
    query = f"SELECT trace_id, batch_id, path FROM {LAKE}.{MARK} WHERE starts_with(trace_id, {quoted(id_prefix)}) ORDER BY 1"
    return con.execute(query).fetchall()
