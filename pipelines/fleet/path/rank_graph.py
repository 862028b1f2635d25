"""The dependency graph of one rank as arrays, for a backward walk.

It uses about 29 bytes per node and 22 bytes per edge, and no Python objects for them, so the graphs of many ranks fit
into memory together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

FRAME, CPU, GPU = range(3)
"""The side of a node. FRAME: annotation or Python function outside operators. CPU: operator or call. GPU: GPU work."""
_EDGE_PARTS = {"weight": np.int64, "code": np.int8, "attributed": np.int32, "owner": np.int32, "flags": np.int8}
INFERRED, EARLIER = 1, 2
"""Flags of an edge: INFERRED, a wait that no cuda_sync row records; EARLIER, a wait for GPU work outside the window."""


@dataclass(frozen=True, eq=False)
class RankGraph:
    """The graph of one rank, from the nodes and edges of its trace (`critical_path_nodes`, `critical_path_edges`).

    node (n,): node ids, ascending. The id is twice the event id, plus 1 for the event's end. at_ns (n,): the node's
    time on the rank's own clock. common_ns (n,): its time on the common clock. side (n,): FRAME, CPU or GPU. The edges
    into the node with index v are first[v] to first[v + 1] - 1. src (m,): node indices. weight (m,): ns. code (m,):
    edge types. attributed (m,): the event whose time the edge is, -1 without one. owner (m,): the event that is shown
    for the edge, -1 without one. flags (m,): INFERRED and EARLIER.
    """

    rank: int
    trace_id: str
    node: npt.NDArray[np.int64]
    at_ns: npt.NDArray[np.int64]
    common_ns: npt.NDArray[np.int64]
    side: npt.NDArray[np.int8]
    first: npt.NDArray[np.int32]
    src: npt.NDArray[np.int32]
    weight: npt.NDArray[np.int64]
    code: npt.NDArray[np.int8]
    attributed: npt.NDArray[np.int32]
    owner: npt.NDArray[np.int32]
    flags: npt.NDArray[np.int8]

    def place_of(self, node: int) -> int | None:
        """Return the index of a node, or None if the graph does not have it."""
        index = int(np.searchsorted(self.node, node))
        return index if index < len(self.node) and self.node[index] == node else None

    def destinations(self) -> npt.NDArray[np.int32]:
        """Return the index of the node that each edge leads to, (m,)."""
        return np.repeat(np.arange(len(self.node), dtype=np.int32), np.diff(self.first))

    def behind(self, offset_ns: int) -> RankGraph:
        """Return the graph with common times for a clock that is ahead by `offset_ns`."""
        return replace(self, common_ns=self.at_ns - offset_ns)


def rank_graph(
    rank: int, trace_id: str, nodes: Mapping[str, npt.NDArray], edges: Mapping[str, npt.NDArray]
) -> RankGraph:
    """Return the graph of a rank, with nodes and edges sorted.

    `nodes`: arrays (n,) node, at_ns, side. `edges`: arrays (m,) src, dst (node ids), weight, code, attributed, owner,
    flags. Common times equal the times on the rank's own clock, until `behind` changes them.
    """
    by_node = np.argsort(nodes["node"], kind="stable")
    node, at_ns = (nodes[name][by_node].astype(np.int64) for name in ("node", "at_ns"))
    src, dst = (np.searchsorted(node, edges[name]).astype(np.int32) for name in ("src", "dst"))
    order = np.argsort(dst, kind="stable")
    first = np.zeros(len(node) + 1, np.int32)
    np.cumsum(np.bincount(dst, minlength=len(node)), out=first[1:])
    parts = {name: edges[name][order].astype(kind) for name, kind in _EDGE_PARTS.items()}
    side = nodes["side"][by_node].astype(np.int8)
    return RankGraph(rank, trace_id, node, at_ns, at_ns, side, first, src[order], **parts)
