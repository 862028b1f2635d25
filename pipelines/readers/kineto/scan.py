"""The first pass over a trace file: what must be known before its first event can be written.

That is the content's hash (so a trace that is already in the lake costs no more than this), where the event array
starts, and the metadata on both sides of it: baseTimeNanoseconds, to which every time is relative, may be at the very
end. It only inflates and hashes, at a tenth of the cost of reading.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.readers.kineto.envelope import Head, NotATrace, find_end
from pipelines.readers.kineto.reading_result import FindingCounter
from pipelines.readers.kineto.source import Source

TAIL_BYTES = 2 << 20  # the array's end and the metadata after it are searched in this much text
KEPT_BYTES = 64 << 20  # a smaller content is kept for the second pass, instead of inflating it again


@dataclass(frozen=True)
class Scan:
    """`damage` says why the packed data ends early. `after` is empty if the array's end is not obvious."""

    path: Path
    trace_id: str  # first 16 hex digits of the SHA-256 of the unpacked content
    unpacked_bytes: int
    damage: str | None
    is_gzip: bool
    head: Head
    stamp: tuple[int, ...]  # to notice a file that is still being written, or replaced
    after: dict[str, Any] = field(default_factory=dict)
    kept: deque[bytes] = field(default_factory=deque)  # the content, if it is small: see `Kept`


def scan(path: Path, head: Head) -> Scan:
    """Read a file once; `head` is filled in the process. Raises NotATrace, or OSError if the file cannot be read."""
    source, digest, tail, kept = Source(path, limits=head.limits), hashlib.sha256(), _Tail(), deque[bytes]()
    stamp = stamp_of(path)
    for chunk in _hashed(source.chunks(), digest):
        if head.start is not None:
            tail.add(chunk)
        elif head.feed(chunk):
            tail.add(bytes(head.text[head.start :]))
        if source.unpacked_bytes <= KEPT_BYTES:
            kept.append(chunk)
        else:
            kept.clear()
    if head.start is None:
        raise NotATrace(source.unpacked_bytes, _without_array(source, head))
    end = None if source.damage else find_end(tail.text(), head.is_object, tail.is_whole, FindingCounter())
    return Scan(
        path=path,
        trace_id=digest.hexdigest()[:16],
        unpacked_bytes=source.unpacked_bytes,
        damage=source.damage,
        is_gzip=source.is_gzip,
        head=head,
        stamp=stamp,
        after=end[1] if end else {},
        kept=kept,
    )


class _Tail:
    """The last chunks of a text, at least TAIL_BYTES of it; none is copied before it is needed."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self.is_whole = True

    def add(self, chunk: bytes) -> None:
        self._chunks.append(chunk)
        self._size += len(chunk)
        while self._size - len(self._chunks[0]) >= TAIL_BYTES:
            self._size -= len(self._chunks.popleft())
            self.is_whole = False

    def text(self) -> bytes:
        return b"".join(self._chunks)


def _hashed(chunks: Iterator[bytes], digest: Any) -> Iterator[bytes]:
    """Yields the chunks; a thread hashes one while the next is inflated."""
    with ThreadPoolExecutor(1) as pool:
        hashing = None
        for chunk in chunks:
            if hashing:
                hashing.result()
            hashing = pool.submit(digest.update, chunk)
            yield chunk


def stamp_of(path: Path) -> tuple[int, ...]:
    """Returns what changes with a file: size, change times (the second of which nobody can set back), and its identity."""
    found = os.stat(path)
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_dev


def _without_array(source: Source, head: Head) -> str:
    if not source.unpacked_bytes:
        return "the file is empty" if source.damage is None else source.damage
    seen = f" (keys seen: {', '.join(head.keys[:12])})" if head.keys else ""
    return f"ends before the event array{seen}" + (f"; {source.damage}" if source.damage else "")
