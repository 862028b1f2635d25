"""Streams the nodes of an execution trace, one after another from the unpacked stream; the whole text is never held."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pipelines.readers.kineto.identify import identify_path, identify_text
from pipelines.readers.kineto.reading_result import TraceRejected
from pipelines.readers.kineto.source import Source

_DECODER = json.JSONDecoder(strict=False)  # control characters occur in names of annotations
_BLANK = re.compile(r"[\s,]*")
# Masks contain infinities, which PyTorch writes bare (std::to_string): -inf is not JSON.
_BARE = re.compile(r"(?<=[\[,:\s])-?(?:inf|nan)(?=\s*[,\]}])")
_LARGEST = 64 << 20  # characters of one value; a node has a few thousand


class NodeStream:
    """Iterate over `nodes()`; `head` then holds the top-level keys before and after them (schema, pid, …)."""

    def __init__(self, path: Path, on_bytes: Callable[[int], object] | None = None) -> None:
        self.path = path
        self.head: dict[str, Any] = {}
        self._source = Source(path, on_bytes)
        self._text, self._at, self._dropped, self._ended = "", 0, 0, False
        self._start = b""

    def nodes(self) -> Iterator[dict[str, Any]]:
        """Yields the nodes in file order. Raises TraceRejected, and OSError if the file cannot be read."""
        if wrong := identify_path(self.path):
            raise TraceRejected(str(self.path), None, wrong)
        self._pieces = self._source.chunks()
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        if self._next() != "{":
            raise self._other()
        self._at += 1
        found = False
        while (first := self._next()) == '"':
            key = self._value()
            if self._next() != ":":
                raise self._rejected("no colon after a key")
            self._at += 1
            opening = self._next()
            if key == "nodes" and opening == "[":
                found = True
                yield from self._elements()
            elif key == "traceEvents":
                raise self._rejected("a profiler trace, not an execution trace: give it as TRACE")
            else:
                self.head[key] = self._value()
        if not found:
            raise self._other()
        if first != "}":
            raise self._rejected("the file ends early" if not first else f"{first!r} where a key should be")

    def _elements(self) -> Iterator[dict[str, Any]]:
        self._at += 1
        while (first := self._next()) == "{":
            yield self._value()
        if first != "]":
            raise self._rejected("the file ends within the nodes" if not first else "a node is not an object")
        self._at += 1

    def _next(self) -> str:
        """Returns the first character that is not a blank or comma; empty at the end of the file."""
        while True:
            found = _BLANK.match(self._text, self._at)
            self._at = found.end() if found else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._fill():
                return ""

    def _value(self) -> Any:
        mended = False
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if not mended:
                    self._text, mended = self._text[: self._at] + _BARE.sub("null", self._text[self._at :]), True
                elif not self._fill():
                    reason = self._source.damage or f"cannot be read as JSON: {error}"
                    raise self._rejected(reason) from None
                else:
                    mended = False
                continue
            # A number may continue in the next chunk.
            if end == len(self._text) and isinstance(value, int | float) and self._fill():
                continue
            self._at = end
            return value

    def _fill(self) -> bool:
        """Read more text; returns False at the end. Text already parsed is released."""
        if self._ended:
            return False
        chunk = next(self._pieces, None)
        self._ended = chunk is None
        self._start += (chunk or b"")[: 4096 - len(self._start)]
        self._dropped += len(self._text[: self._at].encode("utf-8", "replace"))
        self._text, self._at = self._text[self._at :] + self._decode(chunk or b"", self._ended), 0
        if len(self._text) > _LARGEST + (1 << 21):
            raise self._rejected(f"a value of more than {_LARGEST >> 20} MiB")
        return not self._ended

    def _rejected(self, reason: str) -> TraceRejected:
        place = self._dropped + len(self._text[: self._at].encode("utf-8", "replace"))
        return TraceRejected(str(self.path), place, reason)

    def _other(self) -> TraceRejected:
        keys = [key for key in self.head if key not in ("schema", "nodes")]
        what = identify_text(self._start, keys) or "the file contains no text"
        return TraceRejected(
            str(self.path), None, f"not an execution trace (an object with `schema` and `nodes`): {what}"
        )
