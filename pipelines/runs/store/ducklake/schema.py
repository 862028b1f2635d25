"""Tables of a DuckLake: those of ours, made from a unit's files and widened by newer versions, and its own bookkeeping."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import duckdb

from pipelines.lake.names import KEYS
from pipelines.lake.version import paths_in, read_again
from pipelines.models.sqltext import quoted
from pipelines.runs.store.ducklake.attach import LAKE
from pipelines.runs.store.interface import StoreError

FORMAT = 2
"""Of the bookkeeping below and the names of columns. A store with another one was written by another version."""

OWN = "tracelake"
KEYS_TABLE = f"{LAKE}.{OWN}.keys"  # every key that was ever committed, also of traces that were removed since
FAILURES = f"{LAKE}.{OWN}.failures"  # where models failed, as in model_failures
_FORMAT_TABLE = f"{LAKE}.{OWN}.format"
_INLINED = 100_000  # rows of the bookkeeping that stay in the catalog until `compact`: lookups open no file for them
_WIDER = {
    ("INTEGER", "BIGINT"), ("SMALLINT", "INTEGER"), ("SMALLINT", "BIGINT"), ("TINYINT", "SMALLINT"),
    ("TINYINT", "INTEGER"), ("TINYINT", "BIGINT"), ("UTINYINT", "USMALLINT"), ("USMALLINT", "UINTEGER"),
    ("UINTEGER", "UBIGINT"), ("FLOAT", "DOUBLE"),
}  # fmt: skip
"""Changes of a column's type that DuckLake makes without rewriting files."""

Columns = dict[str, str]
"""Column names and DuckDB types."""


def has_own(con: duckdb.DuckDBPyConnection) -> bool:
    """Returns whether anything was ever committed."""
    query = f"SELECT count(*) FROM duckdb_columns() WHERE database_name = '{LAKE}' AND schema_name = '{OWN}'"
    return con.execute(query).fetchall()[0][0] > 0


def create_own(con: duckdb.DuckDBPyConnection) -> None:
    """Creates the bookkeeping of a new store. Called under the lock, outside of a transaction: options need the schema."""
    if has_own(con):
        return
    con.execute(f"CREATE SCHEMA IF NOT EXISTS {LAKE}.{OWN}")
    con.execute(f"CALL {LAKE}.set_option('data_inlining_row_limit', {_INLINED}, schema => '{OWN}')")
    con.begin()
    create_bookkeeping(con)
    con.commit()


def create_bookkeeping(con: duckdb.DuckDBPyConnection) -> None:
    """Creates the schema and the tables of ours, in what is attached as `lake`."""
    con.execute(f"CREATE SCHEMA IF NOT EXISTS {LAKE}.{OWN}")
    con.execute(f"CREATE TABLE {KEYS_TABLE} (mark VARCHAR, key VARCHAR, batch_id VARCHAR, is_partial BOOLEAN)")
    con.execute(
        f"CREATE TABLE {FAILURES} (trace_id VARCHAR, table_name VARCHAR, model VARCHAR, reason VARCHAR, "
        "outcome VARCHAR, batch_id VARCHAR)"
    )
    con.execute(f"CREATE TABLE {_FORMAT_TABLE} AS SELECT {FORMAT} AS version")


def check_format(con: duckdb.DuckDBPyConnection, address: str) -> None:
    """Raises StoreError for a store of another version; of an older one it says how to read its files again."""
    if has_own(con):
        found = con.execute(f"SELECT max(version) FROM {_FORMAT_TABLE}").fetchall()[0][0]
        if found > FORMAT:
            raise StoreError(
                f"{address} was written by a newer tracelake (format {found}; this one knows {FORMAT}): "
                "pip install -U 'tracelake[lake]'"
            )
        if found < FORMAT:
            there = lake_columns(con)
            files = sorted({path for mark in KEYS if mark in there for path in paths_in(con, f"{LAKE}.{mark}")})
            why = f"{address} was written by tracelake 0.1, whose tables have other columns"
            raise StoreError(f"{why}; {read_again(files, 'ADDRESS')}")


def lake_columns(con: duckdb.DuckDBPyConnection) -> dict[str, Columns]:
    """Returns the columns of every table of traces, captures, runs and so on."""
    rows = con.execute(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() "
        f"WHERE database_name = '{LAKE}' AND schema_name = 'main' ORDER BY table_name, column_index"
    ).fetchall()
    found: dict[str, Columns] = {}
    for table, column, kind in rows:
        found.setdefault(table, {})[column] = kind
    return found


def columns_of_file(con: duckdb.DuckDBPyConnection, path: Path) -> Columns:
    """Returns the columns of a Parquet file."""
    rows = con.execute(f"DESCRIBE SELECT * FROM read_parquet({quoted(path)}, hive_partitioning = false)").fetchall()
    return {name: kind for name, kind, *_ in rows}


def casts(there: Mapping[str, str], own: Mapping[str, str]) -> Columns:
    """Returns the columns of a file that must be converted, with the table's type: the file's would not fit in it."""
    return {
        name: there[name]
        for name, kind in own.items()
        if name in there and there[name] != kind and (there[name], kind) not in _WIDER
    }


def add_columns(con: duckdb.DuckDBPyConnection, there: Mapping[str, Columns], own: Mapping[str, Columns]) -> None:
    """Creates tables and columns that the store does not have yet, and widens types. Older rows read as NULL."""
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
