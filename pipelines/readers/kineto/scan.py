"""First pass over a trace file, for the facts that are needed before its first event can be written.

These are the content's hash, the start of the event array, and the metadata on both sides of the array, because
baseTimeNanoseconds, to which all times are relative, may be at the very end. A trace that is already in the lake costs
only this pass, which decompresses and hashes, at a tenth of the cost of reading.
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

TAIL_BYTES = 2 << 20  # length of the text in which the array's end and the metadata after it are searched
KEPT_BYTES = 64 << 20  # content up to this size is kept for the second pass, which need not decompress again


@dataclass(frozen=True)
class Scan:
    """Result of the first pass.

    `damage`: why decompression stopped early, or None. `after`: the metadata after the array, {} if the array's end is
    unknown.
    """

    path: Path
    trace_id: str  # first 16 hex digits of the SHA-256 of the decompressed content
    unpacked_bytes: int
    damage: str | None
    is_gzip: bool
    head: Head
    stamp: tuple[int, ...]  # differs if the file is still being written, or was replaced
    after: dict[str, Any] = field(default_factory=dict)
    kept: deque[bytes] = field(default_factory=deque)  # the content, if it is small (see `Kept`)


def scan(path: Path, head: Head) -> Scan:
    """Read a file once, and fill `head`.

    Raise NotATrace if the file has no event array, TooLarge if it exceeds a limit, and OSError if it cannot be read.
    """
    source, digest, tail, kept_chunks = Source(path, limits=head.limits), hashlib.sha256(), _Tail(), deque[bytes]()
    stamp = stamp_of(path)
    for chunk in _hashed(source.chunks(), digest):
        if head.start is not None:
            tail.add(chunk)
        elif head.feed(chunk):
            tail.add(bytes(head.text[head.start :]))
        if source.unpacked_bytes <= KEPT_BYTES:
            kept_chunks.append(chunk)
        else:
            kept_chunks.clear()
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
        kept=kept_chunks,
    )


class _Tail:
    """The last chunks of a text, at least TAIL_BYTES of it. `text` joins them only when it is called."""

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
    """Yield the chunks. A thread hashes one chunk while the next is decompressed."""
    with ThreadPoolExecutor(1) as pool:
        hashing = None
        for chunk in chunks:
            if hashing:
                hashing.result()
            hashing = pool.submit(digest.update, chunk)
            yield chunk


def stamp_of(path: Path) -> tuple[int, ...]:
    """Return values that change with a file: size, mtime, ctime (which programs cannot set back), inode and device."""
    stat = os.stat(path)
    return stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev


def _without_array(source: Source, head: Head) -> str:
    if not source.unpacked_bytes:
        return "the file is empty" if source.damage is None else source.damage
    keys_text = f" (keys seen: {', '.join(head.keys[:12])})" if head.keys else ""
    return f"ends before the event array{keys_text}" + (f"; {source.damage}" if source.damage else "")
