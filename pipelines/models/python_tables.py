"""Decorators that declare a table at the Python function that computes it, and nowhere else.

The catalog reads the declarations from the source files without importing them (sources.py), so their arguments are
literals, or names of literals in the same module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import duckdb

Function = TypeVar("Function", bound=Callable[..., object])
_TYPES: dict[str, dict[str, str]] = {}  # of the tables of modules that are imported


def python_model(
    name: str,
    *,
    layer: str,
    doc: str,
    columns: Sequence[tuple[str, str, str]],
    reads: Sequence[str],
    runs: Sequence[str] = (),
    checks: Sequence[str] = (),
) -> Callable[[Function], Function]:
    """The function creates this table in a connection, `function(con)`; the catalog calls it when the table is needed.

    `columns`: (name, SQL type, meaning). `reads`: tables that must exist before. `runs`: models that the function runs
    itself. `doc`: what a row is. A function with several of these decorators creates all their tables in one call.
    """
    return _declared(name, columns)


def given_table(
    name: str, *, layer: str, doc: str = "", columns: Sequence[tuple[str, str, str]] = (), reads: Sequence[str] = ()
) -> Callable[[Function], Function]:
    """The function creates this table; code that runs models calls it first.

    `columns` are omitted where they follow from the SQL that reads the table (`_staged_…`).
    """
    return _declared(name, columns)


def _declared(name: str, columns: Sequence[tuple[str, str, str]]) -> Callable[[Function], Function]:
    _TYPES[name] = {column: kind for column, kind, _ in columns}
    return lambda function: function


def types_of(name: str) -> dict[str, str]:
    """Returns the columns of a declared table and their SQL types; imports the module that declares it."""
    return _TYPES[name]


def create_table(con: duckdb.DuckDBPyConnection, name: str, how: str = "OR REPLACE TABLE") -> None:
    """Create a declared table in `con` without rows; `how`: what comes between CREATE and its name."""
    con.execute(f"CREATE {how} {name} ({', '.join(f'{column} {kind}' for column, kind in _TYPES[name].items())})")


def insert_columns(con: duckdb.DuckDBPyConnection, name: str, values: Mapping[str, Sequence[Any]]) -> None:
    """Add rows to a declared table, given as columns of equal length; missing columns are NULL."""
    import pyarrow as pa

    types = {"VARCHAR": pa.string(), "BIGINT": pa.int64(), "DOUBLE": pa.float64(), "BOOLEAN": pa.bool_()}
    n = max(map(len, values.values()), default=0)
    arrays = [pa.array(values.get(column, [None] * n), types[kind]) for column, kind in _TYPES[name].items()]
    con.register("_rows", pa.table(arrays, list(_TYPES[name])))
    con.execute(f"INSERT INTO {name} SELECT * FROM _rows")
    con.unregister("_rows")
