"""Tables that Python fills. They are created empty from their models, and rows are appended."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import duckdb

from pipelines.base.paths import UnusablePath
from pipelines.base.stopping import raise_if_stopped
from pipelines.lake.names import REJECTS, Batch
from pipelines.models.catalog import Catalog
from pipelines.models.sqlfile import STAGED
from pipelines.models.sqltext import first_line, row

_ROWS = 500


def staged_tables(catalog: Catalog, scope: str) -> list[str]:
    """Return the tables of a scope whose rows ingestion writes. The scope's other tables are derived from them."""
    return [table for table in catalog.ingested(scope) if catalog.models[table].staged]


def derive(con: duckdb.DuckDBPyConnection, catalog: Catalog, tables: Collection[str]) -> None:
    """Compute the tables that read only other tables of their scope, which `con` contains."""
    for table in (name for name in catalog.models if name in tables):
        if not catalog.models[table].staged:
            con.execute(f"CREATE OR REPLACE TABLE {table} AS {catalog.models[table].sql}")


def unforeseen(error: Exception) -> str:
    """Return the reason for a reject row after an unexpected error, so that one bad file does not stop other files.

    Raise KeyboardInterrupt if the process was asked to stop.
    """
    raise_if_stopped(error)
    if isinstance(error, UnusablePath):
        return str(error)
    return f"cannot be ingested ({type(error).__name__}: {first_line(error)}); please report it"


@contextmanager
def all_or_nothing(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Run the block in a transaction, which is rolled back if the block raises."""
    con.begin()
    try:
        yield
    except BaseException:
        con.rollback()
        raise
    con.commit()


def insert_values(con: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows as SQL literals, by column names. All rows have the same columns in the same order."""
    columns = ", ".join(f'"{name}"' for name in (rows[0] if rows else ()))
    for first in range(0, len(rows), _ROWS):
        values = (row(list(values_by_column.values())) for values_by_column in rows[first : first + _ROWS])
        con.execute(f"INSERT INTO {table} ({columns}) VALUES {', '.join(values)}")


def insert_reject(
    con: duckdb.DuckDBPyConnection, path: str, reason: str, batch: Batch, byte_offset: int | None = None
) -> None:
    """Insert a row about a file that was not ingested into `_staged_rejects`."""
    reject = {"path": path, "byte_offset": byte_offset, "reason": reason, "seen_at": datetime.now(UTC)}
    insert_values(con, f"{STAGED}{REJECTS}", [{**reject, "batch_id": batch.batch_id}])


def insert_rows(con: duckdb.DuckDBPyConnection, table: str, rows: Sequence[dict[str, Any]]) -> None:
    """Insert rows by column names. The table's types apply, and missing columns are NULL."""
    import pyarrow as pa

    if rows:
        con.register("given", pa.Table.from_pylist(list(rows)))
        con.execute(f"INSERT INTO {table} BY NAME SELECT * FROM given")
        con.unregister("given")
