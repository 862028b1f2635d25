"""The critical path through several ranks, by a walk backward from the end along the edge that delayed each event.

It is not the longest path. Clocks of ranks differ, and a rank that begins late begins at 0 in the joined graph, so the
longest path may lead through a rank that was not last. The walk follows the binding edge of a rank's graph, which is
the incoming edge whose source time plus weight is latest. At the end of a collective, the walk moves to the rank that
arrived last. The segments tile the time from the first event to the target without gap or overlap. If a segment of work
or transfer becomes shorter, the path becomes shorter by as much, until another edge binds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.base.errors import TracelakeError
from pipelines.critical_path.graph.edge_types import EDGE_TYPES
from pipelines.fleet.path.joined import JoinedGraph
from pipelines.fleet.path.rank_graph import EARLIER, FRAME, GPU, INFERRED, RankGraph

TARGETS = ("last_gpu_end", "last_collective_end", "last_event_end")


class NoTarget(TracelakeError, LookupError):
    """A capture without an event of the kind that the path should end with."""


@dataclass(frozen=True)
class Segment:
    """A segment of the path, with times in ns on the common clock.

    kind: cpu_op, gpu_kernel, transfer (of a collective, after all ranks have arrived), launch_delay, kernel_delay
    (between work of one stream), cross_stream_wait, sync_return (from the GPU's end to the call that waited for it),
    thread_hand_off, gap (of a host thread outside its operators), head (before the rank's first event). event_id: the
    event that the segment leads into, or whose time it is. owner_event_id: the event whose time it is, or None.
    shown_event_id: the event that is shown as its owner, or None. edge_type: None for a segment without an edge.
    guessed: an inferred wait. earlier: a wait for GPU work from outside the trace. edge: the index of its edge in the
    rank's graph.
    """

    rank: int
    kind: str
    start_ns: int
    end_ns: int
    event_id: int
    owner_event_id: int | None
    shown_event_id: int | None = None
    edge_type: str | None = None
    guessed: bool = False
    earlier: bool = False
    collective_id: str | None = None
    edge: int | None = None

    @property
    def duration_ns(self) -> int:
        """Return the segment's length."""
        return self.end_ns - self.start_ns


def walk_back(joined: JoinedGraph, target: str = "last_gpu_end") -> list[Segment]:
    """Return the path to the target, first segment first.

    Raise NoTarget, or ValueError for an unknown target.
    """
    return _Walk(joined, *find_target(joined, target)).run()


def find_target(joined: JoinedGraph, target: str) -> tuple[int, int]:
    """Return the latest of the target's nodes, which ends the path, as (index of the rank, index of the node).

    On a tie, the lowest rank is chosen. Raise NoTarget, or ValueError for an unknown target.
    """
    if target not in TARGETS:
        raise ValueError(f"no target {target!r}: give one of {', '.join(TARGETS)}")
    best: tuple[int, int, int] | None = None
    for rank, graph in enumerate(joined.ranks):
        if target == "last_collective_end":
            nodes = np.array(sorted(joined.meeting_of[rank]), np.int64)
        else:
            is_counted = graph.side == GPU if target == "last_gpu_end" else graph.side != FRAME
            nodes = np.flatnonzero(is_counted & (graph.node % 2 == 1))
        if len(nodes):
            node = int(nodes[np.argmax(graph.common_ns[nodes])])
            end = int(graph.common_ns[node])
            if best is None or end > best[0]:
                best = end, rank, node
    if best is None:
        raise NoTarget(f"no rank has an event for target {target}")
    return best[1], best[2]


def first_ns(joined: JoinedGraph) -> int:
    """Return the start of the first operator, call or GPU work on any rank, ns on the common clock."""
    times = [graph.common_ns[graph.side != FRAME] for graph in joined.ranks]
    return min(int(rank_times.min()) for rank_times in times if len(rank_times))


class _Walk:
    """The state of a walk, which is at the node with index `place` of the rank with index `rank`.

    The segments so far explain the time after `now`.
    """

    def __init__(self, joined: JoinedGraph, rank: int, place: int) -> None:
        self.joined, self.rank, self.place = joined, rank, place
        self.begin = first_ns(joined)
        self.now = int(self.graph.common_ns[place])
        self.segments: list[Segment] = []

    def run(self) -> list[Segment]:
        while self.now > self.begin:
            meeting = self.joined.meeting_of[self.rank].get(self.place)
            if meeting is not None:
                self._meet(meeting)
            elif (edge := self._binding()) is not None:
                self._follow(edge)
            else:
                self._emit("head", self.begin, None)
        return self.segments[::-1]

    @property
    def graph(self) -> RankGraph:
        return self.joined.ranks[self.rank]

    def _emit(self, kind: str, start_ns: int, edge: int | None, collective_id: str | None = None) -> None:
        """Add a segment unless it is empty. `edge`: the index of the edge whose time it is, or None."""
        graph, start = self.graph, max(min(start_ns, self.now), self.begin)
        event = int(graph.node[self.place]) // 2
        if start < self.now:
            owner = shown_event = event if collective_id is not None else None
            edge_type, flags = None, 0
            if edge is not None:
                owner, shown_event = (_known(ids[edge]) for ids in (graph.attributed, graph.owner))
                edge_type, flags = _TYPES[int(graph.code[edge])].edge_type, int(graph.flags[edge])
            self.segments.append(
                Segment(
                    graph.rank, kind, start, self.now, event, owner, shown_event, edge_type, bool(flags & INFERRED),
                    bool(flags & EARLIER), collective_id, edge,
                )
            )  # fmt: skip
        self.now = start

    def _meet(self, number: int) -> None:
        meeting = self.joined.meetings[number]
        self._emit("transfer", meeting.arrived_ns, None, meeting.collective_id)
        self.rank, self.place = meeting.last

    def _follow(self, edge: int) -> None:
        graph = self.graph
        source = int(graph.src[edge])
        # Measure the gap on the rank's own clock, because common times are stretched if clocks drift.
        gap_ns = int(graph.at_ns[self.place] - graph.at_ns[source] - graph.weight[edge])
        if gap_ns > 0:
            self._emit("gap", self.now - gap_ns, None)
        self._emit(self._kind(edge), int(graph.common_ns[source]), edge)
        self.place = source

    def _binding(self) -> int | None:
        """Return the edge into the node whose source time plus weight is latest, or None without incoming edges.

        On a tie, return the edge with the latest source, then the edge with the lowest source index.
        """
        graph = self.graph
        first, past = int(graph.first[self.place]), int(graph.first[self.place + 1])
        if past - first < 2:
            return first if past > first else None

        def end(edge: int) -> tuple[int, int, int]:
            source = int(graph.src[edge])
            source_ns = int(graph.at_ns[source])
            return source_ns + int(graph.weight[edge]), source_ns, -source

        return max(range(first, past), key=end)

    def _kind(self, edge: int) -> str:
        graph, kind = self.graph, _TYPES[int(self.graph.code[edge])]
        into_gpu = graph.side[self.place] == GPU
        if kind.edge_type == "SYNC_DEPENDENCY":
            return "cross_stream_wait" if into_gpu else "sync_return"
        # Work from outside the trace (EARLIER) may be on the same stream.
        if kind.edge_type == "KERNEL_KERNEL_DELAY" and graph.flags[edge] & (INFERRED | EARLIER) == INFERRED:
            return "cross_stream_wait"
        return kind.segment or ("gpu_kernel" if self._is_gpu(edge) else "cpu_op")

    def _is_gpu(self, edge: int) -> bool:
        """Return whether an edge's time is GPU work.

        The side of the attributed event decides. If the edge has none, the side of its source node decides.
        """
        attributed = int(self.graph.attributed[edge])
        node = self.graph.place_of(2 * attributed) if attributed >= 0 else None
        return bool(self.graph.side[int(self.graph.src[edge]) if node is None else node] == GPU)


def _known(event_id: np.int64) -> int | None:
    return int(event_id) if event_id >= 0 else None


_TYPES = {kind.edge_code: kind for kind in EDGE_TYPES.values()}
