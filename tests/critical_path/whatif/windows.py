"""A trace's window for tests of scenarios."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from pipelines.critical_path.graph.windows import WindowRequest
from pipelines.critical_path.whatif.scenario import Scenario
from pipelines.critical_path.whatif.window import Window, load
from pipelines.models.catalog import load_catalog
from tests.harness import connect


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
