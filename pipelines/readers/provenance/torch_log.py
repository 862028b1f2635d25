"""Compiled graphs in a log of TORCH_TRACE, read line by line.

Source: `TorchLogsFormatter` in torch/_logging/_internal.py. A line has level, date, time, process and source location,
then JSON. The payload follows in lines that begin with a tab. The two artifacts of a graph follow each other
(torch/_inductor/compile_fx.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from pipelines.readers.inputs.faults import SHOWN, Faults
from pipelines.readers.provenance.graphs import Graph

LONGEST_LINE = 32 << 20
HEAD = re.compile(rb"[VIWEC]\d{4} [\d:.]+ (\d{1,18}) [^\n\]]*\] (\{.*)")
ARTIFACTS = {
    "inductor_provenance_tracking_node_mappings": "mapping",
    "inductor_provenance_tracking_kernel_stack_traces": "stacks",
}
"""Name of an artifact in a log or a debug folder → attribute of Graph."""
_ANY = b"inductor_provenance_tracking_"


class TorchLog:
    """Iterator over the graphs of a log, in one pass.

    `faults`: faults of unreadable parts. `first_line`, `pid`, `rank`: facts about the log, None until they are read.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._lines = lines(chunks)
        self.first_line: bytes | None = None
        self.pid: int | None = None
        self.rank: int | None = None
        self.faults = Faults()

    def __iter__(self) -> Iterator[Graph]:
        """Yield each graph after both of its artifacts, or when another graph or the end shows that one is missing."""
        graph, awaited = None, None
        for number, (line, is_whole) in enumerate(self._lines, 1):
            self.first_line = line if self.first_line is None else self.first_line
            if awaited and line[:1] == b"\t":
                graph, complete = self._with_payload(graph, *awaited, number, line[1:], is_whole)
                awaited = None
                if complete:
                    yield complete
                continue
            if awaited:
                self.faults.add(
                    "no_payload", "warning", f"line {number - 1:,} announces a payload that does not follow"
                )
            awaited = self._announced(number, line) if line[:1] != b"\t" else None
        if awaited:
            self.faults.add("no_payload", "warning", "the log ends before the payload that its last line announces")
        if graph:
            yield graph

    def _announced(self, number: int, line: bytes) -> tuple[str, str | None] | None:
        """Return (artifact, compile id) of the payload that a line announces, or None for all other lines."""
        match = HEAD.fullmatch(line)
        if not match:
            return None
        self.pid = int(match[1]) if self.pid is None else self.pid
        if _ANY not in line and (self.rank is not None or b'"rank"' not in line):
            return None
        try:
            header = json.loads(match[2])
            artifact = header.get("artifact")
            part = ARTIFACTS.get(str(artifact.get("name"))) if isinstance(artifact, dict) else None
        except (ValueError, RecursionError):
            self.faults.add("not_json", "warning", f"line {number:,} is not JSON behind the bracket")
            return None
        if type(header.get("rank")) is int and 0 <= header["rank"] < 2**63:
            self.rank = header["rank"]
        return (part, _compile_id(header)) if part and header.get("has_payload") else None

    def _with_payload(
        self, graph: Graph | None, part: str, compile_id: str | None, number: int, text: bytes, is_whole: bool
    ) -> tuple[Graph | None, Graph | None]:
        """Add a payload.

        Return the graph that is being read and the graph that is complete, each of which may be None.
        """
        value: Any = None
        if not is_whole:
            self.faults.add(
                "cut_line", "warning", f"line {number:,} has no end or is longer than {LONGEST_LINE >> 20} MiB"
            )
        else:
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                self.faults.add(
                    "not_json", "warning", f"line {number:,} is not JSON: {text[:SHOWN].decode('utf-8', 'replace')}"
                )
            else:
                if not isinstance(value, dict):
                    self.faults.add("wrong_form", "warning", f"line {number:,} is not an object")
                    value = None
        if value is None:
            return graph, None
        if part == "stacks" and graph and graph.compile_id == compile_id:
            graph.stacks = value
            return None, graph
        new = Graph(compile_id, **{part: value})
        return (new, graph) if part == "mapping" else (graph, new)


def _compile_id(header: dict[str, Any]) -> str | None:
    """Return the compile id as torch writes it (frame/compile), or None if the line has no compile id."""
    numbers = [header.get("frame_id"), header.get("frame_compile_id")]
    if not all(type(number) is int for number in numbers):
        return None
    autograd = header.get("compiled_autograd_id")
    return (f"!{autograd}/" if type(autograd) is int else "") + "/".join(map(str, numbers))


def lines(chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yield lines without their line ends, and whether each is complete.

    Truncate longer lines at LONGEST_LINE bytes.
    """
    line_parts: list[bytes] = []
    size = 0
    for chunk in chunks:
        *line_ends, remainder = chunk.split(b"\n")
        for piece in line_ends:
            n_bytes_left = LONGEST_LINE - size
            yield b"".join((*line_parts, piece[: max(n_bytes_left, 0)])), len(piece) <= n_bytes_left
            line_parts, size = [], 0
        if remainder and size < LONGEST_LINE:
            line_parts.append(remainder[: LONGEST_LINE - size])
        size += len(remainder)
    if line_parts or size:
        yield b"".join(line_parts), False
