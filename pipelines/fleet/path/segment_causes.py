"""The causes of the segments of paths through all ranks.

A segment has the cause of its edge in its rank's graph, as in table `causes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import duckdb
import numpy as np

from pipelines.base.kernel_names import glob_of
from pipelines.critical_path.causes.cause_names import cause_rules
from pipelines.critical_path.causes.edge_causes import (
    BEFORE,
    CAUSES,
    NAME,
    STREAM,
    THREAD,
    EdgeCauses,
    Edges,
    Events,
    edge_causes,
    stream_name,
)  # fmt: skip
from pipelines.critical_path.causes.fixes import Fix
from pipelines.critical_path.causes.of_window import Labels, numbered_window
from pipelines.critical_path.causes.window_rows import events_of, lean, name_facts, names_of
from pipelines.critical_path.graph.dependency_graph import ArrayGraph
from pipelines.critical_path.graph.edge_types import EDGE_TYPES
from pipelines.critical_path.graph.stack_order import Ints
from pipelines.critical_path.whatif.window import Window
from pipelines.fleet.path.capture_fixes import MOST_EDGES, Key, RankCauses, RankOnPath, capture_fixes
from pipelines.fleet.path.cause_savings import CauseSaving, OnPath, cause_savings
from pipelines.fleet.path.joined import JoinedGraph, Meeting
from pipelines.fleet.path.rank_graph import EARLIER, RankGraph
from pipelines.fleet.path.retimed import RankedWindow, of_joined
from pipelines.fleet.path.walk import Segment
from pipelines.models.sqltext import quoted

RETIMED = "last_gpu_end"
"""The target of the path whose causes are retimed."""
_GAP = EDGE_TYPES["HOST_GAP"].edge_code
_OUTSIDE = "outside operators"


@dataclass(frozen=True)
class SegmentCause:
    """The cause of a segment, with its name (a number, or a label).

    `late_ns`: the part of the segment in which the median of the other ranks waits for this rank. `has_edge`: False if
    the time belongs to no edge of a graph, so no scenario can change it.
    """

    cause: str
    name_no: int | None = None
    label: str | None = None
    late_ns: int = 0
    has_edge: bool = True


@dataclass(frozen=True)
class CapturePaths:
    """The causes of the segments of each path, by target.

    For the path to the last GPU work, `savings` has the savings from removing its causes, and `fixes` the fixes with
    their savings. `length_ns`: the capture's length. If its graphs have too many edges, the lists are empty and
    `length_ns` is None.
    """

    causes: dict[str, list[SegmentCause]]
    savings: list[CauseSaving] = field(default_factory=list)
    fixes: list[Fix] = field(default_factory=list)
    length_ns: int | None = None


class CausesOfSegments:
    """A reader of causes, which reads the names once, and then the events of each rank."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self.con, self.names, self.rules = con, names_of(con), cause_rules(con)
        self.facts = name_facts(con, len(self.names.text))
        self.labels = Labels.of_names(self.names)
        rows = con.execute("SELECT dense_rank() OVER (ORDER BY name) AS text FROM _event_names ORDER BY name_no")
        self.text = rows.fetchnumpy()["text"].astype(np.int64)

    def of_paths(self, joined: JoinedGraph, paths: dict[str, list[Segment]]) -> CapturePaths:
        """Return the causes of the segments of each path, and savings and fixes of the capture."""
        causes_by_target = {target: [_without_edge(segment) for segment in path] for target, path in paths.items()}
        keys: dict[int, Key] = {}  # by the index of the segment on the path RETIMED
        on_path: dict[int, RankOnPath] = {}
        is_small = joined.n_edges <= MOST_EDGES
        for graph in joined.ranks:
            rank_causes, window = self._of_rank(graph, with_window=is_small)
            if window is not None:
                on_path[graph.rank] = RankOnPath(graph.rank, window, RankCauses.of(rank_causes, self.text))
            for target, path in paths.items():
                for position, segment in enumerate(path):
                    edge = _edge(graph, segment) if segment.rank == graph.rank else None
                    if edge is None:
                        continue
                    cause = _cause(rank_causes, edge)
                    # A transfer is named after its kernel.
                    if segment.edge is not None or cause.cause == "communication":
                        causes_by_target[target][position] = cause
                    if target == RETIMED and window is not None:
                        keys[position] = on_path[graph.rank].causes.key_of(edge)
                        on_path[graph.rank].path.append(edge)
        late = {target: _late(joined, path, causes_by_target[target]) for target, path in paths.items()}
        if RETIMED not in paths or not on_path:
            return CapturePaths(late)
        path, causes = paths[RETIMED], late[RETIMED]
        self._note_late(on_path, path, causes, keys)
        ranks = list(on_path.values())
        windows = [RankedWindow(rank.rank, rank.window, 0) for rank in ranks]
        retimed_capture = of_joined(windows, joined, [np.arange(len(window.window.graph.src)) for window in windows])
        saved = cause_savings(retimed_capture, self._on_path(path, causes))
        return CapturePaths(late, saved, capture_fixes(retimed_capture, ranks, self.facts), retimed_capture.length_ns)

    def _of_rank(self, graph: RankGraph, *, with_window: bool) -> tuple[EdgeCauses, Window | None]:
        destination = graph.destinations()
        edges = Edges(
            graph.node[graph.src],
            graph.node[destination],
            graph.weight,
            graph.code,
            graph.attributed,
            graph.flags & EARLIER > 0,
        )
        events = _events(self.con, graph)
        causes = edge_causes(edges, events, self.names, self.rules)
        if not with_window:
            return causes, None
        return causes, numbered_window(
            edges, events, ArrayGraph(graph.node, graph.src, destination, graph.weight), causes, self.labels
        )

    def _note_late(
        self, ranks: dict[int, RankOnPath], path: list[Segment], path_causes: list[SegmentCause], keys: dict[int, Key]
    ) -> None:
        """Record for each rank how long the other ranks waited for it, by cause."""
        for position, (_, key) in keys.items():
            cause = path_causes[position]
            if cause.late_ns:
                late, late_key = ranks[path[position].rank].late, (cause.cause, _glob(self._name(cause)), key)
                late[late_key] = late.get(late_key, 0) + cause.late_ns

    def _on_path(self, path: list[Segment], path_causes: list[SegmentCause]) -> list[OnPath]:
        """Return the time of each name on the path. The time in which other ranks wait for a rank is its own item."""
        items: dict[tuple[str, str, int | None], OnPath] = {}
        for segment, cause in zip(path, path_causes, strict=True):
            name = self._name(cause)
            for rank, ns in ((None, segment.duration_ns - cause.late_ns), (segment.rank, cause.late_ns)):
                item = items.get((cause.cause, name, rank)) or OnPath(cause.cause, name, _glob(name), rank, 0)
                items[cause.cause, name, rank] = replace(
                    item, ns=item.ns + ns, ns_without_edge=item.ns_without_edge + (0 if cause.has_edge else ns)
                )
        return [item for item in items.values() if item.ns]

    def _name(self, cause: SegmentCause) -> str:
        """Return the name of a cause, or "" if it has no name."""
        return self.names.text[cause.name_no - 1] if cause.name_no is not None else cause.label or ""


def _edge(graph: RankGraph, segment: Segment) -> int | None:
    """Return the index of the edge whose time a segment is, or None. A transfer has the edge of its kernel."""
    if segment.edge is not None or segment.kind != "transfer":
        return segment.edge
    end = graph.place_of(2 * segment.event_id + 1)
    if end is None:
        return None
    kernel_edges = np.flatnonzero(graph.src[graph.first[end] : graph.first[end + 1]] == end - 1)
    return int(graph.first[end] + kernel_edges[0]) if len(kernel_edges) else None


def _events(con: duckdb.DuckDBPyConnection, graph: RankGraph) -> Events:
    rows: dict[str, Any] = con.execute(
        "SELECT * EXCLUDE (capture_id, trace_id) FROM _capture_cause_events "
        f"WHERE trace_id = {quoted(graph.trace_id)} ORDER BY event_id"
    ).fetchnumpy()
    columns = {name: lean(column) for name, column in rows.items()}
    shown_event_id = np.full(len(columns["event_id"]), -1)
    gaps = np.flatnonzero((graph.code == _GAP) & (graph.attributed >= 0))
    shown_event_id[np.searchsorted(columns["event_id"], graph.attributed[gaps])] = graph.owner[gaps]
    return events_of({**columns, "owner_event_id": shown_event_id})


def _cause(causes: EdgeCauses, edge: int) -> SegmentCause:
    cause, number = CAUSES[int(causes.cause[edge])], int(causes.number[edge])
    kind = int(causes.named_after[edge])
    if kind == NAME:
        return SegmentCause(cause, name_no=number + 1)
    label = {THREAD: _OUTSIDE, STREAM: stream_name(number), BEFORE: "earlier work, not in the trace"}[kind]
    return SegmentCause(cause, label=label)


def _glob(name: str) -> str:
    """Return the pattern that selects a cause's name in scenarios, where each thread has a separate name."""
    return f"{name}*" if name == _OUTSIDE else glob_of(name)


def _without_edge(segment: Segment) -> SegmentCause:
    if segment.kind == "transfer":
        return SegmentCause("communication", has_edge=False)
    if segment.kind == "head":
        return SegmentCause("start", label=f"before the first event of rank {segment.rank}", has_edge=False)
    return SegmentCause("unknown", label="clocks that drift", has_edge=False)


@dataclass(frozen=True)
class _Waited:
    """The times when other ranks waited for one rank, on the common clock, ns.

    starts, ends (k,): ascending, disjoint intervals.
    """

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
        """Return the length of the part of an interval that overlaps these times, ns."""
        first, past = np.searchsorted(self.ends, start_ns, "right"), np.searchsorted(self.starts, end_ns, "left")
        overlaps = np.minimum(self.ends[first:past], end_ns) - np.maximum(self.starts[first:past], start_ns)
        return int(overlaps.sum())


def _late(joined: JoinedGraph, path: Sequence[Segment], causes: list[SegmentCause]) -> list[SegmentCause]:
    """Return the causes with `late_ns`, the segment's time in which other ranks waited for its rank in any collective.

    The collective need not be the next collective on the path, because a host may start it before the GPU has finished
    the previous collective.
    """
    waited = _waited(joined)
    return [
        replace(cause, late_ns=waited[segment.rank].during(segment.start_ns, segment.end_ns))
        if segment.collective_id is None and segment.rank in waited
        else cause
        for segment, cause in zip(path, causes, strict=True)
    ]


def _waited(joined: JoinedGraph) -> dict[int, _Waited]:
    """Return for each rank the times when the median of the other ranks waited for it in a collective."""
    intervals: dict[int, list[tuple[int, int]]] = {}
    for meeting in joined.meetings:
        last, since = _arrivals(joined, meeting)
        if since < last:
            intervals.setdefault(joined.ranks[meeting.last[0]].rank, []).append((since, last))
    return {rank: _Waited.of(rank_intervals) for rank, rank_intervals in intervals.items()}


def _arrivals(joined: JoinedGraph, meeting: Meeting) -> tuple[int, int]:
    """Return when the last rank arrived, and the median arrival of the other ranks, ns on the common clock."""
    *earlier, last = sorted(int(joined.ranks[rank].common_ns[node]) for rank, node in meeting.members)
    return last, earlier[(len(earlier) - 1) // 2]
