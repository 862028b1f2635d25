"""A trace's window for tests of scenarios."""

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
"""Traces of several files' tests, by name: the models run once for all that are here when a test first looks at one."""
OF_WINDOW = (*window._GRAPH, "_profiles", "_refused_windows", "_stated_windows", "threads")
"""Tables of which `load` reads the rows of one window."""


@contextmanager
def opened(
    trace: list[dict] | dict | Path, profile: str = "default"
) -> Iterator[tuple[duckdb.DuckDBPyConnection, Window]]:
    """The connection and the window of a whole trace."""
    con, trace_id = connect(trace)
    with con:
        yield con, load(con, load_catalog(), WindowRequest(trace_id, profile=profile))


def scaled(**factors: float) -> Scenario:
    """A scenario of classes and short names."""
    return Scenario(tuple(factors.items()))


def loaded(traces: Iterable[list[dict] | Path]) -> Iterator[Window]:
    """The windows of whole traces, for which the models run once; only tables of the trace's events answer while one is used."""
    con, trace_ids = computed(traces)
    with con:
        for trace_id in trace_ids:
            yield window_in(con, trace_id)


def computed(traces: Iterable[list[dict] | dict | Path]) -> tuple[duckdb.DuckDBPyConnection, list[str]]:
    """Many traces with the tables of their windows, and their ids."""
    con, trace_ids = connect_all(traces)
    run_models(con, load_catalog(), [*OF_WINDOW, "category_sides"])
    return con, trace_ids


@cache
def made() -> tuple[duckdb.DuckDBPyConnection, dict[str, str]]:
    """All of MADE with the tables of their windows, and their ids."""
    con, trace_ids = computed(MADE.values())
    return con, dict(zip(MADE, trace_ids, strict=True))


def window_of(name: str) -> Window:
    """Of one of MADE, in a connection of its own."""
    con, trace_ids = made()
    return window_in(con.cursor(), trace_ids[name])


def window_in(con: duckdb.DuckDBPyConnection, trace_id: str) -> Window:
    """The window of one of the traces whose tables are in `con`."""
    only(con, trace_id, OF_WINDOW, "full")
    return load(con, all_made(), WindowRequest(trace_id))


@cache
def all_made() -> Catalog:
    """A catalog of whose models none is run, because the tables of all of them are there."""
    catalog = load_catalog()
    return replace(catalog, models={name: replace(model, kind="lake") for name, model in catalog.models.items()})
