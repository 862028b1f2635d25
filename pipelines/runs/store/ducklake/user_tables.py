"""The user's tables in a DuckLake, with the rows of prices.csv, roles.csv and op_formulas.csv."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, fields
from pathlib import Path

import duckdb

from pipelines.fleet.captures.grouping import Role
from pipelines.fleet.captures.roles import ROLES, read_roles
from pipelines.lake.publish.prices import COLUMNS, read_prices
from pipelines.lake.publish.prices import PRICES as PRICES_FILE
from pipelines.lake.publish.user_formulas import COLUMNS as FORMULA_COLUMNS
from pipelines.lake.publish.user_formulas import OP_FORMULAS, Formula, catalog_with, read_formulas, write_formulas
from pipelines.models.catalog import Catalog
from pipelines.models.sqltext import quoted, row
from pipelines.runs.store.ducklake.attach import LAKE
from pipelines.runs.store.ducklake.batch_files import all_or_nothing
from pipelines.runs.store.ducklake.schema import OWN

PRICES = f"{LAKE}.{OWN}.prices"
_ROLES = f"{LAKE}.{OWN}.roles"
_FORMULAS = f"{LAKE}.{OWN}.op_formulas"
_ROLE_COLUMNS = tuple(field.name for field in fields(Role))
_CREATE = {
    PRICES: ", ".join(f'"{name}" VARCHAR' for name in COLUMNS),
    _ROLES: ", ".join(f'"{name}" {"BIGINT" if name == "rank" else "VARCHAR"}' for name in _ROLE_COLUMNS),
    _FORMULAS: ", ".join(("place BIGINT", *(f"{name} VARCHAR" for name in FORMULA_COLUMNS))),
}

Rows = Sequence[tuple]


def read_files(prices: Path | None, roles: Path | None, formulas: Path | None) -> dict[str, Rows]:
    """Return the rows of these files by table. Raise CatalogError or RolesError with file and line, or OSError."""
    for path in (prices, roles, formulas):
        if path:
            path.stat()  # raises if a file is missing, which would otherwise be read as empty
    rows_by_table: dict[str, Rows] = {}
    if prices:
        rows_by_table[PRICES] = read_prices(prices)
    if roles:
        rows_by_table[_ROLES] = [astuple(role) for role in read_roles(roles)]
    if formulas:
        rows_by_table[_FORMULAS] = [(index, *formula) for index, formula in enumerate(read_formulas(formulas))]
    return rows_by_table


def create(con: duckdb.DuckDBPyConnection) -> None:
    """Create the tables that do not exist yet. Call it under the lock."""
    for table, columns in _CREATE.items():
        con.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns})")


def put(con: duckdb.DuckDBPyConnection, rows_by_table: dict[str, Rows]) -> bool:
    """Replace all rows of these tables in one transaction. Return False if another writer interfered."""

    def write() -> bool:
        for table, rows in rows_by_table.items():
            con.execute(f"DELETE FROM {table}")
            if rows:
                con.execute(f"INSERT INTO {table} VALUES {', '.join(map(row, rows))}")
        return True

    return all_or_nothing(con, write)


def has_prices(con: duckdb.DuckDBPyConnection) -> bool:
    """Return whether the store has a table of prices."""
    return _has(con, PRICES)


def roles_of(con: duckdb.DuckDBPyConnection) -> list[Role]:
    """Return the stored roles of ranks, or [] without stored roles."""
    if not _has(con, _ROLES):
        return []
    columns = ", ".join(f'"{name}"' for name in _ROLE_COLUMNS)
    return [Role(*values) for values in con.execute(f"SELECT {columns} FROM {_ROLES} ORDER BY ALL").fetchall()]


def formulas_of(con: duckdb.DuckDBPyConnection) -> list[Formula]:
    """Return the stored operator formulas, or [] without stored formulas."""
    if not _has(con, _FORMULAS):
        return []
    return con.execute(f"SELECT {', '.join(FORMULA_COLUMNS)} FROM {_FORMULAS} ORDER BY place").fetchall()


def write_files(con: duckdb.DuckDBPyConnection, folder: Path) -> None:
    """Write the stored rows to the files prices.csv, roles.csv and op_formulas.csv of a folder lake."""
    folder.mkdir(parents=True, exist_ok=True)
    for table, name in ((PRICES, PRICES_FILE), (_ROLES, ROLES)):
        if _has(con, table):
            con.execute(f"COPY (FROM {table}) TO {quoted(folder / name)} (FORMAT csv, HEADER)")
    write_formulas(folder / OP_FORMULAS, formulas_of(con))


def catalog_of(con: duckdb.DuckDBPyConnection) -> Catalog:
    """Return the models for this store, with the store's formulas."""
    return catalog_with(formulas_of(con))


def _has(con: duckdb.DuckDBPyConnection, table: str) -> bool:
    name = table.rpartition(".")[2]
    query = (
        f"SELECT count(*) FROM duckdb_tables() WHERE database_name = '{LAKE}' AND schema_name = '{OWN}' "
        f"AND table_name = {quoted(name)}"
    )
    return con.execute(query).fetchall()[0][0] > 0
