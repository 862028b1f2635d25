"""Corrects ranks whose clocks run faster or slower than the others: their nodes are moved to the common clock."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import numpy as np

from pipelines.fleet.path.rank_graph import RankGraph
from pipelines.models.sqltext import quoted

Points = tuple[tuple[int, int], tuple[int, int]]
"""Two moments of a rank as (its own clock, common clock), ns."""


def drifting_ranks(con: duckdb.DuckDBPyConnection, capture_id: str) -> dict[int, Points]:
    """Returns the ranks whose drift counts (`clock_offsets.drift_applied`), with their first and last kept collective."""
    rows = con.execute(
        "SELECT r.rank, min(r.start_ns), min(r.aligned_start_ns), max(r.start_ns), max(r.aligned_start_ns) "
        "FROM collective_ranks AS r JOIN clock_offsets AS o USING (capture_id, rank) "
        f"WHERE capture_id = {quoted(capture_id)} AND o.drift_applied AND r.kept AND r.aligned_start_ns IS NOT NULL "
        "GROUP BY r.rank HAVING min(r.start_ns) < max(r.start_ns)"
    ).fetchall()
    return {rank: ((first, aligned), (last, aligned_last)) for rank, first, aligned, last, aligned_last in rows}


def on_common_clock(graph: RankGraph, points: Points) -> RankGraph:
    """Returns the graph with common times by the line through two points; its own clock stays what weights are told in."""
    (own, common), (own_later, common_later) = points
    stretch = (common_later - common) / (own_later - own) - 1
    # The factor multiplies small differences, so that a float64 is exact enough: times since 1970 would not be.
    since = graph.at_ns - own
    return replace(graph, common_ns=since + np.round(since * stretch).astype(np.int64) + common)
