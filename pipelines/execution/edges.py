"""Which node of an execution trace made what another one read.

The file orders nodes by their end, ids by their start. Walking over the starts, with the ends known so far applied in
order, a node that starts depends on

- the last node that gave back the tensor (a view, say), and the last that wrote its memory (`read`);
- where it writes an argument in place, the nodes that read that memory since (`overwrite`).

Memory is what the observer calls a storage, as a whole: operators on disjoint slices of one buffer depend on each other.
Operators around a node are not producers of it: the call itself orders them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from pipelines.execution.nodes import Node

Edge = tuple[int, int, str]
"""(producer, consumer, read or overwrite)"""


def data_edges(nodes: Sequence[Node]) -> list[Edge]:
    """The edges between node ids, each pair once. `nodes` are in the order of the file."""
    edges: dict[tuple[int, int], str] = {}
    memory, applied = _Memory(), 0
    for node, n_ended in _starts(nodes):
        while applied < n_ended:  # `place` counts the nodes of the file
            memory.end(nodes[applied])
            applied += 1
        for producer, kind in memory.start(node):
            edges.setdefault((producer, node.node_id), kind)
    return [(producer, consumer, kind) for (producer, consumer), kind in edges.items()]


def _starts(nodes: Sequence[Node]) -> list[tuple[Node, int]]:
    """The nodes in order of their start, and how many nodes of the file are taken to have ended by then.

    What ran on the node's own thread and is not around it has ended, and so has all that the file has before that. Of
    other threads also what began before the node and ended before anything in it did: it may end a little late.
    """
    by_id = {node.node_id: node for node in nodes}
    first = _first_ends(nodes)
    before: dict[int, Node] = {}
    found, n_ended = [], 0
    for node in sorted(nodes, key=lambda n: n.node_id):
        last = before.get(node.tid)
        while last is not None and last.node_id != node.parent_id and last.place < node.place:
            n_ended = max(n_ended, last.place + 1)
            last = by_id.get(last.parent_id) if last.parent_id != last.node_id else None
        while n_ended < first[node.node_id] and nodes[n_ended].node_id < node.node_id:
            n_ended += 1
        before[node.tid] = node
        found.append((node, n_ended))
    return found


def _first_ends(nodes: Sequence[Node]) -> dict[int, int]:
    """The place of the first node to end in each node, itself included."""
    first: dict[int, int] = {}
    for node in nodes:
        mine = min(first.get(node.node_id, node.place), node.place)
        first[node.node_id] = mine
        first[node.parent_id] = min(first.get(node.parent_id, mine), mine)
    return first


class _Memory:
    """Who gave back each tensor, who wrote each storage, and who read it since."""

    def __init__(self) -> None:
        self.maker: dict[tuple[int, int], int] = {}
        self.writer: dict[int, int] = {}
        self.readers: defaultdict[int, list[int]] = defaultdict(list)

    def start(self, node: Node) -> list[tuple[int, str]]:
        """The producers of a node that starts."""
        found: list[tuple[int, str]] = []
        for tensor in node.inputs:
            maker = self.maker.get((tensor.tensor_id, tensor.storage_id))
            writer = self.writer.get(tensor.storage_id)
            found += [(producer, "read") for producer in (maker, writer) if producer is not None]
            if tensor.is_mutated:
                found += [(reader, "overwrite") for reader in self.readers[tensor.storage_id]]
        return found

    def end(self, node: Node) -> None:
        """What a node that ended leaves behind."""
        read = {tensor.storage_id for tensor in node.inputs}
        written = {tensor.storage_id for tensor in node.inputs if tensor.is_mutated}
        for tensor in node.outputs:
            self.maker[tensor.tensor_id, tensor.storage_id] = node.node_id
            if tensor.storage_id not in read:  # else a view, or what was mutated
                written.add(tensor.storage_id)
        for storage in written - {0}:
            self.writer[storage] = node.node_id
            self.readers.pop(storage, None)
        for storage in read - written - {0}:
            self.readers[storage].append(node.node_id)
