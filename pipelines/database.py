"""Connections to DuckDB that print nothing: answers go to stdout, where DuckDB would draw a progress bar after 2 s."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import duckdb

THREADS = "TRACELAKE_THREADS"
"""Environment variable: how many CPUs this process may use; by default all. A cluster's workers set it."""
MEMORY = "TRACELAKE_MEMORY"
"""Environment variable: how many MiB each of DuckDB's databases may use; by default what DuckDB takes."""


def connect(
    path: str | Path = ":memory:", *, read_only: bool = False, config: dict[str, Any] | None = None
) -> duckdb.DuckDBPyConnection:
    """Returns `duckdb.connect`, quiet, within this process's share of the machine. Raises what it raises."""
    return _quiet(duckdb.connect(str(path), read_only=read_only, config={**_share(), **(config or {})}))


def at_most(gigabytes: float) -> str:
    """Returns a `memory_limit` of so much, or of this process's share if that is less."""
    usual = int(gigabytes * 1e9) >> 20
    return f"{min(usual, int(os.environ.get(MEMORY, usual)))}MiB"


def threads(usual: int) -> int:
    """Returns how many threads this process may use for work that usually takes so many."""
    return min(usual, int(os.environ.get(THREADS, usual)))


def _share() -> dict[str, Any]:
    told = {"threads": os.environ.get(THREADS), "memory_limit": os.environ.get(MEMORY)}
    shares = {name: int(value) for name, value in told.items() if value}
    return {name: f"{value}MiB" if name == "memory_limit" else value for name, value in shares.items()}


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
