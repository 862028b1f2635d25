"""Data dependencies between the nodes of an execution trace: which node produced what another one reads.

The file orders nodes by end; ids order them by start. Nodes are visited by start, after the effects of all nodes that
ended before. A node that starts depends on

- the last node that returned the tensor (a view, for example), and the last that wrote its memory (`read`);
- if it writes an argument in place, the nodes that have read that memory since (`overwrite`).

Memory means a whole storage of the observer: operators on disjoint slices of one buffer depend on each other. Operators
enclosing a node are not its producers: the call itself orders them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pipelines.readers.execution.nodes import Node

Edge = tuple[int, int, str]
"""(producer, consumer, read or overwrite)"""


def data_edges(nodes: Sequence[Node]) -> list[Edge]:
    """Returns the edges between node ids, each pair once. `nodes` are in the order of the file."""
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
    """Returns the nodes in order of start, each with how many nodes of the file are assumed to have ended by then.

    On the node's own thread, every node that ran before and does not enclose it has ended, and so has everything before
    that in the file. On other threads, so has what began before the node and ended before anything inside it; this may
    count an end slightly too early.
    """
    by_id = {node.node_id: node for node in nodes}
    first = _first_ends(nodes)
    before: dict[int, Node] = {}
    found, n_ended = [], 0
    for node in sorted(nodes, key=lambda n: n.node_id):
        last = before.get(node.tid)
        while last is not None and last.node_id != node.parent_id and last.place < node.place:
            n_ended = max(n_ended, last.place + 1)
            # What encloses it began before it. Anything else is no parent, and following it might never end.
            last = by_id.get(last.parent_id) if last.parent_id < last.node_id else None
        while n_ended < first[node.node_id] and nodes[n_ended].node_id < node.node_id:
            n_ended += 1
        before[node.tid] = node
        found.append((node, n_ended))
    return found


def _first_ends(nodes: Sequence[Node]) -> dict[int, int]:
    """Returns the index of the first node to end inside each node, itself included."""
    first: dict[int, int] = {}
    for node in nodes:
        mine = min(first.get(node.node_id, node.place), node.place)
        first[node.node_id] = mine
        first[node.parent_id] = min(first.get(node.parent_id, mine), mine)
    return first


class _Memory:
    """Which node returned each tensor, which wrote each storage, and which have read it since."""

    def __init__(self) -> None:
        self.maker: dict[tuple[int, int], int] = {}
        self.writer: dict[int, int] = {}
        self.readers: defaultdict[int, list[int]] = defaultdict(list)

    def start(self, node: Node) -> list[tuple[int, str]]:
        """Returns the producers of a node that starts."""
        found: list[tuple[int, str]] = []
        for tensor in node.inputs:
            maker = self.maker.get((tensor.tensor_id, tensor.storage_id))
            writer = self.writer.get(tensor.storage_id)
            found += [(producer, "read") for producer in (maker, writer) if producer is not None]
            if tensor.is_mutated:
                found += [(reader, "overwrite") for reader in self.readers[tensor.storage_id]]
        return found

    def end(self, node: Node) -> None:
        """Record what a node that ended produced."""
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
