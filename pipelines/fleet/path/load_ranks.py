"""The reader of ranks' graphs from the stored nodes and edges of their traces."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import duckdb
import numpy as np

from pipelines.critical_path.graph.edge_types import EDGE_TYPES
from pipelines.fleet.path.rank_graph import CPU, EARLIER, FRAME, GPU, INFERRED, RankGraph, rank_graph
from pipelines.models.sqltext import row

WINDOW = "full"
"""The stored window that covers a whole trace."""
_NODES = f"""
    SELECT r.rank, n.node_id AS node, n.at_ns, CASE n.side WHEN 'gpu' THEN {GPU} WHEN 'cpu' THEN {CPU} ELSE {FRAME} END AS side
    FROM critical_path_nodes AS n JOIN ranks AS r ON r.trace_id = n.trace_id
    WHERE n.window_id = '{WINDOW}'
"""
_EDGES = f"""
    SELECT
        r.rank, e.src_node_id AS src, e.dst_node_id AS dst, e.path_weight_ns AS weight, CAST(t.code AS TINYINT) AS code,
        coalesce(e.attributed_event_id, -1) AS attributed, coalesce(e.owner_event_id, -1) AS owner,
        CAST(
            CASE WHEN e.is_inferred THEN {INFERRED} ELSE 0 END + CASE WHEN e.waits_for_earlier_work THEN {EARLIER} ELSE 0 END
            AS TINYINT
        ) AS flags, e.edge_id
    FROM critical_path_edges AS e
    JOIN ranks AS r ON r.trace_id = e.trace_id
    JOIN edge_codes AS t ON t.edge_type = e.edge_type
    WHERE e.window_id = '{WINDOW}'
"""


def load_ranks(con: duckdb.DuckDBPyConnection, ranks: Mapping[int, str]) -> Iterator[RankGraph]:
    """Yield the graph of each rank's whole trace (rank → trace_id), on the rank's own clock.

    `con` has `critical_path_nodes` and `critical_path_edges`. One query reads all ranks, so their graphs must fit into
    memory together.
    """
    rank_values = ", ".join(row([rank, trace_id]) for rank, trace_id in ranks.items())
    codes = ", ".join(row([kind.edge_type, kind.edge_code]) for kind in EDGE_TYPES.values())
    with_clause = (
        f"WITH ranks(rank, trace_id) AS (VALUES {rank_values}), edge_codes(edge_type, code) AS (VALUES {codes})"
    )
    nodes, edges = (_by_rank(con.execute(f"{with_clause} {query}").fetchnumpy()) for query in (_NODES, _EDGES))
    for rank, trace_id in ranks.items():
        rank_edges = _of(edges, rank)
        # Sort by edge_id, because the walk follows the first of several equally binding edges.
        order = np.argsort(rank_edges.pop("edge_id"))
        yield rank_graph(rank, trace_id, _of(nodes, rank), {name: column[order] for name, column in rank_edges.items()})


def _by_rank(rows: dict[str, Any]) -> dict[str, np.ndarray]:
    order = np.argsort(rows["rank"], kind="stable")
    return {name: np.asarray(column)[order] for name, column in rows.items()}


def _of(rows: dict[str, np.ndarray], rank: int) -> dict[str, np.ndarray]:
    first, past = np.searchsorted(rows["rank"], [rank, rank + 1])
    return {name: column[first:past] for name, column in rows.items() if name != "rank"}
