"""A batch's files on their way into a DuckLake: in the types that its tables have, with their row counts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import duckdb

from pipelines.lake.lake import Staged
from pipelines.lake.names import REJECTS
from pipelines.models.sqltext import quoted, row
from pipelines.runs.store.ducklake.attach import LAKE
from pipelines.runs.store.ducklake.schema import Columns
from pipelines.runs.store.interface import StoreError
from pipelines.runs.store.unit_batches import UnitBatch, rewritten


def in_types(batch: UnitBatch, cast: dict[str, dict[str, str]], types: dict[str, Columns], folder: Path) -> UnitBatch:
    """Returns the batch with those columns that the store has in another type converted to that."""
    files = dict(batch.files)
    for table, columns in cast.items():
        if table in files:
            changed = ", ".join(f'CAST("{name}" AS {kind}) AS "{name}"' for name, kind in columns.items())
            try:
                files[table] = rewritten(files[table], "true", folder / f"{table}.parquet", f"* REPLACE ({changed})")
            except duckdb.ConversionException as error:
                own = ", ".join(
                    f"{name} is {types[table][name]}, {kind} in the store" for name, kind in columns.items()
                )
                raise StoreError(f"{table}: {own}: {str(error).splitlines()[0]}") from None
    return replace(batch, files=files)


def new_files(
    con: duckdb.DuckDBPyConnection, batch: UnitBatch, known: set[tuple[str, str]], folder: Path
) -> dict[str, Staged]:
    """Returns the files with their row counts, of `rejects` only what the store does not have."""
    files = dict(batch.files)
    if REJECTS in files and known:
        listed = ", ".join(row([path, reason]) for path, reason in sorted(known))
        files[REJECTS] = rewritten(files[REJECTS], f"(path, reason) NOT IN ({listed})", folder / REJECTS)
    with_counts = {table: counted(con, staged) for table, staged in files.items()}
    return {table: staged for table, staged in with_counts.items() if table != REJECTS or staged.n_rows}


def counted(con: duckdb.DuckDBPyConnection, staged: Staged) -> Staged:
    """Returns a file with its row count."""
    if staged.n_rows is not None:
        return staged
    n_rows = con.execute(f"SELECT count(*) FROM read_parquet({quoted(staged.path)})").fetchall()[0][0]
    return replace(staged, n_rows=n_rows)


def add_files(con: duckdb.DuckDBPyConnection, put: Iterable[tuple[str, str]]) -> None:
    """Makes uploaded files (table, file) part of their tables."""
    for table, path in put:
        con.execute(
            f"CALL ducklake_add_data_files({quoted(LAKE)}, {quoted(table)}, {quoted(path)}, "
            "allow_missing => true, hive_partitioning => false)"
        )


def all_or_nothing(con: duckdb.DuckDBPyConnection, write: Callable[[], bool]) -> bool:
    """Calls `write` in a transaction, which is committed if it returns True. Returns False if it does not, or if
    another writer changed the same tables meanwhile: nothing was written then. Raises what `write` raises.
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
    """Returns whether a transaction failed because of another one, so that it can be tried again."""
    return isinstance(error, duckdb.TransactionException) and bool(re.search("onflict|database is locked", str(error)))
