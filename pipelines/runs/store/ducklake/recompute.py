"""The recomputation of a DuckLake's trace tables by another version of their models.

A batch's inputs are copied into a private lake, where the models run. The new rows replace the old rows in one
transaction under the commit lock. If the process is killed, the old rows stay. A batch that is removed during the
computation stays removed.
"""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import duckdb

from pipelines.lake.lake import Lake, Staged
from pipelines.lake.names import MARK, Batch
from pipelines.lake.publish.user_formulas import OP_FORMULAS, catalog_with, write_formulas
from pipelines.models.sqltext import quoted, row
from pipelines.runs.materialize.per_trace import materialize
from pipelines.runs.store.ducklake import versions
from pipelines.runs.store.ducklake.attach import LAKE, store_errors
from pipelines.runs.store.ducklake.batch_files import add_files, all_or_nothing, counted, in_types
from pipelines.runs.store.ducklake.connection import TRIES, DuckLake
from pipelines.runs.store.ducklake.copied_traces import copy_batch
from pipelines.runs.store.ducklake.locks import COMMIT, locked
from pipelines.runs.store.ducklake.objects import put_files
from pipelines.runs.store.ducklake.schema import (
    FAILURES,
    Columns,
    add_columns,
    casts,
    columns_of_file,
    create_own,
    lake_columns,
)
from pipelines.runs.store.ducklake.user_tables import catalog_of, formulas_of
from pipelines.runs.store.interface import BYTES_PER_EVENT, StaleBatch
from pipelines.runs.store.unit_batches import UnitBatch, unit_batches


def stale_batches(store: DuckLake, tables: Sequence[str], force: bool = False) -> list[StaleBatch]:
    """Return the batches of traces in which one of these tables is missing or outdated, or all batches with `force`.

    Raise StoreError.
    """
    with store.writer() as con:
        if not tables or MARK not in lake_columns(con):
            return []
        con.begin()  # so that all queries read one state of the store
        catalog = catalog_of(con)
        versions_by_batch = versions.read(con)
        rows = con.execute(
            f"SELECT batch_id, sum(n_events)::BIGINT FROM {LAKE}.{MARK} GROUP BY batch_id ORDER BY batch_id"
        ).fetchall()
        con.rollback()
    return [
        StaleBatch(Batch(name), (n or 0) * BYTES_PER_EVENT)
        for name, n in rows
        if force or versions.stale_tables(catalog, tables, versions_by_batch.get(name, {}))
    ]


def recompute(store: DuckLake, lake: Lake, batch: Batch, tables: Sequence[str], force: bool = False) -> list[str]:
    """Recompute the outdated tables of a batch in an empty private lake, and replace them. Return the replaced tables.

    `force`: also compute up-to-date tables. If another process replaced the tables or removed the traces in the
    meantime, replace no tables. Raise StoreError and the errors of the models.
    """
    with store.writer() as con:
        formulas = formulas_of(con)
        catalog = catalog_with(formulas)
        versions_by_table = {} if force else versions.read(con, [batch.batch_id]).get(batch.batch_id, {})
        stale = versions.stale_tables(catalog, tables, versions_by_table)
        if not stale or not copy_batch(con, catalog, lake, batch):
            return []
    write_formulas(lake.root / OP_FORMULAS, formulas)
    materialize(lake, stale, [batch], and_publish=False)
    (computed,) = (unit_batch for unit_batch in unit_batches(lake) if unit_batch.batch == batch)
    mine = {table: staged for table, staged in computed.files.items() if table in stale}
    with tempfile.TemporaryDirectory(prefix="tracelake-unit-") as folder, store.writer() as con:
        return _replace(con, store, replace(computed, files=mine), Path(folder), force)


def _replace(con: duckdb.DuckDBPyConnection, store: DuckLake, batch: UnitBatch, folder: Path, force: bool) -> list[str]:
    for number in range(TRIES):
        done = _tried(con, store, batch, folder / str(number), force)
        if done is not None:
            return done
    raise store.conflict()


def _tried(
    con: duckdb.DuckDBPyConnection, store: DuckLake, batch: UnitBatch, folder: Path, force: bool
) -> list[str] | None:
    """Return the replaced tables, or None if another writer interfered. In this case, no rows are written."""
    types = {table: columns_of_file(con, staged.path) for table, staged in batch.files.items()}
    cast = _casts(con, types)
    files = {table: counted(con, staged) for table, staged in in_types(batch, cast, types, folder).files.items()}
    put = _upload(store, batch.batch, files)
    done: list[str] = []
    with locked(con, store.parsed, COMMIT), store_errors(store.parsed):
        create_own(con)
        versions.create(con)
        is_done = all_or_nothing(con, lambda: _casts(con, types) == cast and _swap(con, batch, files, put, done, force))
    return done if is_done else None


def _casts(con: duckdb.DuckDBPyConnection, types: Mapping[str, Columns]) -> dict[str, Columns]:
    columns_by_table = lake_columns(con)
    return {
        table: converted
        for table, file_columns in types.items()
        if (converted := casts(columns_by_table.get(table, {}), file_columns))
    }


def _upload(store: DuckLake, batch: Batch, files: Mapping[str, Staged]) -> dict[str, str]:
    """Upload the file of each table with rows, and return the file's path at the data path, by table."""
    run = secrets.token_hex(4)
    names = {table: f"main/{table}/{batch.batch_id}-{run}.parquet" for table in files if files[table].n_rows}
    put_files(store.parsed, {name: files[table].path for table, name in names.items()})
    return {table: f"{store.parsed.data}/{name}" for table, name in names.items()}


def _swap(
    con: duckdb.DuckDBPyConnection,
    batch: UnitBatch,
    files: Mapping[str, Staged],
    put: Mapping[str, str],
    done: list[str],
    force: bool,
) -> bool:
    """Replace the old rows by the new rows as part of a transaction, and add the replaced tables to `done`."""
    name = batch.batch.batch_id
    condition = f"batch_id = {quoted(name)}"
    versions_by_table = dict(versions.read(con, [name]).get(name, {}))
    trace_ids = {key for (key,) in con.execute(f"SELECT trace_id FROM {LAKE}.{MARK} WHERE {condition}").fetchall()}
    mine = [table for table, staged in files.items() if force or versions_by_table.get(table) != staged.version]
    done.clear()
    if trace_ids != batch.keys[MARK].keys() or not mine:
        return True  # another process removed the traces or computed the tables
    columns = lake_columns(con)
    for table in columns.keys() & set(mine):
        con.execute(f"DELETE FROM {LAKE}.{table} WHERE {condition}")
    add_columns(con, columns, {table: columns_of_file(con, files[table].path) for table in mine})
    add_files(con, ((table, put[table]) for table in mine if table in put))
    con.execute(f"DELETE FROM {FAILURES} WHERE {condition} AND table_name IN {row(mine)}")
    versions.note_failures(con, batch.batch, {table: files[table] for table in mine})
    versions.note_replaced(con, batch.batch, versions_by_table | {table: str(files[table].version) for table in mine})
    done += mine
    return True
