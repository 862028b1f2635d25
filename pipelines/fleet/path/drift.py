"""The correction of ranks whose clocks run faster or slower than the others: their nodes get common times."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import numpy as np

from pipelines.fleet.path.rank_graph import RankGraph
from pipelines.models.sqltext import quoted

Points = tuple[tuple[int, int], tuple[int, int]]
"""Two moments of a rank as (its own clock, common clock), ns."""


def drifting_ranks(con: duckdb.DuckDBPyConnection, capture_id: str) -> dict[int, Points]:
    """Return the ranks whose drift counts (`clock_offsets.drift_applied`), with their first and last kept collective."""
    rows = con.execute(
        "SELECT r.rank, min(r.start_ns), min(r.aligned_start_ns), max(r.start_ns), max(r.aligned_start_ns) "
        "FROM collective_ranks AS r JOIN clock_offsets AS o USING (capture_id, rank) "
        f"WHERE capture_id = {quoted(capture_id)} AND o.drift_applied AND r.kept AND r.aligned_start_ns IS NOT NULL "
        "GROUP BY r.rank HAVING min(r.start_ns) < max(r.start_ns)"
    ).fetchall()
    return {rank: ((first, aligned), (last, aligned_last)) for rank, first, aligned, last, aligned_last in rows}


def on_common_clock(graph: RankGraph, points: Points) -> RankGraph:
    """Return the graph with common times by the line through two points.

    Its own times stay, because weights are measured on the rank's own clock.
    """
    (own_first, common_first), (own_last, common_last) = points
    excess_rate = (common_last - common_first) / (own_last - own_first) - 1
    # Multiply differences to the first point, because float64 is not exact enough for times since 1970 in ns.
    since_first = graph.at_ns - own_first
    return replace(graph, common_ns=since_first + np.round(since_first * excess_rate).astype(np.int64) + common_first)
