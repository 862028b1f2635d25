"""The quick way: the bytes of the event array go through a pipe into DuckDB's JSON reader, as they are.

Asking DuckDB for the whole object would hold it in memory; the array alone streams. A thread inflates, hashes, finds
the array and feeds the pipe while DuckDB parses.
"""

from __future__ import annotations

import os
import re
import threading
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
    head, start = read_head(chunks)
    feed.head = head
    held = start
    quote = _ABSOLUTE.search(held[: 1 << 20]) is not None
    for chunk in chunks:
        held += chunk
        if len(held) >= 2 * TAIL:
            cut = held.rfind(b",", 0, len(held) - TAIL) + 1  # a number is never cut in two
            if cut:
                yield _quoted(held[:cut], quote)
                held = held[cut:]
    if source.cut_at is not None:
        raise QuickWayFailed("the file is cut off")
    ended = find_end(head, held)
    if ended is None:
        raise QuickWayFailed("the array of events does not end")
    end, feed.metadata = ended
    yield _quoted(held[: end + 1], quote)


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


def _quoted(text: bytes, quote: bool) -> bytes:
    return _ABSOLUTE.sub(rb'\1"\2"', text) if quote else text


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
                f"columns = {{{columns}}}, maximum_object_size = {16 << 20})"
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
