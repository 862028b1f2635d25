"""The log of TORCH_TRACE → the graphs that were compiled, a line at a time.

Source: `TorchLogsFormatter` in torch/_logging/_internal.py: a line with level, date, time, process and place, then JSON; the
payload follows in lines that begin with a tab. The two artifacts of a graph follow each other (torch/_inductor/compile_fx.py).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from pipelines.models.sqltext import as_text
from pipelines.readers.provenance.graphs import Graph

LONGEST_LINE = 32 << 20
HEAD = re.compile(rb"[VIWEC]\d{4} [\d:.]+ (\d{1,18}) [^\n\]]*\] (\{.*)")
_ARTIFACTS = {
    "inductor_provenance_tracking_node_mappings": "mapping",
    "inductor_provenance_tracking_kernel_stack_traces": "stacks",
}
_ANY = b"inductor_provenance_tracking_"


class TorchLog:
    """One pass over a log: iterating yields its graphs. `faults`: what could not be read, by kind, as line and text;
    `first_line`, `pid`, `rank`: of the log.
    """

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._lines = lines(chunks)
        self.first_line: bytes | None = None
        self.pid: int | None = None
        self.rank: int | None = None
        self.faults: list[tuple[str, str]] = []

    def __iter__(self) -> Iterator[Graph]:
        """Yields graphs once both of their artifacts were read, or it is clear that one is missing."""
        graph, awaited = None, None
        for number, (line, is_whole) in enumerate(self._lines, 1):
            self.first_line = line if self.first_line is None else self.first_line
            if awaited and line[:1] == b"\t":
                graph, done = self._with_payload(graph, *awaited, number, line[1:], is_whole)
                awaited = None
                if done:
                    yield done
                continue
            if awaited:
                self.faults.append(("no_payload", f"line {number - 1:,} announces a payload that does not follow"))
            awaited = self._announced(number, line) if line[:1] != b"\t" else None
        if awaited:
            self.faults.append(("no_payload", "the log ends before the payload that its last line announces"))
        if graph:
            yield graph

    def _announced(self, number: int, line: bytes) -> tuple[str, str | None] | None:
        """Returns which part of which graph the next line is, by compile id; None for all other lines."""
        found = HEAD.fullmatch(line)
        if not found:
            return None
        self.pid = int(found[1]) if self.pid is None else self.pid
        if _ANY not in line and (self.rank is not None or b'"rank"' not in line):
            return None
        try:
            told = json.loads(found[2])
            artifact = told.get("artifact")
            part = _ARTIFACTS.get(str(artifact.get("name"))) if isinstance(artifact, dict) else None
        except (ValueError, RecursionError):
            self.faults.append(("not_json", f"line {number:,} is not JSON behind the bracket"))
            return None
        if type(told.get("rank")) is int and 0 <= told["rank"] < 2**63:
            self.rank = told["rank"]
        return (part, _compile_id(told)) if part and told.get("has_payload") else None

    def _with_payload(
        self, graph: Graph | None, part: str, compile_id: str | None, number: int, text: bytes, is_whole: bool
    ) -> tuple[Graph | None, Graph | None]:
        """Returns the graph that is being read, and the one that is complete with it."""
        value: Any = None
        if not is_whole:
            self.faults.append(("cut_line", f"line {number:,} has no end or is longer than {LONGEST_LINE >> 20} MiB"))
        else:
            try:
                value = json.loads(text)
            except (ValueError, RecursionError):
                self.faults.append(("not_json", f"line {number:,} is not JSON: {_shown(text)}"))
            else:
                if not isinstance(value, dict):
                    self.faults.append(("wrong_form", f"line {number:,} is no object"))
                    value = None
        if value is None:
            return graph, None
        if part == "stacks" and graph and graph.compile_id == compile_id:
            graph.stacks = value
            return None, graph
        new = Graph(compile_id, **{part: value})
        return (new, graph) if part == "mapping" else (graph, new)


def _compile_id(told: dict[str, Any]) -> str | None:
    """Returns the id as torch writes it, [frame/compile]; None where the line has none."""
    numbers = [told.get("frame_id"), told.get("frame_compile_id")]
    if not all(type(one) is int for one in numbers):
        return None
    autograd = told.get("compiled_autograd_id")
    return (f"!{autograd}/" if type(autograd) is int else "") + "/".join(map(str, numbers))


def _shown(text: bytes) -> str:
    return as_text(text[:80].decode("utf-8", "replace"))


def lines(chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Yields lines without their ends, and whether that is the whole line. Of a line above LONGEST_LINE only the beginning is kept."""
    parts: list[bytes] = []
    size = 0
    for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            left = LONGEST_LINE - size
            yield b"".join((*parts, piece[: max(left, 0)])), len(piece) <= left
            parts, size = [], 0
        if rest and size < LONGEST_LINE:
            parts.append(rest[: LONGEST_LINE - size])
        size += len(rest)
    if parts or size:
        yield b"".join(parts), False
