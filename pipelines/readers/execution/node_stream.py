"""Stream of the nodes of an execution trace, of which only the ids stay in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pipelines.readers.execution.nodes import Node, parse_node
from pipelines.readers.execution.stream import NodeStream
from pipelines.readers.kineto.reading_result import TraceRejected


def stream_nodes(path: Path, stream: NodeStream) -> Iterator[Node]:
    """Yield the nodes in the order of the file.

    Raise TraceRejected if the file is not an execution trace or has a node id twice, and OSError if it cannot be read.
    """
    node_ids: set[int] = set()
    for index, raw in enumerate(stream.nodes()):
        try:
            node = parse_node(raw, index)
        except ValueError as error:
            raise TraceRejected(path, None, str(error)) from None
        except RecursionError:
            raise TraceRejected(path, None, f"node {index} has lists in lists too deep to read") from None
        if node.node_id in node_ids:
            raise TraceRejected(path, None, f"node {node.node_id} occurs twice: are these two traces in one file?")
        node_ids.add(node.node_id)
        yield node
