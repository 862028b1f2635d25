"""What the segments of the path through all ranks are causes of: each by the edge of its rank's graph, as in table `causes`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from pipelines.critical_path.causes.fixes import Fix
from pipelines.critical_path.causes.of_window import Labels, numbered_window
from pipelines.critical_path.causes.window_rows import best_factors, events_of, lean, names_of
from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from pipelines.critical_path.graph.edge_types import EDGE_TYPES
from pipelines.critical_path.graph.stack_order import Ints
from pipelines.critical_path.whatif.window import Window
from pipelines.fleet.path.capture_fixes import MOST_EDGES, RankOnPath, capture_fixes
from pipelines.fleet.path.capture_savings import Key, RankCauses, savings
from pipelines.fleet.path.joined import JoinedGraph, Meeting
from pipelines.fleet.path.rank_graph import EARLIER, RankGraph
from pipelines.fleet.path.walk import Segment
from pipelines.models.sqltext import quoted

RETIMED = "last_gpu_end"
"""The target of the path whose causes are retimed."""
_GAP = EDGE_TYPES["HOST_GAP"].edge_code


@dataclass(frozen=True)
class SegmentCause:
    """The cause of a segment, what it is named after (a name's number, or a text), and the part of its time by which the others
    wait for its rank: `late_ns` later than the median of them, `alone_ns` later than the last of them. What the capture is shorter
    without it on all ranks, `saves_ns`, and without all of its cause, `cause_saves_ns`; None where that was not computed.
    """

    cause: str
    name_no: int | None = None
    label: str | None = None
    late_ns: int = 0
    alone_ns: int = 0
    saves_ns: int | None = None
    cause_saves_ns: int | None = None


@dataclass(frozen=True)
class CapturePaths:
    """The causes of the segments of each path, by its target; of the one to the last GPU work with what they save. What fixes save,
    and how long the capture takes as it is, ns: none where its graphs have too many edges.
    """

    causes: dict[str, list[SegmentCause]]
    fixes: list[Fix]
    length_ns: int | None = None


class CausesOfSegments:
    """Reads what is known of the names once, and of each rank its events."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self.con, self.names, self.rules = con, names_of(con), cause_rules(con)
        self.factors = best_factors(con, len(self.names.text))
        self.labels = Labels.of_names(self.names)
        rows = con.execute("SELECT dense_rank() OVER (ORDER BY name) AS text FROM _event_names ORDER BY name_no")
        self.text = rows.fetchnumpy()["text"].astype(np.int64)

    def of_paths(self, joined: JoinedGraph, paths: dict[str, list[Segment]]) -> CapturePaths:
        """Returns what the segments of each path are causes of, and what would help the capture."""
        found = {target: [_without_edge(segment) for segment in path] for target, path in paths.items()}
        keys: dict[int, Key] = {}  # by the place of a segment of the path that is retimed
        causes: list[RankCauses] = []
        on_path: dict[int, RankOnPath] = {}
        is_small = joined.n_edges <= MOST_EDGES
        for graph in joined.ranks:
            told, window = self._of_rank(graph, with_window=is_small)
            causes.append(RankCauses.of(told, self.text))
            if window is not None:
                on_path[graph.rank] = RankOnPath(graph.rank, window, causes[-1])
            for target, path in paths.items():
                for place, segment in enumerate(path):
                    edge = _edge(graph, segment) if segment.rank == graph.rank else None
                    if edge is not None and segment.edge is not None:
                        found[target][place] = _cause(told, edge)
                    if edge is not None and target == RETIMED:
                        keys[place] = int(causes[-1].cause[edge]), int(causes[-1].key[edge])
                        if window is not None:
                            on_path[graph.rank].path.append(edge)
        told_all = {target: _late(joined, path, found[target]) for target, path in paths.items()}
        if RETIMED not in paths:
            return CapturePaths(told_all, [])
        path, of_path = paths[RETIMED], told_all[RETIMED]
        told_all[RETIMED] = _saving(joined, causes, path, of_path, keys)
        if not on_path:
            return CapturePaths(told_all, [])
        del causes
        self._note_late(on_path, path, of_path, keys)
        return CapturePaths(told_all, *capture_fixes(joined, list(on_path.values()), self.factors))

    def _of_rank(self, graph: RankGraph, *, with_window: bool) -> tuple[Found, Window | None]:
        to = graph.destinations()
        edges = Edges(
            graph.node[graph.src],
            graph.node[to],
            graph.weight,
            graph.code,
            graph.attributed,
            graph.flags & EARLIER > 0,
        )
        events = _events(self.con, graph)
        found = edge_causes(edges, events, self.names, self.rules)
        if not with_window:
            return found, None
        return found, numbered_window(
            edges, events, ArrayGraph(graph.node, graph.src, to, graph.weight), found, self.labels
        )

    def _note_late(
        self, ranks: dict[int, RankOnPath], path: list[Segment], told: list[SegmentCause], keys: dict[int, Key]
    ) -> None:
        """Tell each rank how long the others waited for it, and for what."""
        for place, (_, key) in keys.items():
            one = told[place]
            if one.late_ns:
                name = self.names.text[one.name_no - 1] if one.name_no is not None else f"{one.label or ''}*"
                late, of = ranks[path[place].rank].late, (one.cause, name, key)
                late[of] = late.get(of, 0) + one.late_ns


def _edge(graph: RankGraph, segment: Segment) -> int | None:
    """The edge whose time a segment is: of a transfer, that of its kernel."""
    if segment.edge is not None or segment.kind != "transfer":
        return segment.edge
    end = graph.place_of(2 * segment.event_id + 1)
    if end is None:
        return None
    own = np.flatnonzero(graph.src[graph.first[end] : graph.first[end + 1]] == end - 1)
    return int(graph.first[end] + own[0]) if len(own) else None


def _saving(
    joined: JoinedGraph, causes: list[RankCauses], path: list[Segment], told: list[SegmentCause], keys: dict[int, Key]
) -> list[SegmentCause]:
    time: dict[Key, int] = {}
    for place, key in keys.items():
        time[key] = time.get(key, 0) + path[place].duration_ns - told[place].late_ns
    found = savings(joined, causes, time)
    return [
        replace(one, saves_ns=found.of_row.get(keys[place]), cause_saves_ns=found.of_cause.get(keys[place][0]))
        if place in keys
        else one
        for place, one in enumerate(told)
    ]


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
    label = {THREAD: "outside operators", STREAM: f"stream {number}", BEFORE: "earlier work, not in the trace"}[kind]
    return SegmentCause(cause, label=label)


def _without_edge(segment: Segment) -> SegmentCause:
    if segment.kind == "transfer":
        return SegmentCause("communication")
    if segment.kind == "head":
        return SegmentCause("start", label=f"before the first event of rank {segment.rank}")
    return SegmentCause("unknown", label="clocks that drift")


@dataclass(frozen=True)
class _Waited:
    """When others waited for one rank, on the common clock: starts and ends (k,), ascending and apart from each other."""

    starts: Ints
    ends: Ints

    @classmethod
    def of(cls, stretches: Sequence[tuple[int, int]]) -> _Waited:
        merged: list[list[int]] = []
        for start, end in sorted(stretches):
            if merged and start <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([start, end])
        starts, ends = np.array(merged, np.int64).reshape(-1, 2).T
        return cls(starts, ends)

    def during(self, start_ns: int, end_ns: int) -> int:
        """Returns how much of a stretch it is, ns."""
        first, past = np.searchsorted(self.ends, start_ns, "right"), np.searchsorted(self.starts, end_ns, "left")
        within = np.minimum(self.ends[first:past], end_ns) - np.maximum(self.starts[first:past], start_ns)
        return int(within.sum())


def _late(joined: JoinedGraph, path: Sequence[Segment], found: list[SegmentCause]) -> list[SegmentCause]:
    """Marks what a rank did while the others waited for it, in whichever collective: a host goes on to the next one before
    the GPU has done the last.
    """
    usual, alone = (_waited(joined, by) for by in (_MEDIAN, _SECOND))
    told = list(found)
    for place, segment in enumerate(path):
        if segment.collective_id is not None or segment.rank not in usual:
            continue
        since = [times[segment.rank].during(segment.start_ns, segment.end_ns) for times in (usual, alone)]
        if any(since):
            one = found[place]
            told[place] = SegmentCause(one.cause, one.name_no, one.label, *since)
    return told


_MEDIAN, _SECOND = range(2)


def _waited(joined: JoinedGraph, by: int) -> dict[int, _Waited]:
    """Returns by rank when the median of the others, or the last of them, waited in a collective that it was last to join."""
    stretches: dict[int, list[tuple[int, int]]] = {}
    for meeting in joined.meetings:
        last, alone, usual = _arrivals(joined, meeting)
        since = usual if by == _MEDIAN else alone
        if since < last:
            stretches.setdefault(joined.ranks[meeting.last[0]].rank, []).append((since, last))
    return {rank: _Waited.of(own) for rank, own in stretches.items()}


def _arrivals(joined: JoinedGraph, meeting: Meeting) -> tuple[int, int, int]:
    """Returns when the last rank arrived, the last but one, and the median of the others."""
    *others, last = sorted(int(joined.ranks[rank].common_ns[place]) for rank, place in meeting.members)
    return last, others[-1], others[(len(others) - 1) // 2]
