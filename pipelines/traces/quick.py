"""The quick way: the bytes of the event array go through a pipe into DuckDB's JSON reader, as they are.

Asking DuckDB for the whole object would hold it in memory; the array alone streams. A thread inflates, hashes, finds
the array and feeds the pipe while DuckDB parses.
"""

from __future__ import annotations

import os
import re
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import duckdb

from pipelines.traces.envelope import TAIL, Head, find_end, find_head
from pipelines.traces.source import Source

# DuckDB parses numbers with a fraction to doubles, which hold absolute microseconds only to 0.25 µs: such numbers are
# quoted on the way, and pass as text.
_ABSOLUTE = re.compile(rb'("(?:ts|dur)"\s*:\s*)(-?\d{13,}\.\d+)')
_COLUMNS = (
    "ph VARCHAR, cat VARCHAR, name VARCHAR, pid VARCHAR, tid VARCHAR, ts VARCHAR, dur VARCHAR, id VARCHAR, bp VARCHAR, "
    "s VARCHAR, args JSON, attr JSON, tts VARCHAR, tdur VARCHAR, cname VARCHAR, sf VARCHAR, stack JSON"
)


# Longest event; DuckDB keeps several buffers of twice this size.
OBJECT_LIMIT = 4 << 20


class QuickWayFailed(Exception):
    """The text needs the tolerant reader; the reason is for the log, the tolerant reader finds its own."""


@dataclass
class Feed:
    """What the pump thread found out on its way."""

    head: Head | None = None
    metadata: dict[str, Any] = field(default_factory=dict)
    error: BaseException | None = None


def array_bytes(source: Source, feed: Feed, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """The array's bytes, brackets included. Raises NotATrace, or QuickWayFailed where the array does not end."""
    feed.head, start = read_head(chunks)
    pieces = _all_but_the_end(source, feed, start, chunks)
    return _quoted(pieces) if _ABSOLUTE.search(start[: 1 << 20]) else pieces


def _all_but_the_end(source: Source, feed: Feed, start: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    """Pass chunks on, keeping back the last TAIL bytes, in which the array ends and metadata follows."""
    assert feed.head is not None
    held = deque([start])
    size = len(start)
    for chunk in chunks:
        held.append(chunk)
        size += len(chunk)
        while size - len(held[0]) >= TAIL:
            size -= len(held[0])
            yield held.popleft()
    if source.cut_at is not None:
        raise QuickWayFailed("the file is cut off")
    tail = b"".join(held)
    ended = find_end(feed.head, tail)
    if ended is None:
        raise QuickWayFailed("the array of events does not end")
    end, feed.metadata = ended
    yield tail[: end + 1]


def _quoted(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Put absolute times with a fraction in quotes; pieces are cut at commas, so no number is cut in two."""
    rest = b""
    for piece in pieces:
        text = rest + piece
        cut = text.rfind(b",") + 1
        rest = text[cut:]
        yield _ABSOLUTE.sub(rb'\1"\2"', text[:cut])
    yield _ABSOLUTE.sub(rb'\1"\2"', rest)


def read_head(chunks: Iterator[bytes]) -> tuple[Head, bytes]:
    """Read until the array begins; gives what stands before it and the bytes from its bracket on. Raises NotATrace."""
    text = b""
    for chunk in chunks:
        text += chunk
        head = find_head(text, whole=False)
        if head is not None:
            return head, text[head.start :]
    head = find_head(text, whole=True)
    assert head is not None
    return head, text[head.start :]


@contextmanager
def _pumped(pieces: Iterable[bytes], feed: Feed) -> Iterator[str]:
    """A path from which DuckDB reads what a thread writes; an error of the thread is in `feed.error`."""
    reading, writing = os.pipe()

    def pump() -> None:
        try:
            with os.fdopen(writing, "wb", buffering=0) as pipe:
                for piece in pieces:
                    view = memoryview(piece)
                    while view:
                        view = view[pipe.write(view) :]
        except BrokenPipeError:
            feed.error = feed.error or QuickWayFailed("the reader stopped")
        except BaseException as error:  # handed to the caller, who raises it
            feed.error = error

    thread = threading.Thread(target=pump, name="trace-pump", daemon=True)
    thread.start()
    try:
        yield f"/dev/fd/{reading}"
    finally:
        os.close(reading)  # frees a thread that still writes
        thread.join()


def read_array(con: duckdb.DuckDBPyConnection, table: str, pieces: Iterable[bytes], feed: Feed) -> None:
    """Create `table` from the bytes of a JSON array, a row an element, in order.

    Raises what the pieces raise, or QuickWayFailed where DuckDB cannot read them.
    """
    columns = ", ".join(f"'{name}': '{kind}'" for name, kind in (c.split() for c in _COLUMNS.split(", ")))
    with _pumped(pieces, feed) as path:
        try:
            con.execute(
                f"CREATE OR REPLACE TABLE {table} AS SELECT * FROM read_json('{path}', format = 'array', "
                f"columns = {{{columns}}}, maximum_object_size = {OBJECT_LIMIT})"
            )
        except duckdb.Error as error:
            failure: BaseException | None = QuickWayFailed(str(error))
        else:
            failure = None
    if feed.error is not None and not (failure and isinstance(feed.error, QuickWayFailed)):
        raise feed.error
    if failure is not None:
        raise failure


def read_quickly(
    con: duckdb.DuckDBPyConnection, source: Source, table: str, check: Callable[[duckdb.DuckDBPyConnection], str | None]
) -> Feed:
    """Read a whole file the quick way. Raises QuickWayFailed, or NotATrace; `check` names what DuckDB let pass."""
    feed = Feed()
    read_array(con, table, array_bytes(source, feed, source.chunks()), feed)
    passed = check(con)
    if passed:
        raise QuickWayFailed(passed)
    return feed
