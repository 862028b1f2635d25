"""The tables of a DuckLake: bookkeeping, and data tables, which are created from units' files and widened later."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb

from pipelines.lake.names import KEYS
from pipelines.lake.version import paths_in, read_again
from pipelines.models.sqltext import parquet_rows
from pipelines.runs.store.ducklake.attach import LAKE
from pipelines.runs.store.interface import StoreError

FORMAT = 2
"""The version of the bookkeeping below and of column names. Other versions of tracelake may write another format."""

OWN = "tracelake"
KEYS_TABLE = f"{LAKE}.{OWN}.keys"  # every key that was ever committed, including keys of removed traces
FAILURES = f"{LAKE}.{OWN}.failures"  # model failures, as in model_failures
_FORMAT_TABLE = f"{LAKE}.{OWN}.format"
_INLINED = 100_000  # bookkeeping rows in the catalog until `compact`, so that lookups open no file
_WIDER = {
    ("INTEGER", "BIGINT"), ("SMALLINT", "INTEGER"), ("SMALLINT", "BIGINT"), ("TINYINT", "SMALLINT"),
    ("TINYINT", "INTEGER"), ("TINYINT", "BIGINT"), ("UTINYINT", "USMALLINT"), ("USMALLINT", "UINTEGER"),
    ("UINTEGER", "UBIGINT"), ("FLOAT", "DOUBLE"),
}  # fmt: skip
"""The changes of a column's type that DuckLake supports without rewriting files."""

Columns = dict[str, str]
"""Column names and DuckDB types."""


def has_own(con: duckdb.DuckDBPyConnection) -> bool:
    """Return whether anything was ever committed."""
    query = f"SELECT count(*) FROM duckdb_columns() WHERE database_name = '{LAKE}' AND schema_name = '{OWN}'"
    return con.execute(query).fetchall()[0][0] > 0


def create_own(con: duckdb.DuckDBPyConnection) -> None:
    """Create the bookkeeping of a new store.

    Call it under the lock, but outside a transaction, because the options need the schema.
    """
    if has_own(con):
        return
    con.execute(f"CREATE SCHEMA IF NOT EXISTS {LAKE}.{OWN}")
    con.execute(f"CALL {LAKE}.set_option('data_inlining_row_limit', {_INLINED}, schema => '{OWN}')")
    con.begin()
    create_bookkeeping(con)
    con.commit()


def create_bookkeeping(con: duckdb.DuckDBPyConnection) -> None:
    """Create the bookkeeping schema and its tables in the database attached as `lake`."""
    con.execute(f"CREATE SCHEMA IF NOT EXISTS {LAKE}.{OWN}")
    con.execute(f"CREATE TABLE {KEYS_TABLE} (mark VARCHAR, key VARCHAR, batch_id VARCHAR, is_partial BOOLEAN)")
    con.execute(
        f"CREATE TABLE {FAILURES} (trace_id VARCHAR, table_name VARCHAR, model VARCHAR, reason VARCHAR, "
        "outcome VARCHAR, batch_id VARCHAR)"
    )
    con.execute(f"CREATE TABLE {_FORMAT_TABLE} AS SELECT {FORMAT} AS version")


def check_format(con: duckdb.DuckDBPyConnection, address: str) -> None:
    """Raise StoreError for a store of another format.

    For an older format, the message contains the command that ingests the store's files again.
    """
    if has_own(con):
        version = con.execute(f"SELECT max(version) FROM {_FORMAT_TABLE}").fetchall()[0][0]
        if version > FORMAT:
            raise StoreError(
                f"{address} was written by a newer tracelake (format {version}; this one knows {FORMAT}): "
                "pip install -U 'tracelake[lake]'"
            )
        if version < FORMAT:
            columns_by_table = lake_columns(con)
            files = sorted(
                {path for mark in KEYS if mark in columns_by_table for path in paths_in(con, f"{LAKE}.{mark}")}
            )
            why = f"{address} was written by tracelake 0.1, whose tables have other columns"
            raise StoreError(f"{why}; {read_again(files, 'ADDRESS')}")


def lake_columns(con: duckdb.DuckDBPyConnection) -> dict[str, Columns]:
    """Return the columns of every data table (traces, captures, runs and others)."""
    rows = con.execute(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() "
        f"WHERE database_name = '{LAKE}' AND schema_name = 'main' ORDER BY table_name, column_index"
    ).fetchall()
    columns_by_table: dict[str, Columns] = {}
    for table, column, kind in rows:
        columns_by_table.setdefault(table, {})[column] = kind
    return columns_by_table


def columns_of_file(con: duckdb.DuckDBPyConnection, path: Path) -> Columns:
    """Return the columns of a Parquet file."""
    rows = con.execute(f"DESCRIBE SELECT * FROM {parquet_rows(path)}").fetchall()
    return {name: kind for name, kind, *_ in rows}


def casts(there: Mapping[str, str], own: Mapping[str, str]) -> Columns:
    """Return the columns of a file that must be converted because their types do not fit, with the table's types."""
    return {
        name: there[name]
        for name, kind in own.items()
        if name in there and there[name] != kind and (there[name], kind) not in _WIDER
    }


def add_columns(con: duckdb.DuckDBPyConnection, there: Mapping[str, Columns], own: Mapping[str, Columns]) -> None:
    """Create tables and columns that the store does not have, and widen types. New columns are NULL in older rows."""
    for table, columns in own.items():
        if table not in there:
            listed = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
            con.execute(f"CREATE TABLE {LAKE}.{table} ({listed})")
            continue
        for name, kind in columns.items():
            if name not in there[table]:
                con.execute(f'ALTER TABLE {LAKE}.{table} ADD COLUMN "{name}" {kind}')
            elif (there[table][name], kind) in _WIDER:
                con.execute(f'ALTER TABLE {LAKE}.{table} ALTER COLUMN "{name}" SET DATA TYPE {kind}')
