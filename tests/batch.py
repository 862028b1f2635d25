"""Traces of the tests of one file: the models run once over all of them."""

from __future__ import annotations

import re
from functools import cached_property
from pathlib import Path

import duckdb

from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import connect_all, only


class Batch:
    """A test module adds its traces; when the first test reads rows, the models of `tables` run."""

    def __init__(self, *tables: str) -> None:
        self._tables = tables
        self._traces: list[tuple[list[dict] | dict | Path, str]] = []

    def add(self, trace: list[dict] | dict | Path, annotation: str = "") -> int:
        """Return the number of the trace, for reading its rows. Its window is that of `annotation`, or the whole trace."""
        self._traces.append((trace, annotation))
        return len(self._traces) - 1

    def rows(self, number: int, query: str) -> list[tuple]:
        """The rows of a query that sees only this trace, in the tables of the batch."""
        con, _ = self.connection(number, *set(self._tables).intersection(re.findall(r"\w+", query)))
        return con.execute(query).fetchall()

    def connection(self, number: int, *tables: str) -> tuple[duckdb.DuckDBPyConnection, WindowRequest]:
        """The connection, in which these tables now show this trace only, and the window of the trace."""
        con, windows = self._computed
        only(con, windows[number].trace_id, tables)
        return con, windows[number]

    @cached_property
    def _computed(self) -> tuple[duckdb.DuckDBPyConnection, list[WindowRequest]]:
        con, trace_ids = connect_all(trace for trace, _ in self._traces)
        windows = [
            WindowRequest(trace_id, "w" if annotation else "full", annotation=annotation)
            for trace_id, (_, annotation) in zip(trace_ids, self._traces, strict=True)
        ]
        request_windows(con, windows)
        run_models(con, load_catalog(), self._tables)
        return con, windows
