"""The graphs of ranks, joined at their collectives so that paths can cross ranks.

Each matched instance of a collective adds one node, its meeting. An edge of weight 0 leads from the start of each
rank's kernel to the meeting. An edge whose weight is the transfer leads from the meeting to the kernel's end. The edge
from start to end of a matched kernel is removed, because otherwise a rank's waiting would count as its own work. The
edges follow from membership in instances, not from clocks. A cycle across ranks therefore means that two ranks disagree
about the order of two instances, so the match is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from pipelines.critical_path.graph.chains import Ints
from pipelines.critical_path.graph.dependency_graph import ArrayGraph, unfeasible
from pipelines.fleet.path.rank_graph import RankGraph


@dataclass(frozen=True)
class Instance:
    """A matched collective. `members`: the kernel of every participating rank, as (rank, event_id)."""

    collective_id: str
    members: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Meeting:
    """An instance in the joined graph, with times in ns on the common clock.

    members: (index of the rank, index of the kernel's start node). The kernel's end is the next node. arrived_ns: when
    the last rank arrived. last: the member that arrived last (on a tie, the lowest rank). transfer_ns: the shortest
    duration of a member's kernel, which does not depend on clock offsets.
    """

    collective_id: str
    members: tuple[tuple[int, int], ...]
    arrived_ns: int
    last: tuple[int, int]
    transfer_ns: int


class RanksDisagree(ValueError):
    """A cycle in the joined graph. `components`: the nodes of each strongly connected component, as text."""

    def __init__(self, components: list[list[str]]) -> None:
        self.components = components
        nodes_text = "; ".join(", ".join(nodes[:12]) + (" …" if len(nodes) > 12 else "") for nodes in components[:3])
        has_collective = any(node.startswith("collective") for nodes in components for node in nodes)
        reason = (
            "ranks disagree about the order of collectives, so they are matched wrongly"
            if has_collective
            else "it lies within one rank"
        )
        super().__init__(f"the joined graph has a cycle: {reason}. Strongly connected: {nodes_text}")


@dataclass(frozen=True, eq=False)
class JoinedGraph:
    """The graphs of ranks, ordered by rank, and the collectives at which they meet.

    meeting_of: a dict per rank, from the index of a kernel's end node to the index of its meeting.
    """

    ranks: tuple[RankGraph, ...]
    meetings: tuple[Meeting, ...]
    meeting_of: tuple[dict[int, int], ...]

    def __len__(self) -> int:
        return sum(len(graph.node) for graph in self.ranks) + len(self.meetings)

    @cached_property
    def n_edges(self) -> int:
        """Return the number of edges, including those to and from meetings."""
        return len(self.edges()[0])

    def graph(self) -> ArrayGraph:
        """Return the joined graph, with weights in ns on each rank's own clock.

        Nodes are numbered rank after rank, as in RankGraph. The meetings follow.
        """
        src, dst, weight = self.edges()[:3]
        return ArrayGraph(np.arange(len(self), dtype=src.dtype), src, dst, weight)

    def timed(self) -> tuple[ArrayGraph, Ints, np.ndarray]:
        """Return the joined graph on the common clock, the time of each node, ns, and the `owner` array of `edges`.

        In this graph, the weight of an edge out of a meeting is the time from the last arrival to the end of the rank's
        kernel.
        """
        src, dst, weight, owner = self.edges()
        # An empty list without int64 would turn all times into doubles, which cannot represent ns since 1970.
        arrivals = np.array([meeting.arrived_ns for meeting in self.meetings], np.int64)
        node_ns = np.concatenate([*(graph.common_ns for graph in self.ranks), arrivals])
        is_transfer = src >= self.bases()[-1]
        weight[is_transfer] = np.maximum(node_ns[dst[is_transfer]] - node_ns[src[is_transfer]], 0)
        return (
            ArrayGraph(np.arange(len(self), dtype=src.dtype), src, dst, weight),
            node_ns,
            owner,
        )

    def edges(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return (source node, target node, weight in ns, owner) of all edges, each (m,).

        The owner is the edge that the time is attributed to, as an index into the edges of all ranks, one rank after
        another. The owner of an edge out of a meeting is the kernel's edge. The owner of an edge into a meeting is -1.
        The edges of matched kernels are omitted.
        """
        base, sizes = self.bases(), [len(meeting.members) for meeting in self.meetings]
        starts = [base[rank] + start_node for meeting in self.meetings for rank, start_node in meeting.members]
        dtype = self.ranks[0].src.dtype
        start = np.array(starts, dtype)
        meeting_node = np.repeat(np.arange(len(sizes), dtype=dtype) + base[-1], sizes)
        is_meeting_end = np.zeros(base[-1], bool)
        is_meeting_end[start + 1] = True
        kernel_edge = np.full(base[-1], -1, dtype)  # by the kernel's end node
        capacity = sum(len(graph.src) for graph in self.ranks) + 2 * len(start)
        src, dst, owner = np.empty((3, capacity), dtype)
        weight, n, n_seen = np.zeros(capacity, np.int64), 0, 0
        # One rank at a time, because copies of all ranks' edges may not fit into memory.
        for graph, begin in zip(self.ranks, base, strict=False):
            source, to = graph.src + begin, graph.destinations() + begin
            is_kept = (source + 1 != to) | ~is_meeting_end[to]
            kept_edges, dropped_edges = np.flatnonzero(is_kept), np.flatnonzero(~is_kept)
            kernel_edge[to[dropped_edges]] = dropped_edges + n_seen
            end = n + len(kept_edges)
            src[n:end], dst[n:end], weight[n:end], owner[n:end] = (
                source[kept_edges],
                to[kept_edges],
                graph.weight[kept_edges],
                kept_edges + n_seen,
            )
            n, n_seen = end, n_seen + len(source)
        into, end = slice(n, n + len(start)), n + 2 * len(start)
        src[into], dst[into], owner[into] = start, meeting_node, -1
        out = slice(into.stop, end)
        src[out], dst[out], owner[out] = meeting_node, start + 1, kernel_edge[start + 1]
        weight[out] = np.repeat(np.array([meeting.transfer_ns for meeting in self.meetings], np.int64), sizes)
        return src[:end], dst[:end], weight[:end], owner[:end]

    def bases(self) -> list[int]:
        """Return the number of each rank's first node, then the number of the first meeting."""
        return [0, *np.cumsum([len(graph.node) for graph in self.ranks]).tolist()]

    def name_of(self, node: int) -> str:
        """Return a human-readable name of a node of `graph()`."""
        base = self.bases()
        if node >= base[-1]:
            return f"collective {self.meetings[node - base[-1]].collective_id}"
        rank = int(np.searchsorted(base, node, side="right")) - 1
        graph = self.ranks[rank]
        event, is_end = divmod(int(graph.node[node - base[rank]]), 2)
        return f"rank {graph.rank} event {event} {'end' if is_end else 'start'}"


def join_ranks(graphs: Sequence[RankGraph], instances: Sequence[Instance]) -> JoinedGraph:
    """Join the graphs of ranks, with `common_ns` on one clock, at each instance that at least two of them contain."""
    ranks = tuple(sorted(graphs, key=lambda graph: graph.rank))
    index_of = {graph.rank: index for index, graph in enumerate(ranks)}
    meetings: list[Meeting] = []
    meeting_of: tuple[dict[int, int], ...] = tuple({} for _ in ranks)
    for instance in instances:
        members = []
        for rank, event_id in sorted(instance.members):
            node = ranks[index_of[rank]].place_of(2 * event_id) if rank in index_of else None
            if node is not None:
                members.append((index_of[rank], node))
        if len(members) > 1:
            for rank, node in members:
                meeting_of[rank][node + 1] = len(meetings)
            meetings.append(_meeting(instance.collective_id, members, ranks))
    return JoinedGraph(ranks, tuple(meetings), meeting_of)


def _meeting(name: str, members: list[tuple[int, int]], ranks: Sequence[RankGraph]) -> Meeting:
    starts = [int(ranks[rank].common_ns[node]) for rank, node in members]
    durations = [int(ranks[rank].at_ns[node + 1] - ranks[rank].at_ns[node]) for rank, node in members]
    last = int(np.argmax(starts))
    return Meeting(name, tuple(members), starts[last], members[last], min(durations))


def heaviest_path_ns(joined: JoinedGraph) -> int:
    """Return the length of the longest path of the joined graph, ns, in which all ranks begin at 0.

    If the graph has a cycle, raise RanksDisagree with the strongly connected components.
    """
    graph = joined.graph()
    try:
        return sum(graph.weight[graph.path()].tolist())
    except unfeasible():
        import networkx as nx
    all_components = nx.strongly_connected_components(graph.to_networkx())
    components = [sorted(nodes) for nodes in all_components if len(nodes) > 1]
    raise RanksDisagree([[joined.name_of(node) for node in nodes[::-1]] for nodes in components])
