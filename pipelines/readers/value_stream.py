"""Streams the values of a large JSON document, one after another from the unpacked stream; the whole text is never held."""

from __future__ import annotations

import codecs
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pipelines.readers.kineto.identify import identify_path
from pipelines.readers.kineto.reading_result import TraceRejected
from pipelines.readers.kineto.source import Source

_BLANK = re.compile(r"[\s,]*")
_LARGEST = 64 << 20  # characters of one value; a record has a few thousand
Where = tuple[str | int, ...]


class ValueStream:
    """Iterate over `walk()`. `odd`: what was read as viewers read it although it is not strict JSON, by finding."""

    bare: re.Pattern[str] | None = None  # words that become null where the text is not JSON

    def __init__(self, path: Path, on_bytes: Callable[[int], object] | None = None) -> None:
        self.path = path
        self.odd: Counter[str] = Counter()
        self._tried: Counter[str] = Counter()
        self._source = Source(path, on_bytes)
        self._text, self._at, self._dropped, self._ended = "", 0, 0, False
        self._start = b""
        # strict=False: control characters occur in names.
        self._decoder = json.JSONDecoder(strict=False, parse_constant=self._no_number, object_pairs_hook=self._once)

    def walk(self, is_streamed: Callable[[Where], bool]) -> Iterator[tuple[Where, Any]]:
        """Yields values by where they are (keys and places). What is at a place that `is_streamed` comes part by part.

        Raises TraceRejected where it is no JSON, and OSError if the file cannot be read.
        """
        self._open()
        yield from self._parts((), is_streamed)
        if self._next():
            raise self._rejected("text after the end of the document: two files in one?")

    def _parts(self, where: Where, is_streamed: Callable[[Where], bool]) -> Iterator[tuple[Where, Any]]:
        opening = self._next()
        if opening not in ("{", "[") or not is_streamed(where):
            yield where, self._value()
            return
        self._at += 1
        seen: set[str] = set()
        n, closing = 0, "}" if opening == "{" else "]"
        while (first := self._next()) != closing:
            if not first:
                raise self._rejected(self._source.damage or "the file ends early")
            key: str | int = n
            if opening == "{":
                key = self._key(first)
                if key in seen:
                    raise self._rejected(f"the key {key[:80]!r} occurs twice: two files in one?")
                seen.add(key)
            n += 1
            yield from self._parts((*where, key), is_streamed)
        self._at += 1

    def _key(self, first: str) -> str:
        if first != '"':
            raise self._rejected(f"{first!r} where a key should be")
        key = self._value()
        if self._next() != ":":
            raise self._rejected("no colon after a key")
        self._at += 1
        return key

    def _open(self) -> None:
        if wrong := identify_path(self.path):
            raise TraceRejected(str(self.path), None, wrong)
        self._pieces = self._source.chunks()
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

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
            self._tried.clear()
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if not mended and self.bare:
                    self._text, mended = self._text[: self._at] + self.bare.sub("null", self._text[self._at :]), True
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
            self.odd += self._tried
            return value

    def _no_number(self, _: str) -> None:
        self._tried["repaired_nan"] += 1

    def _once(self, members: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(members)
        self._tried["repaired_duplicate_key"] += len(members) - len(found)
        return found

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
