"""The preparation of a batch's files for a DuckLake, with the types of its tables and with row counts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import duckdb

from pipelines.lake.lake import Staged
from pipelines.lake.names import REJECTS
from pipelines.models.sqltext import parquet_rows, quoted, row
from pipelines.runs.store.ducklake.attach import LAKE
from pipelines.runs.store.ducklake.schema import Columns
from pipelines.runs.store.interface import StoreError
from pipelines.runs.store.unit_batches import ONCE, UnitBatch, rewritten


def in_types(batch: UnitBatch, cast: dict[str, dict[str, str]], types: dict[str, Columns], folder: Path) -> UnitBatch:
    """Return the batch with the columns in `cast` converted to the store's types.

    Raise StoreError if a value cannot be converted.
    """
    files = dict(batch.files)
    for table, columns in cast.items():
        if table in files:
            changed = ", ".join(f'CAST("{name}" AS {kind}) AS "{name}"' for name, kind in columns.items())
            try:
                files[table] = rewritten(files[table], "true", folder / f"{table}.parquet", f"* REPLACE ({changed})")
            except duckdb.ConversionException as error:
                conflicts = ", ".join(
                    f"{name} is {types[table][name]}, {kind} in the store" for name, kind in columns.items()
                )
                raise StoreError(f"{table}: {conflicts}: {str(error).splitlines()[0]}") from None
    return replace(batch, files=files)


def new_files(
    con: duckdb.DuckDBPyConnection,
    batch: UnitBatch,
    known: set[tuple[str, str]],
    once: Mapping[str, set[str]],
    folder: Path,
) -> dict[str, Staged]:
    """Return the files with their row counts. From `rejects` and the tables of ONCE, drop rows that the store has.

    `known`: path and reason of the rejects in the store. `once`: for each table of ONCE, the values of its column in
    the store.
    """
    files = dict(batch.files)
    if REJECTS in files and known:
        listed = ", ".join(row([path, reason]) for path, reason in sorted(known))
        files[REJECTS] = rewritten(files[REJECTS], f"(path, reason) NOT IN ({listed})", folder / REJECTS)
    for table, values in once.items():
        if table in files and values:
            unknown = f"({ONCE[table]} IN {row(sorted(values))}) IS NOT TRUE"
            files[table] = rewritten(files[table], unknown, folder / "once" / f"{table}.parquet")
    with_counts = {table: counted(con, staged) for table, staged in files.items()}
    return {table: staged for table, staged in with_counts.items() if table != REJECTS or staged.n_rows}


def counted(con: duckdb.DuckDBPyConnection, staged: Staged) -> Staged:
    """Return a file with its row count. Count the rows if the row count is unknown."""
    if staged.n_rows is not None:
        return staged
    n_rows = con.execute(f"SELECT count(*) FROM {parquet_rows(staged.path)}").fetchall()[0][0]
    return replace(staged, n_rows=n_rows)


def add_files(con: duckdb.DuckDBPyConnection, put: Iterable[tuple[str, str]]) -> None:
    """Add uploaded files (table, path) to their tables."""
    for table, path in put:
        con.execute(
            f"CALL ducklake_add_data_files({quoted(LAKE)}, {quoted(table)}, {quoted(path)}, "
            "allow_missing => true, hive_partitioning => false)"
        )


def all_or_nothing(con: duckdb.DuckDBPyConnection, write: Callable[[], bool]) -> bool:
    """Call `write` in a transaction, and commit it if `write` returns True. Return whether it was committed.

    Return False, and roll back, if `write` returns False or if another writer changed the same tables concurrently.
    Raise the errors of `write`.
    """
    con.begin()
    try:
        if write():
            con.commit()
            return True
        con.rollback()
        return False
    except BaseException as error:
        with suppress(duckdb.TransactionException):  # a failed commit has ended the transaction
            con.rollback()
        if is_conflict(error):
            return False
        raise


def is_conflict(error: BaseException) -> bool:
    """Return whether a transaction failed because of a concurrent transaction, so that it can be retried."""
    return isinstance(error, duckdb.TransactionException) and bool(re.search("onflict|database is locked", str(error)))
