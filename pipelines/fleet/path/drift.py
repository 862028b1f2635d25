"""The correction of drifting clocks, which run faster or slower than the other ranks' clocks."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import numpy as np

from pipelines.fleet.path.rank_graph import RankGraph
from pipelines.models.sqltext import quoted

Points = tuple[tuple[int, int], tuple[int, int]]
"""Two moments of a rank as (time on its own clock, time on the common clock), ns."""


def drifting_ranks(con: duckdb.DuckDBPyConnection, capture_id: str) -> dict[int, Points]:
    """Return the first and last kept collective of each rank whose drift is applied (`clock_offsets.drift_applied`)."""
    rows = con.execute(
        "SELECT r.rank, min(r.start_ns), min(r.aligned_start_ns), max(r.start_ns), max(r.aligned_start_ns) "
        "FROM collective_ranks AS r JOIN clock_offsets AS o USING (capture_id, rank) "
        f"WHERE capture_id = {quoted(capture_id)} AND o.drift_applied AND r.kept AND r.aligned_start_ns IS NOT NULL "
        "GROUP BY r.rank HAVING min(r.start_ns) < max(r.start_ns)"
    ).fetchall()
    return {rank: ((first, aligned), (last, aligned_last)) for rank, first, aligned, last, aligned_last in rows}


def on_common_clock(graph: RankGraph, points: Points) -> RankGraph:
    """Return the graph with common times on the line through two points.

    The times on its own clock do not change, because weights are measured on the rank's own clock.
    """
    (own_first, common_first), (own_last, common_last) = points
    excess_rate = (common_last - common_first) / (own_last - own_first) - 1
    # Scale the differences from the first point, because float64 cannot represent times since 1970 exactly in ns.
    since_first = graph.at_ns - own_first
    return replace(graph, common_ns=since_first + np.round(since_first * excess_rate).astype(np.int64) + common_first)
