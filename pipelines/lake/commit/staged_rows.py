"""Tables that are filled with Python rows: created empty from their models, then added to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import duckdb

from pipelines.base.paths import UnusablePath
from pipelines.base.stopping import raise_if_stopped
from pipelines.lake.names import REJECTS, Batch
from pipelines.models.catalog import Catalog
from pipelines.models.run import create_rules
from pipelines.models.sqlfile import STAGED
from pipelines.models.sqltext import first_line, row

_ROWS = 500


def create_staged(con: duckdb.DuckDBPyConnection, catalog: Catalog, table: str) -> str:
    """Create `_staged_<table>` without rows, with the columns and types that the table's SQL reads from it."""
    return _create(con, STAGED + table, catalog.models[table].staged)


def _create(con: duckdb.DuckDBPyConnection, table: str, types: Mapping[str, str]) -> str:
    columns = ", ".join(f'"{name}" {kind}' for name, kind in types.items())
    con.execute(f"CREATE OR REPLACE TABLE {table} ({columns})")
    return table


def create_empty(con: duckdb.DuckDBPyConnection, catalog: Catalog, scope: str) -> None:
    """Create the tables of a scope that ingestion writes in `con`, with their columns and types and no rows."""
    for table in catalog.ingested(scope):
        model = catalog.models[table]
        given = create_given(con, catalog, [table])
        for rules in (catalog.models[name] for name in model.dependencies if name in catalog.rules):
            create_rules(con, rules)
        con.execute(f"CREATE OR REPLACE TABLE {table} AS {model.sql}")
        for name in given:
            con.execute(f"DROP TABLE {name}")


def create_given(con: duckdb.DuckDBPyConnection, catalog: Catalog, tables: Iterable[str]) -> list[str]:
    """Create the given tables, with their columns and types and no rows; returns the names."""
    created = {}
    for table in tables:
        for name in catalog.models[table].dependencies:
            if name == STAGED + table:
                created[name] = create_staged(con, catalog, table)
            elif name in catalog.given and name not in created and (columns := catalog.given[name].columns):
                created[name] = _create(con, name, {column: kind for column, kind, _ in columns})
    return list(created)


def staged_tables(catalog: Catalog, scope: str) -> list[str]:
    """Returns the tables of a scope whose rows are ingested; the others are derived from them."""
    return [table for table in catalog.ingested(scope) if catalog.models[table].staged]


def derive(con: duckdb.DuckDBPyConnection, catalog: Catalog, tables: Collection[str]) -> None:
    """Compute those of the tables of a scope that read nothing staged, but others of it, which `con` holds."""
    for table in (name for name in catalog.models if name in tables):
        if not catalog.models[table].staged:
            con.execute(f"CREATE OR REPLACE TABLE {table} AS {catalog.models[table].sql}")


def unforeseen(error: Exception) -> str:
    """Returns the reason of a reject row for an unexpected error: one file's fault must not stop other files."""
    raise_if_stopped(error)
    if isinstance(error, UnusablePath):
        return str(error)
    return f"cannot be ingested ({type(error).__name__}: {first_line(error)}); please report it"


@contextmanager
def all_or_nothing(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """A transaction: if something is raised in it, none of its rows stay."""
    con.begin()
    try:
        yield
    except BaseException:
        con.rollback()
        raise
    con.commit()


def insert_values(con: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Add rows as SQL literals, by column names, which all rows have in the same order."""
    columns = ", ".join(f'"{name}"' for name in (rows[0] if rows else ()))
    for first in range(0, len(rows), _ROWS):
        values = (row(list(one.values())) for one in rows[first : first + _ROWS])
        con.execute(f"INSERT INTO {table} ({columns}) VALUES {', '.join(values)}")


def insert_reject(
    con: duckdb.DuckDBPyConnection, path: str, reason: str, batch: Batch, byte_offset: int | None = None
) -> None:
    """Add a file that was not ingested to `_staged_rejects`."""
    told = {"path": path, "byte_offset": byte_offset, "reason": reason, "seen_at": datetime.now(UTC)}
    insert_values(con, f"{STAGED}{REJECTS}", [{**told, "batch_id": batch.batch_id}])


def insert_rows(con: duckdb.DuckDBPyConnection, table: str, rows: Sequence[dict[str, Any]]) -> None:
    """Add rows by column names; the table's types apply, and missing columns are NULL."""
    import pyarrow as pa

    if rows:
        con.register("given", pa.Table.from_pylist(list(rows)))
        con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM given")
        con.unregister("given")
