"""One execution trace → its nodes, one after another; only their ids are held."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipelines.readers.execution.nodes import Node, parse_node
from pipelines.readers.execution.stream import NodeStream
from pipelines.readers.kineto.reading_result import TraceRejected


def stream_nodes(path: Path, stream: NodeStream) -> Iterator[Node]:
    """Yields the nodes in the order of the file. Raises TraceRejected, and OSError if the file cannot be read."""
    seen: set[int] = set()
    for place, raw in enumerate(stream.nodes()):
        try:
            node = parse_node(raw, place)
        except ValueError as error:
            raise TraceRejected(str(path), None, str(error)) from None
        except RecursionError:
            raise TraceRejected(str(path), None, f"node {place} has lists in lists too deep to read") from None
        if node.node_id in seen:
            raise TraceRejected(str(path), None, f"node {node.node_id} occurs twice: are these two traces in one file?")
        seen.add(node.node_id)
        yield node
