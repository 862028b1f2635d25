"""Alternatives to a window's critical path as rows, with the kernels and operators that differ."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np

from pipelines.critical_path.graph.chains import Ints
from pipelines.critical_path.longest.alternatives import Alternative, alternatives
from pipelines.critical_path.longest.slack import AttributedGraph, load_attributed
from pipelines.models.sqltext import quoted


def alternative_rows(con: duckdb.DuckDBPyConnection, trace_id: str, window_id: str, k: int) -> list[dict[str, Any]]:
    """Return the k longest alternatives, longest first. Times are microseconds.

    `entered` are the events (event_id, name, duration_us) that are only on the alternative, `left` the events that are
    only on the critical path. An event's duration is its time on that path, and the largest comes first. Reads
    `_edges`, `critical_path_windows` and `events`. Raises GraphHasCycle.
    """
    attributed = load_attributed(con, trace_id, window_id)
    paths = alternatives(attributed, k)
    critical = attributed.graph.path()
    length = int(attributed.graph.weight[critical].sum())
    names = _names(con, trace_id, paths)
    return [
        {
            "length_us": path.length_ns / 1000,
            "shorter_by_us": (length - path.length_ns) / 1000,
            "entered": _events(attributed, path.edges, path.entered, names),
            "left": _events(attributed, critical, path.left, names),
        }
        for path in paths
    ]


def _names(con: duckdb.DuckDBPyConnection, trace_id: str, paths: list[Alternative]) -> dict[int, str | None]:
    # DuckDB reads the array by the name of this variable.
    asked = {"event_id": np.unique(np.concatenate([np.arange(0), *(e for a in paths for e in (a.entered, a.left))]))}
    query = f"SELECT e.event_id, e.name FROM events AS e SEMI JOIN asked USING (event_id) WHERE trace_id = {quoted(trace_id)}"
    names = dict(con.execute(query).fetchall())
    del asked
    return names


def _events(
    attributed: AttributedGraph, edges: Ints, event_ids: Ints, names: dict[int, str | None]
) -> list[dict[str, Any]]:
    event, weight = attributed.event[edges], attributed.graph.weight[edges]
    time = np.zeros(int(attributed.event.max(initial=0)) + 1, dtype=np.int64)
    np.add.at(time, event[event >= 0], weight[event >= 0])
    ordered = event_ids[np.argsort(-time[event_ids], kind="stable")].tolist()
    return [{"event_id": e, "name": names.get(e), "duration_us": int(time[e]) / 1000} for e in ordered]
