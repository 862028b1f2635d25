"""Sides of `tracelake compare`, each read and modelled once per module, however many of its tests compare it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from pipelines.faces.cli.fleet.compared_sides import open_side
from pipelines.fleet.trends.comparison import Trace


class SidesOnce:
    """A stand-in for `open_side`, which opens each side once and then copies the side's tables.

    The files must not change. Notes about a side's gaps are made only when the side is first opened.
    """

    def __init__(self) -> None:
        self._opened: dict[tuple[Any, ...], tuple[duckdb.DuckDBPyConnection, list[Trace]]] = {}

    def __call__(self, con: Any, side: str, lake: Path, ranks: int | str, process: str | None) -> list[Trace]:
        asked = (side, lake, ranks, process)
        if asked not in self._opened:
            own = duckdb.connect()
            self._opened[asked] = own, open_side(own, *asked)
        own, traces = self._opened[asked]
        for (table,) in own.execute("SELECT table_name FROM duckdb_tables()").fetchall():
            con.register("batch", own.execute(f"FROM {table}").to_arrow_table())
            con.execute(f"CREATE TABLE IF NOT EXISTS {table} AS FROM batch LIMIT 0")
            con.execute(f"INSERT INTO {table} FROM batch WHERE trace_id NOT IN (SELECT trace_id FROM {table})")
            con.unregister("batch")
        return traces
