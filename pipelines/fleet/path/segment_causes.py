"""What the segments of the path through all ranks are causes of: each by the edge of its rank's graph, as in table `causes`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np

from pipelines.critical_path.causes.cause_names import cause_rules
from pipelines.critical_path.causes.edge_causes import (
    BEFORE,
    CAUSES,
    NAME,
    STREAM,
    THREAD,
    Edges,
    Events,
    Found,
    edge_causes,
)  # fmt: skip
from pipelines.critical_path.causes.window_causes import events_of, lean, names_of
from pipelines.critical_path.graph.edge_types import EDGE_TYPES
from pipelines.fleet.path.joined import JoinedGraph, Meeting
from pipelines.fleet.path.rank_graph import EARLIER, RankGraph
from pipelines.fleet.path.walk import Segment
from pipelines.models.sqltext import quoted

_GAP = EDGE_TYPES["HOST_GAP"].edge_code


@dataclass(frozen=True)
class SegmentCause:
    """The cause of a segment, what it is named after (a name's number, or a text), and the part of its time by which the others
    wait for its rank: `late_ns` later than the median of them, `alone_ns` later than the last of them.
    """

    cause: str
    name_no: int | None = None
    label: str | None = None
    late_ns: int = 0
    alone_ns: int = 0


class CausesOfSegments:
    """Reads what is known of the names once, and of each rank its events."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self.con, self.names, self.rules = con, names_of(con), cause_rules(con)

    def of(self, joined: JoinedGraph, path: Sequence[Segment]) -> list[SegmentCause]:
        """Returns the cause of each segment of a path."""
        found: list[SegmentCause] = [_without_edge(segment) for segment in path]
        places: defaultdict[int, list[int]] = defaultdict(list)
        for place, segment in enumerate(path):
            if segment.edge is not None:
                places[segment.rank].append(place)
        for graph in joined.ranks:
            of_rank = places.get(graph.rank)
            if of_rank:
                told = self._of_rank(graph, [path[place].edge or 0 for place in of_rank])
                for place, one in zip(of_rank, told, strict=True):
                    found[place] = one
        return _late(joined, path, found)

    def _of_rank(self, graph: RankGraph, edges: list[int]) -> list[SegmentCause]:
        events = _events(self.con, graph)
        dst = graph.destinations()
        found = edge_causes(
            Edges(
                graph.node[graph.src],
                graph.node[dst],
                graph.weight,
                graph.code,
                graph.attributed,
                graph.flags & EARLIER > 0,
            ),
            events,
            self.names,
            self.rules,
        )
        return [_cause(found, edge) for edge in edges]


def _events(con: duckdb.DuckDBPyConnection, graph: RankGraph) -> Events:
    rows: dict[str, Any] = con.execute(
        "SELECT * EXCLUDE (capture_id, trace_id) FROM _capture_cause_events "
        f"WHERE trace_id = {quoted(graph.trace_id)} ORDER BY event_id"
    ).fetchnumpy()
    columns = {name: lean(column) for name, column in rows.items()}
    shown = np.full(len(columns["event_id"]), -1)
    gaps = np.flatnonzero((graph.code == _GAP) & (graph.attributed >= 0))
    shown[np.searchsorted(columns["event_id"], graph.attributed[gaps])] = graph.owner[gaps]
    return events_of({**columns, "owner_event_id": shown})


def _cause(found: Found, edge: int) -> SegmentCause:
    cause, number = CAUSES[int(found.cause[edge])], int(found.number[edge])
    kind = int(found.named_after[edge])
    if kind == NAME:
        return SegmentCause(cause, name_no=number + 1)
    label = {THREAD: "outside operators", STREAM: f"stream {number}", BEFORE: "GPU work from before the window"}[kind]
    return SegmentCause(cause, label=label)


def _without_edge(segment: Segment) -> SegmentCause:
    if segment.kind == "transfer":
        return SegmentCause("communication")
    if segment.kind == "head":
        return SegmentCause("start", label=f"before the first event of rank {segment.rank}")
    return SegmentCause("unknown", label="clocks that drift")


def _late(joined: JoinedGraph, path: Sequence[Segment], found: list[SegmentCause]) -> list[SegmentCause]:
    """Marks what a rank did while the others waited for it: the time before it arrived at a collective, since they had."""
    meetings = {meeting.collective_id: meeting for meeting in joined.meetings}
    late: Meeting | None = None
    told = list(found)
    for place in range(len(path) - 1, -1, -1):
        segment = path[place]
        if segment.collective_id is not None:
            late = meetings[segment.collective_id]
            continue
        if late is None:
            continue
        last, alone, usual = _arrivals(joined, late)
        since = [max(min(segment.end_ns, last) - max(segment.start_ns, other), 0) for other in (usual, alone)]
        if segment.rank == joined.ranks[late.last[0]].rank and any(since):
            one = found[place]
            told[place] = SegmentCause(one.cause, one.name_no, one.label, *since)
    return told


def _arrivals(joined: JoinedGraph, meeting: Meeting) -> tuple[int, int, int]:
    """Returns when the last rank arrived, the last but one, and the median of the others."""
    *others, last = sorted(int(joined.ranks[rank].common_ns[place]) for rank, place in meeting.members)
    return last, others[-1], others[(len(others) - 1) // 2]
