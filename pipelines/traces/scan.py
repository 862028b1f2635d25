"""The first pass over a trace file: what must be known before its first event can be written.

That is the content's hash (so a trace that is already in the lake costs no more than this), where the event array
starts, and the metadata on both sides of it: baseTimeNanoseconds, to which every time is relative, may be at the very
end. It only inflates and hashes, at a tenth of the cost of reading.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipelines.traces.envelope import Head, NotATrace, find_end
from pipelines.traces.record import FindingCounter
from pipelines.traces.source import Source

TAIL_BYTES = 2 << 20  # the array's end and the metadata after it are searched in this much text


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


def scan(path: Path, head: Head) -> Scan:
    """Read a file once; `head` is filled in the process. Raises NotATrace, or OSError if the file cannot be read."""
    source, digest, tail, whole = Source(path, limits=head.limits), hashlib.sha256(), bytearray(), True
    stamp = stamp_of(path)
    for chunk in _hashed(source.chunks(), digest):
        if head.start is not None:
            tail += chunk
        elif head.feed(chunk):
            tail += head.text[head.start :]
        if len(tail) > 4 * TAIL_BYTES:
            del tail[:-TAIL_BYTES]
            whole = False
    if head.start is None:
        raise NotATrace(source.unpacked_bytes, _without_array(source, head))
    end = None if source.damage else find_end(bytes(tail), head.is_object, whole, FindingCounter())
    return Scan(
        path=path,
        trace_id=digest.hexdigest()[:16],
        unpacked_bytes=source.unpacked_bytes,
        damage=source.damage,
        is_gzip=source.is_gzip,
        head=head,
        stamp=stamp,
        after=end[1] if end else {},
    )


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
