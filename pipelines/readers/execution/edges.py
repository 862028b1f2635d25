"""Data dependencies between the nodes of an execution trace, from the tensors that they read and write.

The file orders nodes by end, and ids order them by start. Nodes are visited by start, after the effects of all nodes
that ended before. A node that starts depends on

- the last node that returned the tensor (a view, for example), and the last node that wrote its memory (`read`);
- if it writes an argument in place, the nodes that have read that memory since (`overwrite`).

Memory means an entire storage of the observer, so operators on disjoint slices of one buffer depend on each other.
Operators enclosing a node are not its producers, because the call itself orders them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pipelines.readers.execution.nodes import Node

Edge = tuple[int, int, str]
"""(producer, consumer, read or overwrite)"""


def data_edges(nodes: Sequence[Node]) -> list[Edge]:
    """Return the edges between node ids, each pair once. `nodes` are in the order of the file."""
    edges: dict[tuple[int, int], str] = {}
    memory, applied = _Memory(), 0
    for node, n_ended in _starts(nodes):
        while applied < n_ended:  # `place` is the node's index in the file
            memory.end(nodes[applied])
            applied += 1
        for producer, kind in memory.start(node):
            edges.setdefault((producer, node.node_id), kind)
    return [(producer, consumer, kind) for (producer, consumer), kind in edges.items()]


def _starts(nodes: Sequence[Node]) -> list[tuple[Node, int]]:
    """Return the nodes in order of start, each with the number of nodes that are assumed to have ended by then.

    On the node's own thread, every node that ran before and does not enclose it has ended, and so has every node before
    that node in the file. On other threads, a node is assumed to have ended if it began before this node and ended
    before any node inside it. This may count an end slightly too early.
    """
    by_id = {node.node_id: node for node in nodes}
    first = _first_ends(nodes)
    before: dict[int, Node] = {}
    nodes_with_ends, n_ended = [], 0
    for node in sorted(nodes, key=lambda n: n.node_id):
        last = before.get(node.tid)
        while last is not None and last.node_id != node.parent_id and last.place < node.place:
            n_ended = max(n_ended, last.place + 1)
            # A parent starts before its children. Following any other id might never end.
            last = by_id.get(last.parent_id) if last.parent_id < last.node_id else None
        while n_ended < first[node.node_id] and nodes[n_ended].node_id < node.node_id:
            n_ended += 1
        before[node.tid] = node
        nodes_with_ends.append((node, n_ended))
    return nodes_with_ends


def _first_ends(nodes: Sequence[Node]) -> dict[int, int]:
    """Return the index of the first node to end inside each node, itself included, by node id."""
    first: dict[int, int] = {}
    for node in nodes:
        first_inside = min(first.get(node.node_id, node.place), node.place)
        first[node.node_id] = first_inside
        first[node.parent_id] = min(first.get(node.parent_id, first_inside), first_inside)
    return first


class _Memory:
    """The node that returned each tensor, the node that last wrote each storage, and the nodes that read it since."""

    def __init__(self) -> None:
        self.maker: dict[tuple[int, int], int] = {}
        self.writer: dict[int, int] = {}
        self.readers: defaultdict[int, list[int]] = defaultdict(list)

    def start(self, node: Node) -> list[tuple[int, str]]:
        """Return the producers of a node that starts, each with the kind of the edge."""
        producers: list[tuple[int, str]] = []
        for tensor in node.inputs:
            maker = self.maker.get((tensor.tensor_id, tensor.storage_id))
            writer = self.writer.get(tensor.storage_id)
            producers += [(producer, "read") for producer in (maker, writer) if producer is not None]
            if tensor.is_mutated:
                producers += [(reader, "overwrite") for reader in self.readers[tensor.storage_id]]
        return producers

    def end(self, node: Node) -> None:
        """Record the outputs and writes of a node that ended."""
        read = {tensor.storage_id for tensor in node.inputs}
        written = {tensor.storage_id for tensor in node.inputs if tensor.is_mutated}
        for tensor in node.outputs:
            self.maker[tensor.tensor_id, tensor.storage_id] = node.node_id
            if tensor.storage_id not in read:  # otherwise it is a view, or was mutated in place
                written.add(tensor.storage_id)
        for storage in written - {0}:
            self.writer[storage] = node.node_id
            self.readers.pop(storage, None)
        for storage in read - written - {0}:
            self.readers[storage].append(node.node_id)
