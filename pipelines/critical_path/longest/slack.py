"""Slack and drag of every event of a window, and the table `event_slack`.

The edges of an event are the edges attributed to it. They are its self time and, for GPU work, also the time until the
next GPU activity started on its stream before it ended. Without a covering path, they also include the gap until the
next activity (as in HTA 2.8.6). Edges have the weights that the path uses, and the length is the path's.

- Slack: the event may get longer by this time without changing the path's length, however the time is distributed over
  its edges. For each edge, take how much shorter the longest path through the edge is than the longest path. The slack
  is the minimum over the event's edges. One more nanosecond on the edge with the minimum makes the path longer by one.
  On the path, the slack is 0.
- Drag: if all edges of the event have weight 0, the path is shorter by this time. It is never more than the event's
  time on the path, less if another path takes over, and 0 off the path. An edge may have a negative weight (profile
  hta, or a trace whose clock goes back by less than a microsecond). Setting it to 0 lengthens a path, so the drag may
  be negative.
"""

from __future__ import annotations

from dataclasses import dataclass

import duckdb
import numpy as np

from pipelines.critical_path.graph.chains import Ints
from pipelines.critical_path.graph.dependency_graph import ArrayGraph, unfeasible
from pipelines.critical_path.graph.window_edges import read_windows, window_groups
from pipelines.critical_path.longest.drag import drags
from pipelines.critical_path.longest.reach import reach
from pipelines.models.python_tables import create_table, python_model
from pipelines.models.sqltext import quoted

_EDGES = ("src_node_id", "dst_node_id", "path_weight_ns", "coalesce(attributed_event_id, -1) AS event")


@dataclass(frozen=True)
class AttributedGraph:
    """A window's graph and, for each edge, the event that the edge's time is attributed to (-1 if there is none)."""

    graph: ArrayGraph
    event: Ints


@dataclass(frozen=True)
class EventSlack:
    """Slack, drag and summed edge weight (ns) of the events that have edges, in order of event_id."""

    event_id: Ints
    slack_ns: Ints
    drag_ns: Ints
    own_ns: Ints


def load_attributed(con: duckdb.DuckDBPyConnection, trace_id: str, window_id: str) -> AttributedGraph:
    """Read a window from `_edges`. The weights are `path_weight_ns`."""
    ((number, profile),) = con.execute(
        "SELECT window_no, profile FROM critical_path_windows "
        f"WHERE trace_id = {quoted(trace_id)} AND window_id = {quoted(window_id)}"
    ).fetchall()
    ((_, (_, src, dst, weight, event)),) = read_windows(con, [number], _EDGES)
    return AttributedGraph(ArrayGraph.from_edges(src, dst, weight, profile), event)


def event_slack(attributed: AttributedGraph) -> EventSlack:
    """Return slack and drag of each event of a graph with weights in integer nanoseconds.

    Raises GraphHasCycle and TypeError as `reach` does. The cost is three times that of the longest path, plus a sweep
    over part of the graph for each event with several rival paths (see drag.py).
    """
    graph, event = attributed.graph, attributed.event
    owned = np.flatnonzero(event >= 0)
    if not len(owned):
        nothing = np.arange(0)
        return EventSlack(nothing, nothing, nothing, nothing)
    reached = reach(graph)
    event_id, number = np.unique(event[owned], return_inverse=True)
    weight = graph.weight[owned]
    slack = np.full(len(event_id), np.iinfo(np.int64).max)
    np.minimum.at(slack, number, reached.slack[reached.chain_of[owned]])
    total = np.zeros(len(event_id), dtype=np.int64)
    np.add.at(total, number, weight)
    return EventSlack(event_id, slack, drags(reached, owned, number, weight, len(event_id)), total)


@python_model(
    "event_slack",
    layer="critical_path",
    doc="One row: an event of a window's graph, with how much longer it may get and by how much it lengthens the path. "
    "How: computes the longest path through every edge, forward and backward. An event's edges are those attributed to it.",
    columns=(
        ("trace_id", "VARCHAR", "The trace."),
        ("window_id", "VARCHAR", "The window."),
        ("event_id", "BIGINT", "The event."),
        (
            "slack_ns",
            "BIGINT",
            "How much longer the event may get before the path's length changes, ns; 0 on the path; "
            "NULL if no edge is attributed to the event.",
        ),
        (
            "drag_ns",
            "BIGINT",
            "How much shorter the path is when all edges of the event weigh 0, ns; 0 off the path; "
            "NULL if no edge is attributed to the event.",
        ),
        (
            "own_ns",
            "BIGINT",
            "Summed path weight of the event's edges, ns: its self time and, for GPU work, the gap after it "
            "(or, counted again, the time until the next work on its stream began before it ended); "
            "NULL if no edge is attributed to it.",
        ),
    ),
    reads=("_edges", "_refused_windows", "critical_path_windows"),
    checks=("unique(trace_id, window_id, event_id)",),
)
def event_slacks(con: duckdb.DuckDBPyConnection) -> None:
    """Create table `event_slack`: one row per event of the graph of every window, NULL for events without an edge.

    A window whose graph has a cycle or is refused (`_refused_windows`) has no rows, and `quality` reports it.
    """
    create_table(con, "event_slack")
    for windows in window_groups(con, _EDGES):
        parts = []
        for number, (_, src, dst, weight, event) in windows:
            attributed = AttributedGraph(ArrayGraph.from_edges(src, dst, weight), event)
            try:
                parts.append(_rows(number, attributed.graph, event_slack(attributed)))
            except unfeasible():
                continue
        if parts:
            # DuckDB reads the arrays by the names of these variables.
            nodes, measured = (
                {name: np.concatenate([columns[name] for columns in part]) for name in part[0]}
                for part in zip(*parts, strict=True)
            )
            con.execute(
                "INSERT INTO event_slack SELECT w.trace_id, w.window_id, n.event_id, m.slack_ns, m.drag_ns, m.own_ns "
                "FROM nodes AS n JOIN critical_path_windows AS w ON w.window_no = n.window_no "
                "LEFT JOIN measured AS m ON m.window_no = n.window_no AND m.event_id = n.event_id"
            )
            del nodes, measured


def _rows(number: int, graph: ArrayGraph, slack: EventSlack) -> tuple[dict[str, Ints], dict[str, Ints]]:
    """Return the events of a window, and the measurements of the events with edges, both with the window's number."""
    # HTA attributes some edges to an event without nodes: the annotation around an operator.
    present = np.concatenate((graph.node_ids // 2, slack.event_id))
    event = np.flatnonzero(np.bincount(present) > 0)  # ten times as fast as np.unique and np.union1d
    measured = {name: getattr(slack, name) for name in ("event_id", "slack_ns", "drag_ns", "own_ns")}
    return (
        {"window_no": np.full(len(event), number), "event_id": event},
        {"window_no": np.full(len(slack.event_id), number), **measured},
    )
