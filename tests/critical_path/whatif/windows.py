"""Windows of traces for tests of scenarios."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from pathlib import Path

import duckdb

from pipelines.critical_path.graph.windows import WindowRequest
from pipelines.critical_path.whatif import window
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.window import Window, load
from pipelines.models.catalog import Catalog, load_catalog
from pipelines.models.run import run_models
from tests.harness import connect, connect_all, only

MADE: dict[str, list[dict] | dict | Path] = {}
"""Traces of the tests of several files, by name. The models run once for all of them when a test first uses one."""
OF_WINDOW = (*window._GRAPH, "_profiles", "_refused_windows", "_stated_windows", "threads")
"""Tables from which `load` reads the rows of one window."""


@contextmanager
def opened(
    trace: list[dict] | dict | Path, profile: str = "default"
) -> Iterator[tuple[duckdb.DuckDBPyConnection, Window]]:
    """Yield the connection and the window of a whole trace."""
    con, trace_id = connect(trace)
    with con:
        yield con, load(con, load_catalog(), WindowRequest(trace_id, profile=profile))


def scaled(**factors: float) -> Scenario:
    """Return a scenario of classes and short names."""
    return Scenario(tuple(factors.items()))


def loaded(traces: Iterable[list[dict] | Path]) -> Iterator[Window]:
    """Yield the windows of whole traces; the models run once.

    While a window is in use, the tables show only the events of its trace.
    """
    con, trace_ids = computed(traces)
    with con:
        for trace_id in trace_ids:
            yield window_in(con, trace_id)


def computed(traces: Iterable[list[dict] | dict | Path]) -> tuple[duckdb.DuckDBPyConnection, list[str]]:
    """Return a connection with the traces and the tables of their windows, and the trace ids."""
    con, trace_ids = connect_all(traces)
    run_models(con, load_catalog(), [*OF_WINDOW, "category_sides"])
    return con, trace_ids


@cache
def made() -> tuple[duckdb.DuckDBPyConnection, dict[str, str]]:
    """Return a connection with the traces of MADE and the tables of their windows, and the trace ids by name."""
    con, trace_ids = computed(MADE.values())
    return con, dict(zip(MADE, trace_ids, strict=True))


def window_of(name: str) -> Window:
    """Return the window of a trace of MADE, in a separate cursor."""
    con, trace_ids = made()
    return window_in(con.cursor(), trace_ids[name])


def window_in(con: duckdb.DuckDBPyConnection, trace_id: str) -> Window:
    """Return the window of a trace whose tables are in `con`."""
    only(con, trace_id, OF_WINDOW, "full")
    return load(con, all_made(), WindowRequest(trace_id))


@cache
def all_made() -> Catalog:
    """Return a catalog in which no model needs to run, because all tables exist."""
    catalog = load_catalog()
    return replace(catalog, models={name: replace(model, kind="lake") for name, model in catalog.models.items()})
