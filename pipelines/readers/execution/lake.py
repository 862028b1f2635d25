"""Ingestion of execution traces: a row of `execution_traces` per file, with its path but without its nodes.

Fleets store execution traces next to profiler traces, so an ingested folder contains both. Execution traces must not be
rejected as broken profiler traces.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from pipelines.readers.execution.neighbor_files import looks_like_execution_trace, number_in_name
from pipelines.readers.execution.node_stream import stream_nodes
from pipelines.readers.execution.stream import NodeStream
from pipelines.readers.inputs import Read, Reading, Rejected, SetInput
from pipelines.readers.kineto.numbers import whole
from pipelines.readers.kineto.reading_result import TraceRejected
from pipelines.readers.kineto.source import TooLarge, content_hash

TABLE = "execution_traces"
_READ_BY = "an execution trace: `tracelake critical-path TRACE --dependencies data` reads it with the profiler trace next to it"


def execution_traces(files: Iterable[Path]) -> dict[Path, list[Path]]:
    """Return the files that begin like execution traces, each as its own set."""
    return {path: [path] for path in files if looks_like_execution_trace(path)}


def read_execution_trace(reading: Reading, path: Path, _: Collection[Path]) -> Read:
    """Stage the row of one file. Raise Rejected if the file is broken or too large.

    To detect a broken file, every node is read.
    """
    try:
        digest, unpacked_bytes = content_hash(path, reading.limits)
    except TooLarge as error:
        raise Rejected(f"an execution trace that is too large: {error.reason}") from None
    key = digest[:16]  # as for a profiler trace
    if key in reading.known:
        return Read(key, status="known", reason=_READ_BY)
    stream, n_nodes, n_operators = NodeStream(path), 0, 0
    try:
        for node in stream_nodes(path, stream):
            n_nodes += 1
            n_operators += node.is_operator
    except TraceRejected as error:
        position = "" if error.byte_offset is None else f" (at byte {error.byte_offset})"
        raise Rejected(f"an execution trace that cannot be read: {error.reason}{position}") from None
    row = {
        **reading.file_columns(path),
        "rank": number_in_name(path),
        "pid": whole(stream.head.get("pid")),
        "schema_version": str(stream.head.get("schema", "")) or None,
        "n_nodes": n_nodes,
        "n_operators": n_operators,
        "unpacked_bytes": unpacked_bytes,
    }
    reading.add_rows(TABLE, [row])
    return Read(key, n_nodes, reason=_READ_BY)


INPUT = SetInput(
    scope="execution",
    suffixes=(".json", ".gz"),
    recognise=execution_traces,
    read=read_execution_trace,
)
