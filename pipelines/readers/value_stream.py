"""Stream of the values of a large JSON document, without the whole decompressed text in memory."""

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
    """Reader of a JSON document, value by value (`walk`).

    `odd`: number of repairs to text that viewers accept but JSON does not allow, by finding.
    """

    bare: re.Pattern[str] | None = None  # words that become null if the text is not JSON

    def __init__(self, path: Path, on_bytes: Callable[[int], object] | None = None) -> None:
        self.path = path
        self.odd: Counter[str] = Counter()
        self._tried: Counter[str] = Counter()
        self._source = Source(path, on_bytes)
        self._text, self._at, self._dropped, self._ended = "", 0, 0, False
        self._start = b""
        # `strict=False`, because control characters occur in names.
        self._decoder = json.JSONDecoder(strict=False, parse_constant=self._no_number, object_pairs_hook=self._once)

    def walk(self, is_streamed: Callable[[Where], bool]) -> Iterator[tuple[Where, Any]]:
        """Yield the values with their paths (keys and indices).

        A value is split into its elements if `is_streamed` is true for its path.

        Raise TraceRejected if the text is not JSON, and OSError if the file cannot be read.
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
        keys: set[str] = set()
        n, closing = 0, "}" if opening == "{" else "]"
        while (first := self._next()) != closing:
            if not first:
                raise self._rejected(self._source.damage or "the file is truncated")
            key: str | int = n
            if opening == "{":
                key = self._key(first)
                if key in keys:
                    raise self._rejected(f"the key {key[:80]!r} occurs twice: two files in one?")
                keys.add(key)
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
        if problem := identify_path(self.path):
            raise TraceRejected(self.path, None, problem)
        self._pieces = self._source.chunks()
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode

    def _next(self) -> str:
        """Return the first character that is not a blank or comma, or '' at the end of the file."""
        while True:
            blanks = _BLANK.match(self._text, self._at)
            self._at = blanks.end() if blanks else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._fill():
                return ""

    def _value(self) -> Any:
        is_repaired = False
        while True:
            self._tried.clear()
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if not is_repaired and self.bare:
                    self._text, is_repaired = (
                        self._text[: self._at] + self.bare.sub("null", self._text[self._at :]),
                        True,
                    )
                elif not self._fill():
                    reason = self._source.damage or f"cannot be read as JSON: {error}"
                    raise self._rejected(reason) from None
                else:
                    is_repaired = False
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
        value = dict(members)
        self._tried["repaired_duplicate_key"] += len(members) - len(value)
        return value

    def _fill(self) -> bool:
        """Read more text and release the text already parsed. Return False at the end of the file."""
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
        offset = self._dropped + len(self._text[: self._at].encode("utf-8", "replace"))
        return TraceRejected(self.path, offset, reason)
