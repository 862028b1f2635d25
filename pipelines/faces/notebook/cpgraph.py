"""A critical path's graph in HTA's form: a `networkx.DiGraph` with HTA's nodes, edges and attributes.

networkx's dictionaries are built on first use, so a path that is only summarized does not pay for them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

from pipelines.critical_path.answer.edited_graph import UNIT
from pipelines.critical_path.answer.saved_path import SavedPath
from pipelines.critical_path.graph.bounds import int_column
from pipelines.critical_path.graph.edge_types import HTA_TYPES

if TYPE_CHECKING:
    import pyarrow as pa

    from pipelines.critical_path.graph.dependency_graph import ArrayGraph


class CPEdgeType(Enum):
    """HTA's types of edges, and the additional types of `sql/rules/path/edge_types.csv`, such as `SYNC_DEPENDENCY`."""

    vars().update(HTA_TYPES)


@dataclass(frozen=True)
class CPEdge:
    """An edge between two nodes. `weight`: the measured weight, us."""

    begin: int
    end: int
    weight: float = 0
    type: CPEdgeType = CPEdgeType["OPERATOR_KERNEL"]


@dataclass
class CPNode:
    """The start or the end of an event: `idx` is the node, `ev_idx` the event, `ts` the time in us on the trace's clock."""

    idx: int = -1
    ev_idx: int = -1
    ts: float = 0
    is_start: bool = False
    is_blocking: bool = False


class NodeList:
    """HTA's `node_list`: maps a node's number to its CPNode. `len` is the number of nodes. Iteration is in event order."""

    def __init__(self, nodes: pa.Table, blocking: frozenset[int]) -> None:
        self._ids, self._ts = int_column(nodes, "node_id"), nodes["at_ns"].to_pylist()
        self._blocking = blocking

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[CPNode]:
        return map(self._node, range(len(self._ids)))

    def __getitem__(self, node: int) -> CPNode:
        index = int(np.searchsorted(self._ids, node))
        if index == len(self._ids) or self._ids[index] != node:
            raise IndexError(f"there is no node {node}: nodes are 2·event_id (start) and 2·event_id + 1 (end)")
        return self._node(index)

    def _node(self, index: int) -> CPNode:
        node, at_ns = int(self._ids[index]), self._ts[index]
        return CPNode(node, node // 2, 0 if at_ns is None else us(at_ns), node % 2 == 0, node // 2 in self._blocking)


def us(ns: int) -> float:
    """Convert ns to us, HTA's unit. Return an int if the result is a whole number."""
    return ns // 1000 if ns % 1000 == 0 else ns / 1000


def _lazy(name: str) -> Any:
    """Return a property for one of networkx's dictionaries, which are built together on first use."""

    def get(graph: LazyGraph) -> Any:
        if name not in graph.__dict__:
            graph._fill()
        return graph.__dict__[name]

    def put(graph: LazyGraph, value: Any) -> None:
        graph.__dict__[name] = value

    return property(get, put)


class LazyGraph(nx.DiGraph):
    """The graph of `saved`.

    Edges have `weight` (us, as used on the path), `type` (HTA's text), `object` (a CPEdge) and `event_id` (the event to which
    their time is attributed). Nodes are 2·event_id (start) and 2·event_id + 1 (end), with at_ns and name.
    """

    saved: SavedPath
    unit = "us"
    _node, _adj, _succ, _pred = _lazy("_node"), _lazy("_adj"), _lazy("_succ"), _lazy("_pred")

    def hold(self, saved: SavedPath) -> None:
        """Replace the graph by that of another path, and drop the cached properties of the previous path."""
        if "graph" not in self.__dict__:
            super().__init__()
            for name in ("_node", "_adj", "_succ", "_pred"):
                self.__dict__.pop(name, None)
        self.saved = saved
        self.graph.update({**of_path(saved), UNIT: self.unit})
        for kind in (cls for cls in type(self).__mro__ if issubclass(cls, LazyGraph)):
            for name, value in vars(kind).items():
                if isinstance(value, cached_property):
                    self.__dict__.pop(name, None)

    @property
    def is_filled(self) -> bool:
        """Return whether networkx's dictionaries have been built. Only then can the graph have been edited."""
        return "_node" in self.__dict__

    @property
    def arrays(self) -> ArrayGraph:
        """Return the graph as arrays for networkx, weights in ns.

        `networkx.dag_longest_path(path.arrays)` returns the path.
        """
        return self.saved.graph()

    def to_networkx(self) -> nx.DiGraph:
        """Return an ordinary `networkx.DiGraph` as of the last `critical_path()`.

        Its weights are integers in ns, and its edges have no CPEdge objects.
        """
        graph = self._plain()
        kinds, owners = (self.saved.edges[name].to_pylist() for name in ("edge_type", "attributed_event_id"))
        for (src, dst), kind, event in zip(self._ends(), kinds, owners, strict=True):
            graph.edges[src, dst].update(type=HTA_TYPES.get(kind, kind), event_id=event)
        graph.graph.update({**of_path(self.saved), UNIT: "ns"})
        return graph

    def _plain(self) -> nx.DiGraph:
        graph = self.arrays.to_networkx()
        nodes = (self.saved.nodes[column].to_pylist() for column in ("node_id", "at_ns", "name"))
        graph.add_nodes_from((node, {"at_ns": ts, "name": name}) for node, ts, name in zip(*nodes, strict=True))
        return graph

    def _ends(self) -> Iterator[tuple[int, int]]:
        return zip(*(self.saved.edges[name].to_pylist() for name in ("src_node_id", "dst_node_id")), strict=True)

    def _fill(self) -> None:
        made = self._plain()
        columns = (self.saved.edges[name].to_pylist() for name in _OF_EDGE)
        for (src, dst), kind, measured, used, event in zip(self._ends(), *columns, strict=True):
            edge = CPEdge(src, dst, us(measured), CPEdgeType[kind])
            made[src][dst].update(weight=us(used), object=edge, type=edge.type.value, event_id=event)
        self._take(made)

    def _take(self, made: nx.DiGraph) -> None:
        """Take over the networkx dictionaries of another graph."""
        for name in ("_node", "_adj", "_succ", "_pred"):
            self.__dict__[name] = made.__dict__[name]

    @property
    def is_edited(self) -> bool:
        """Return whether nodes, edges or weights differ from those of `saved`."""
        if not self.is_filled:
            return False
        weights = dict(zip(self._ends(), map(us, self.saved.edges["path_weight_ns"].to_pylist()), strict=True))
        now = {(src, dst): weight for src, dst, weight in self.edges(data="weight")}
        return weights != now or set(self) != set(self.saved.nodes["node_id"].to_pylist())

    @property
    def rank(self) -> int | None:
        """Return the trace's rank, or None if it is unknown."""
        return self.saved.meta["trace"]["rank"]

    @cached_property
    def node_list(self) -> NodeList:
        """Return HTA's `node_list`: the nodes by number."""
        events = self.saved.events
        blocking = events.filter(events["is_blocking"])["event_id"].to_pylist()
        return NodeList(self.saved.nodes.sort_by("node_id"), frozenset(blocking))

    @cached_property
    def critical_path_nodes(self) -> list[int]:
        """Return the nodes on the path, in order."""
        steps = list(zip(*(self.saved.path[name].to_pylist() for name in _OF_STEP), strict=True))
        first = [2 * src + (not starts) for src, starts, _, _ in steps[:1]]
        return [*first, *(2 * dst + (not starts) for _, _, dst, starts in steps)]

    @cached_property
    def critical_path_events_set(self) -> set[int]:
        """Return the events that start or end on the path."""
        return {node // 2 for node in self.critical_path_nodes}

    @cached_property
    def critical_path_edges_set(self) -> set[CPEdge]:
        """Return the edges on the path."""
        pairs = nx.utils.pairwise(self.critical_path_nodes)
        columns = (self.saved.path[name].to_pylist() for name in ("edge_type", "weight_ns"))
        return {
            CPEdge(src, dst, us(ns), CPEdgeType[kind]) for (src, dst), kind, ns in zip(pairs, *columns, strict=True)
        }

    @cached_property
    def event_to_start_node_map(self) -> dict[int, int]:
        """Return the start node of each event."""
        return self._nodes_of_events(0)

    @cached_property
    def event_to_end_node_map(self) -> dict[int, int]:
        """Return the end node of each event."""
        return self._nodes_of_events(1)

    def _nodes_of_events(self, odd: int) -> dict[int, int]:
        return {node // 2: node for node in self.saved.nodes["node_id"].to_pylist() if node % 2 == odd}

    @cached_property
    def edge_to_event_map(self) -> dict[tuple[int, int], int]:
        """Return the event to which an edge's time is attributed, by edge (source, target). Other edges are missing."""
        owners = self.saved.edges["attributed_event_id"].to_pylist()
        return {ends: event for ends, event in zip(self._ends(), owners, strict=True) if event is not None}

    def get_nodes_for_event(self, event_id: int) -> tuple[CPNode, CPNode]:
        """Return the start and end node of an event. Raise IndexError if it is not in the graph."""
        return self.node_list[2 * event_id], self.node_list[2 * event_id + 1]

    def get_events_for_edge(self, edge: CPEdge) -> tuple[int, int]:
        """Return the events at both ends of an edge."""
        return edge.begin // 2, edge.end // 2

    def get_edges_attributed_to_event(self, event_id: int) -> list[CPEdge]:
        """Return the edges whose time is attributed to an event."""
        import pyarrow as pa

        is_attributed = int_column(self.saved.edges, "attributed_event_id") == event_id
        return [
            CPEdge(row["src_node_id"], row["dst_node_id"], us(row["weight_ns"]), CPEdgeType[row["edge_type"]])
            for row in self.saved.edges.filter(pa.array(is_attributed)).to_pylist()
        ]


_OF_EDGE = ("edge_type", "weight_ns", "path_weight_ns", "attributed_event_id")
_OF_STEP = ("src_event_id", "src_is_start", "dst_event_id", "dst_is_start")


def of_path(saved: SavedPath) -> dict[str, Any]:
    """Return graph attributes, as plain JSON values, that identify the graph's path, so that `with_graph` accepts the graph."""
    window = saved.meta["window"]
    named = {name: window[name] for name in ("window_id", "annotation", "first_instance", "last_instance")}
    return {
        "path_of": {
            "trace_id": saved.meta["trace"]["trace_id"],
            **named,
            "profile": saved.meta["profile"],
            "switches": dict(saved.meta["switches"]),
        }
    }
