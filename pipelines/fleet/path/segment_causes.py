"""What the segments of the path through all ranks are causes of: each by the edge of its rank's graph, as in table `causes`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
    """The cause of a segment, what it is named after (a name's number, or a text), and the part of its time by which its rank is
    later than the median of the others, which wait for it.
    """

    cause: str
    name_no: int | None = None
    label: str | None = None
    late_ns: int = 0


@dataclass(frozen=True)
class CapturePaths:
    """The causes of the segments of each path, by its target. What the capture saves without the causes of the one to the last GPU
    work, and by fixes, and how long it takes as it is, ns: none where its graphs have too many edges.
    """

    causes: dict[str, list[SegmentCause]]
    savings: list[CauseSaving] = field(default_factory=list)
    fixes: list[Fix] = field(default_factory=list)
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
        on_path: dict[int, RankOnPath] = {}
        is_small = joined.n_edges <= MOST_EDGES
        for graph in joined.ranks:
            told, window = self._of_rank(graph, with_window=is_small)
            if window is not None:
                on_path[graph.rank] = RankOnPath(graph.rank, window, RankCauses.of(told, self.text))
            for target, path in paths.items():
                for place, segment in enumerate(path):
                    edge = _edge(graph, segment) if segment.rank == graph.rank else None
                    if edge is None:
                        continue
                    cause = _cause(told, edge)
                    if segment.edge is not None or cause.cause == "communication":  # of a transfer the kernel's name
                        found[target][place] = cause
                    if target == RETIMED and window is not None:
                        keys[place] = on_path[graph.rank].causes.key_of(edge)
                        on_path[graph.rank].path.append(edge)
        late = {target: _late(joined, path, found[target]) for target, path in paths.items()}
        if RETIMED not in paths or not on_path:
            return CapturePaths(late)
        path, told = paths[RETIMED], late[RETIMED]
        self._note_late(on_path, path, told, keys)
        ranks = list(on_path.values())
        windows = [RankedWindow(rank.rank, rank.window, 0) for rank in ranks]
        whole = of_joined(windows, joined, [np.arange(len(one.window.graph.src)) for one in windows])
        saved = cause_savings(whole, self._on_path(path, told))
        return CapturePaths(late, saved, capture_fixes(whole, ranks, self.factors), whole.length_ns)

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
                late, of = ranks[path[place].rank].late, (one.cause, _glob(self._name(one)), key)
                late[of] = late.get(of, 0) + one.late_ns

    def _on_path(self, path: list[Segment], told: list[SegmentCause]) -> list[OnPath]:
        """Returns the time of each name on the path, and of it what the others wait for by rank."""
        time: dict[tuple[str, str, int | None], int] = {}
        for segment, one in zip(path, told, strict=True):
            name = self._name(one)
            for rank, ns in ((None, segment.duration_ns - one.late_ns), (segment.rank, one.late_ns)):
                of = one.cause, name, rank
                time[of] = time.get(of, 0) + ns
        return [OnPath(cause, name, _glob(name), rank, ns) for (cause, name, rank), ns in time.items() if ns]

    def _name(self, one: SegmentCause) -> str:
        """Returns what a cause is named after; an empty text where nothing is known to what it belongs."""
        return self.names.text[one.name_no - 1] if one.name_no is not None else one.label or ""


def _edge(graph: RankGraph, segment: Segment) -> int | None:
    """The edge whose time a segment is: of a transfer, that of its kernel."""
    if segment.edge is not None or segment.kind != "transfer":
        return segment.edge
    end = graph.place_of(2 * segment.event_id + 1)
    if end is None:
        return None
    own = np.flatnonzero(graph.src[graph.first[end] : graph.first[end + 1]] == end - 1)
    return int(graph.first[end] + own[0]) if len(own) else None


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
    label = {THREAD: _OUTSIDE, STREAM: f"stream {number}", BEFORE: "earlier work, not in the trace"}[kind]
    return SegmentCause(cause, label=label)


def _glob(name: str) -> str:
    """Returns what scenarios call a name of a cause: threads are named one by one in them."""
    return f"{name}*" if name == _OUTSIDE else name


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
    waited = _waited(joined)
    return [
        replace(cause, late_ns=waited[segment.rank].during(segment.start_ns, segment.end_ns))
        if segment.collective_id is None and segment.rank in waited
        else cause
        for segment, cause in zip(path, found, strict=True)
    ]


def _waited(joined: JoinedGraph) -> dict[int, _Waited]:
    """Returns by rank when the median of the others waited in a collective that it was last to join."""
    stretches: dict[int, list[tuple[int, int]]] = {}
    for meeting in joined.meetings:
        last, since = _arrivals(joined, meeting)
        if since < last:
            stretches.setdefault(joined.ranks[meeting.last[0]].rank, []).append((since, last))
    return {rank: _Waited.of(own) for rank, own in stretches.items()}


def _arrivals(joined: JoinedGraph, meeting: Meeting) -> tuple[int, int]:
    """Returns when the last rank arrived, and the median of the others."""
    *others, last = sorted(int(joined.ranks[rank].common_ns[place]) for rank, place in meeting.members)
    return last, others[(len(others) - 1) // 2]
