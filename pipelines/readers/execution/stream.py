"""Stream of the raw nodes of an execution trace, without the whole decompressed text in memory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pipelines.readers.kineto.identify import identify_text
from pipelines.readers.kineto.reading_result import TraceRejected
from pipelines.readers.value_stream import ValueStream


class NodeStream(ValueStream):
    """Reader of the raw nodes. After `nodes()`, `head` has the other top-level keys (schema, pid, …)."""

    # Masks contain infinities, which PyTorch writes as bare words (std::to_string), although -inf is not JSON.
    bare = re.compile(r"(?<=[\[,:\s])-?(?:inf|nan)(?=\s*[,\]}])")

    def __init__(self, path: Path, on_bytes: Callable[[int], object] | None = None) -> None:
        super().__init__(path, on_bytes)
        self.head: dict[str, Any] = {}

    def nodes(self) -> Iterator[dict[str, Any]]:
        """Yield the nodes in the order of the file.

        Raise TraceRejected if the file is not an execution trace, and OSError if it cannot be read.
        """
        self._open()
        if self._next() != "{":
            raise self._other()
        self._at += 1
        has_nodes = False
        while (first := self._next()) == '"':
            key = self._key(first)
            opening = self._next()
            if key == "nodes" and opening == "[":
                has_nodes = True
                yield from self._elements()
            elif key == "traceEvents":
                raise self._rejected("a profiler trace, not an execution trace: give it as TRACE")
            else:
                self.head[key] = self._value()
        if not has_nodes:
            raise self._other()
        if first != "}":
            raise self._rejected("the file is truncated" if not first else f"{first!r} where a key should be")

    def _elements(self) -> Iterator[dict[str, Any]]:
        self._at += 1
        while (first := self._next()) == "{":
            yield self._value()
        if first != "]":
            raise self._rejected("the file ends within the nodes" if not first else "a node is not an object")
        self._at += 1

    def _other(self) -> TraceRejected:
        keys = [key for key in self.head if key not in ("schema", "nodes")]
        description = identify_text(self._start, keys) or "the file contains no text"
        message = f"not an execution trace (an object with `schema` and `nodes`): {description}"
        return TraceRejected(self.path, None, message)
