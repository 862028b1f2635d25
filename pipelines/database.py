"""Connections to DuckDB that print nothing: answers go to stdout, where DuckDB would draw a progress bar after 2 s."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb


def connect(
    path: str | Path = ":memory:", *, read_only: bool = False, config: dict[str, Any] | None = None
) -> duckdb.DuckDBPyConnection:
    """Returns `duckdb.connect`, quiet. Raises what it raises."""
    return _quiet(duckdb.connect(str(path), read_only=read_only, config=config or {}))


def cursor(con: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyConnection:
    """Returns another connection to the database of `con`, or to the process's own, with its own settings. Also quiet."""
    return _quiet(con.cursor() if con is not None else duckdb.cursor())


def rows_of(con: duckdb.DuckDBPyConnection, query: str, values: dict[str, Any] | None = None) -> list[dict[str, Any]]:
    """Returns the rows of a query by column name; `values`: those of its parameters."""
    found = con.execute(query, values or {})
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def _quiet(con: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    con.execute("SET enable_progress_bar = false")
    return con
