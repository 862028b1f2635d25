"""Joins graphs of ranks through their collectives: one extra node J_i per matched instance.

K_start(r) → J_i weighs 0, J_i → K_end(r) weighs the transfer. K_start → K_end of matched kernels is removed; otherwise
a rank's waiting would count as its own work. The edges come from instance membership, not from clocks, so a cycle means
that two ranks disagree about the order of two instances: then the match is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipelines.critical_path.graph.dependency_graph import ArrayGraph, Ints, unfeasible
from pipelines.fleet.path.rank_graph import RankGraph


@dataclass(frozen=True)
class Instance:
    """A matched collective: the kernel of every participating rank, as (rank, event_id)."""

    collective_id: str
    members: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Meeting:
    """An instance in the joined graph; times in ns on the common clock.

    members: (index of the rank, place of the kernel's start; its end is the next place). arrived_ns: when the last rank
    arrived; last: that member (of several, the lowest rank). transfer_ns: the shortest duration of a member, which does not
    depend on clocks.
    """

    collective_id: str
    members: tuple[tuple[int, int], ...]
    arrived_ns: int
    last: tuple[int, int]
    transfer_ns: int


class RanksDisagree(ValueError):
    """The joined graph has a cycle. `components`: the nodes of each, as text."""

    def __init__(self, components: list[list[str]]) -> None:
        self.components = components
        shown = "; ".join(", ".join(nodes[:12]) + (" …" if len(nodes) > 12 else "") for nodes in components[:3])
        met = any(node.startswith("collective") for nodes in components for node in nodes)
        why = "ranks disagree about the order of collectives, so they are matched wrongly" if met else "one rank's own"
        super().__init__(f"the joined graph has a cycle: {why}. Strongly connected: {shown}")


@dataclass(frozen=True, eq=False)
class JoinedGraph:
    """Graphs of ranks, by rank, and where they meet.

    meeting_of: for each rank, the number of its meeting by the place of the kernel's end. n_outside: members of instances
    that are in no graph.
    """

    ranks: tuple[RankGraph, ...]
    meetings: tuple[Meeting, ...]
    meeting_of: tuple[dict[int, int], ...]
    n_outside: int

    def __len__(self) -> int:
        return sum(len(graph.node) for graph in self.ranks) + len(self.meetings)

    @cached_property
    def n_edges(self) -> int:
        """Returns the number of edges, including those to and from meetings."""
        return len(self.edges()[0])

    def graph(self) -> ArrayGraph:
        """Returns the joined graph; weights are ns, on each rank's own clock.

        Nodes are numbered rank after rank as in RankGraph, followed by the meetings.
        """
        src, dst, weight = self.edges()[:3]
        return ArrayGraph(np.arange(len(self), dtype=src.dtype), src, dst, weight)

    def timed(self) -> tuple[ArrayGraph, Ints, np.ndarray]:
        """Returns the same graph on the common clock, where a collective's time on each rank is since the last one arrived; when each
        node is, ns; and whose time the edges are, as `edges` does.
        """
        src, dst, weight, own = self.edges()
        at = np.concatenate([*(graph.common_ns for graph in self.ranks), [one.arrived_ns for one in self.meetings]])
        after = src >= self.bases()[-1]
        weight[after] = np.maximum(at[dst[after]] - at[src[after]], 0)
        return ArrayGraph(np.arange(len(self), dtype=src.dtype), src, dst, weight), at.astype(np.int64, copy=False), own

    def edges(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Returns source and target nodes of all edges, their weights in ns, and whose time they are: a place among the edges of
        all ranks, one rank after another; of an edge out of a meeting the kernel's, of one into it none (-1). The edges of kernels
        that meet others are not there.
        """
        base, sizes = self.bases(), [len(meeting.members) for meeting in self.meetings]
        starts = [base[rank] + place for meeting in self.meetings for rank, place in meeting.members]
        kind = self.ranks[0].src.dtype
        start, number = np.array(starts, kind), np.repeat(np.arange(len(sizes), dtype=kind) + base[-1], sizes)
        meets = np.zeros(base[-1], bool)
        meets[start + 1] = True
        kernel = np.full(base[-1], -1, kind)
        most = sum(len(graph.src) for graph in self.ranks) + 2 * len(start)
        src, dst, own = np.empty((3, most), kind)
        weight, n, n_seen = np.zeros(most, np.int64), 0, 0
        for graph, begin in zip(self.ranks, base, strict=False):  # one rank at a time: copies of all would fill memory
            of, to = graph.src + begin, graph.destinations() + begin
            stays = (of + 1 != to) | ~meets[to]
            places, gone = np.flatnonzero(stays), np.flatnonzero(~stays)
            kernel[to[gone]] = gone + n_seen
            end = n + len(places)
            src[n:end], dst[n:end], weight[n:end], own[n:end] = (
                of[places],
                to[places],
                graph.weight[places],
                places + n_seen,
            )
            n, n_seen = end, n_seen + len(of)
        into, end = slice(n, n + len(start)), n + 2 * len(start)
        src[into], dst[into], own[into] = start, number, -1
        out = slice(into.stop, end)
        src[out], dst[out], own[out] = number, start + 1, kernel[start + 1]
        weight[out] = np.repeat(np.array([meeting.transfer_ns for meeting in self.meetings], np.int64), sizes)
        return src[:end], dst[:end], weight[:end], own[:end]

    def bases(self) -> list[int]:
        """Returns the number of each rank's first node, and last that of the first meeting."""
        return [0, *np.cumsum([len(graph.node) for graph in self.ranks]).tolist()]

    def name_of(self, node: int) -> str:
        """Returns a node of `graph()` as readable text."""
        base = self.bases()
        if node >= base[-1]:
            return f"collective {self.meetings[node - base[-1]].collective_id}"
        rank = int(np.searchsorted(base, node, side="right")) - 1
        graph = self.ranks[rank]
        event, is_end = divmod(int(graph.node[node - base[rank]]), 2)
        return f"rank {graph.rank} event {event} {'end' if is_end else 'start'}"


def join_ranks(graphs: Sequence[RankGraph], instances: Sequence[Instance]) -> JoinedGraph:
    """Join graphs of ranks, which have common times."""
    ranks = tuple(sorted(graphs, key=lambda graph: graph.rank))
    number = {graph.rank: place for place, graph in enumerate(ranks)}
    meetings: list[Meeting] = []
    meeting_of: tuple[dict[int, int], ...] = tuple({} for _ in ranks)
    n_outside = 0
    for instance in instances:
        members = []
        for rank, event_id in sorted(instance.members):
            place = ranks[number[rank]].place_of(2 * event_id) if rank in number else None
            if place is None:
                n_outside += 1
            else:
                members.append((number[rank], place))
        if len(members) > 1:
            for rank, place in members:
                meeting_of[rank][place + 1] = len(meetings)
            meetings.append(_meeting(instance.collective_id, members, ranks))
    return JoinedGraph(ranks, tuple(meetings), meeting_of, n_outside)


def _meeting(name: str, members: list[tuple[int, int]], ranks: Sequence[RankGraph]) -> Meeting:
    starts = [int(ranks[rank].common_ns[place]) for rank, place in members]
    durations = [int(ranks[rank].at_ns[place + 1] - ranks[rank].at_ns[place]) for rank, place in members]
    last = int(np.argmax(starts))
    return Meeting(name, tuple(members), starts[last], members[last], min(durations))


def heaviest_path_ns(joined: JoinedGraph) -> int:
    """Returns the length of the longest path of the joined graph, ns: ranks that begin late begin at 0 in it.

    Raises RanksDisagree with the strongly connected components if there is a cycle.
    """
    graph = joined.graph()
    try:
        return sum(graph.weight[graph.path()].tolist())
    except unfeasible():
        import networkx as nx
    found = nx.strongly_connected_components(graph.to_networkx())
    components = [sorted(nodes) for nodes in found if len(nodes) > 1]
    raise RanksDisagree([[joined.name_of(node) for node in nodes[::-1]] for nodes in components])
