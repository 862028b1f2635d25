"""A trace's window for tests of scenarios."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import duckdb

from pipelines.base import database
from pipelines.critical_path.graph.windows import WindowRequest
from pipelines.critical_path.whatif import window
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.window import Window, load
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import connect, connect_all


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


def loaded(traces: Iterable[list[dict]]) -> Iterator[Window]:
    """The windows of whole traces, for which the models run once; only tables of the trace's events answer while one is used."""
    con, trace_ids = connect_all(traces)
    with con:
        run_models(con, load_catalog(), [*window._GRAPH, "_profiles", "_stated_traces", "threads", "category_sides"])
        for trace_id in trace_ids:
            yield _loaded(con, trace_id)


def _loaded(con: duckdb.DuckDBPyConnection, trace_id: str) -> Window:
    of = f"t.trace_id = '{trace_id}'"
    edges, events = (
        database.arrow_result(con, query.format(of=of)).to_arrow_table() for query in (window._EDGES, window.EVENTS)
    )
    named = partial(window._named_stretches, con, load_catalog(), trace_id)
    return window._window(
        *(trace_id, "full", None, edges, events),
        profile="default",
        measured=False,
        states_waits=True,
        refused="",
        named_stretches=named,
    )
