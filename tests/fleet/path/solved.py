"""Graphs of hand-written traces of one rank. The models run once for the tests of several files."""

from __future__ import annotations

from functools import cache
from typing import Any

import duckdb

from pipelines.fleet.path.load_ranks import load_ranks
from pipelines.fleet.path.rank_graph import RankGraph
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import connect_all

MADE: dict[Any, list[dict[str, Any]]] = {}
"""The traces by name. Test files add theirs when they are imported."""


@cache
def solved() -> tuple[duckdb.DuckDBPyConnection, dict[Any, str]]:
    """Return a connection with the graphs and paths of all of MADE, and the ids of the traces."""
    con, trace_ids = connect_all(MADE.values())
    run_models(con, load_catalog(), ["critical_path", "critical_path_nodes", "critical_path_edges"])
    return con, dict(zip(MADE, trace_ids, strict=True))


def graphs_of(name: Any) -> list[RankGraph]:
    """Return the graph of one of MADE, as rank 0."""
    con, trace_ids = solved()
    return list(load_ranks(con, {0: trace_ids[name]}))
