"""What stands around the events: where their array begins and ends, and the metadata before and after it.

A trace is an object with a key `traceEvents` or an array at the top. Names may hold any text, so nothing is searched
for: the beginning is found by reading tokens, the end by reading the rest of the object behind it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

BOM = b"\xef\xbb\xbf"
# Longest metadata before the events that is waited for, and length of the tail in which the array's end is looked for.
HEAD_LIMIT = 64 << 20
TAIL = 4 << 20

_TOKEN = re.compile(rb'\s*("(?:[^"\\]|\\.)*"|[{}\[\]:,]|[^\s{}\[\]:,"]+)', re.DOTALL)
_END = re.compile(rb"[}\[,]\s*(\])(?=\s*[,}])")


class NotATrace(Exception):
    """The text cannot be a trace; `offset` is where that shows, in bytes."""

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.offset = offset


@dataclass(frozen=True)
class Head:
    """The array of events begins at `start` (its `[`); `before` is the text of the object up to it (empty for an array
    at the top)."""

    start: int
    before: bytes

    @property
    def is_object(self) -> bool:
        """The events are a value of a top-level object, so text follows their array."""
        return bool(self.before)


def find_head(text: bytes, whole: bool) -> Head | None:
    """Where the events begin, or None where more text is needed (`whole`: there is none). Raises NotATrace."""
    skip = len(BOM) if text.startswith(BOM) else 0
    body = text[skip:].lstrip()
    begin = len(text) - len(body)
    if not body:
        if whole:
            raise NotATrace("the file is empty", 0)
        return None
    if body[:1] == b"[":
        return Head(begin, b"")
    if body[:1] != b"{":
        raise NotATrace("the text is not JSON: a trace begins with { or [", begin)
    found = _walk(text, begin)
    if found is None and (whole or len(text) > HEAD_LIMIT):
        raise NotATrace("no key traceEvents in the top-level object", begin)
    return found


def _walk(text: bytes, begin: int) -> Head | None:
    depth, key, position = 0, b"", begin
    after_key = False
    while match := _TOKEN.match(text, position):
        token, position = match.group(1), match.end()
        if depth == 1 and after_key and token == b"[" and key == b'"traceEvents"':
            return Head(match.start(1), text[begin : match.start(1)])
        if token in b"{[":
            depth += 1
        elif token in b"}]":
            depth -= 1
            if not depth:
                raise NotATrace("no key traceEvents in the top-level object", match.start(1))
        if depth == 1:
            if token == b":":
                after_key = True
                continue
            key = token
        after_key = False
    return None


def find_end(head: Head, tail: bytes) -> tuple[int, dict[str, Any]] | None:
    """Where the array's closing bracket lies in the last bytes of the file, and the metadata; None where it is not found.

    For an object it is the first bracket behind which the text goes on as that object and ends it: brackets in trailing
    metadata come later, those inside events leave too many braces.
    """
    if not head.is_object:
        stripped = tail.rstrip()
        return (len(stripped) - 1, {}) if stripped.endswith(b"]") else None
    found = None
    for match in reversed(list(_END.finditer(b"," + tail))):
        end = match.start(1) - 1  # one for the comma in front, which lets an array at the tail's start match
        metadata = read_metadata(head.before, tail[end + 1 :])
        if metadata is not None:
            found = end, metadata
    return found


def read_metadata(before: bytes, after: bytes) -> dict[str, Any] | None:
    """All top-level keys but traceEvents, from the texts around the array; None where they are no object."""
    text = (before + b"null" + after).decode("utf-8", "replace").strip()
    try:
        value = json.loads(text, strict=False)
    except ValueError:
        try:
            value = json.loads(_mended(text), strict=False)
        except ValueError:
            return None
    if not isinstance(value, dict):
        return None
    value.pop("traceEvents", None)
    return value


def _mended(text: str) -> str:
    """Windows paths and other wrong escapes made literal, and a comma before the closing brace dropped."""
    text = re.sub(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})', r"\\\\", text)
    return re.sub(r",\s*}$", "}", text)
