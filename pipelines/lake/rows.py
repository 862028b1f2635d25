"""Tables that are filled from rows of Python: made empty from their models, then added to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import duckdb

from pipelines.models.catalog import Catalog
from pipelines.paths import UnusablePath
from pipelines.sqltext import first_line


def create_empty(con: duckdb.DuckDBPyConnection, catalog: Catalog, table: str) -> None:
    """Create a table that ingestion writes in `con`, with its columns and types and no rows."""
    model = catalog.models[table]
    nothing = ", ".join(f"NULL AS {column.name}" for column in model.columns)
    con.execute(f"CREATE OR REPLACE TEMP VIEW _staged_{table} AS SELECT {nothing} LIMIT 0")
    con.execute(f"CREATE OR REPLACE TABLE {table} AS {model.sql}")
    con.execute(f"DROP VIEW _staged_{table}")


def unforeseen(error: Exception) -> str:
    """The reason of a reject row for an error that nobody thought of: one file's fault stops no other file."""
    if isinstance(error, UnusablePath):
        return str(error)
    return f"cannot be ingested ({type(error).__name__}: {first_line(error)}); please report it"


@contextmanager
def all_or_nothing(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """A transaction: where something is raised in it, none of its rows stay."""
    con.begin()
    try:
        yield
    except BaseException:
        con.rollback()
        raise
    con.commit()


def insert_rows(con: duckdb.DuckDBPyConnection, table: str, rows: Sequence[dict[str, Any]]) -> None:
    """Add rows by the names of their columns; the table's types hold, and columns that are not given are NULL."""
    import pyarrow as pa

    if rows:
        con.register("given", pa.Table.from_pylist(list(rows)))
        con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM given")
        con.unregister("given")
