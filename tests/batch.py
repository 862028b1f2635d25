"""One connection with the traces of all tests of a file.

The models run once for all traces, when a test first needs them.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb

from pipelines.critical_path.answer.path_answer import PathAnswer
from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import answer_shown, connect_all, only

Trace = list[dict[str, Any]] | dict[str, Any] | Path
_BY_WINDOW = {"window_no": "critical_path_windows", "trace_profile_id": "_profiles"}
"""Columns that name a window or a trace, each with the table to which the column refers."""


class Batch:
    """Traces of a file's tests, with their windows, tables and the inputs of one model, computed once for all.

    `tables`: the tables that tests read. `steps_of`: the model whose input tables are also computed.
    """

    def __init__(self, *tables: str, steps_of: str = "") -> None:
        models = load_catalog().models
        asked = {*tables, *(models[steps_of].dependencies if steps_of else ())}
        columns = [{column.name for column in models[table].columns} for table in asked]
        named_by = {name for names in columns if "trace_id" not in names for name in _BY_WINDOW.keys() & names}
        self.tables = asked | {_BY_WINDOW[name] for name in named_by}
        self._steps, _, _ = models[steps_of].sql.partition("\n)\nSELECT") if steps_of else ("", "", "")
        self._traces: dict[Hashable, Trace] = {}
        self._annotations: dict[Hashable, tuple[str, ...]] = {}

    def add(self, name: Hashable, trace: Trace, *annotations: str) -> None:
        """Add a trace with one window per annotation.

        The annotation "" means the whole trace. Without annotations the only window is the whole trace.
        """
        assert name not in self._traces, name
        self._traces[name], self._annotations[name] = trace, annotations or ("",)

    def add_all(self, traces: Iterable[tuple[str, Trace]], *annotations: str) -> None:
        for name, trace in traces:
            self.add(name, trace, *annotations)

    def append(self, trace: Trace, *annotations: str) -> int:
        """Add a trace whose name is its number, and return the number."""
        number = len(self._traces)
        self.add(number, trace, *annotations)
        return number

    def show(self, name: Hashable, annotation: str | None = None) -> duckdb.DuckDBPyConnection:
        """Return the connection, whose tables show only this trace until the next call.

        `annotation` selects a window; the default is the first.
        """
        window = self.window(name, annotation)
        con, _ = self._computed
        only(con, window.trace_id, self._of_traces, window.window_id)
        return con

    def rows(self, name: Hashable, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query over the tables of one trace only."""
        return self.show(name).execute(query).fetchall()

    def window(self, name: Hashable, annotation: str | None = None) -> WindowRequest:
        _, windows = self._computed
        return windows[name, self._annotations[name][0] if annotation is None else annotation]

    def answer(self, name: Hashable, annotation: str | None = None) -> PathAnswer:
        """Return the answer about the window, from the tables ANSWERED."""
        return answer_shown(self.show(name, annotation))

    def show_step(self, step: str, name: Hashable, annotation: str | None = None) -> duckdb.DuckDBPyConnection:
        """Show a trace as `show` does, and create the step (CTE) `step` of `steps_of` as a table with its name."""
        con = self.show(name, annotation)
        con.execute(f"CREATE OR REPLACE TEMP TABLE {step} AS {self._steps}\n)\nFROM {step}")
        return con

    @cached_property
    def _of_traces(self) -> list[str]:
        models = load_catalog().models
        names = {"trace_id", *_BY_WINDOW}
        return [table for table in self.tables if names & {column.name for column in models[table].columns}]

    @cached_property
    def _computed(self) -> tuple[duckdb.DuckDBPyConnection, dict[tuple[Hashable, str], WindowRequest]]:
        con, trace_ids = connect_all(self._traces.values())
        windows = {
            (name, annotation): WindowRequest(trace_id, annotation or "full", annotation=annotation)
            for (name, annotations), trace_id in zip(self._annotations.items(), trace_ids, strict=True)
            for annotation in annotations
        }
        request_windows(con, list(windows.values()))
        run_models(con, load_catalog(), self.tables)
        return con, windows
