"""One trace file → table `raw_events`, a row an entry of traceEvents in their order, with metadata and findings.

First the quick way; where it fails, the file is read again by the tolerant reader, which says what it repaired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from pipelines.traces.envelope import NotATrace, read_metadata
from pipelines.traces.identify import identify
from pipelines.traces.quick import Feed, QuickWayFailed, read_array, read_head, read_quickly
from pipelines.traces.repair import Repairs, clean_events
from pipelines.traces.source import Source

MEMORY_LIMIT = "320MB"
THREADS = 2

_MEANING = {
    "repaired_number": "bare NaN or infinity, now null",
    "repaired_control_character": "unescaped control characters in strings, now escaped",
    "repaired_escape": "backslashes that begin no escape (Windows paths?), now literal",
    "repaired_comma": "missing or superfluous commas",
    "repaired_quote": "unescaped quotes inside strings, now escaped",
    "repaired_utf8": "bytes that are no UTF-8, now U+FFFD",
    "unreadable_event": "events that could not be read; their places in traceEvents are kept, empty",
    "not_an_event": "elements of traceEvents that are no objects; their places are kept, empty",
}


@dataclass(frozen=True)
class Finding:
    """Something ingestion repaired, dropped or could not read; `severity` is info, warning or error."""

    check: str
    severity: str
    n: int
    detail: str


@dataclass(frozen=True)
class StagedTrace:
    """What was read: `base_ns` (baseTimeNanoseconds) is to be added to every ts; `metadata` are all other top-level
    keys; `format` is packing/top-level form, as `json.gz/object`; `status` is ok, repaired or partial."""

    trace_id: str
    path: str
    n_events: int
    unpacked_bytes: int
    base_ns: int
    format: str
    metadata: dict[str, Any]
    findings: tuple[Finding, ...]
    status: str


class TraceRejected(Exception):
    """The file did not go in. `byte_offset` is in unpacked bytes, None where the whole file is meant."""

    def __init__(self, path: str, byte_offset: int | None, reason: str) -> None:
        self.path, self.byte_offset, self.reason = path, byte_offset, reason
        place = "" if byte_offset is None else f" (byte {byte_offset})"
        super().__init__(f"{path}{place}: {reason}")


def connect_staging(folder: Path) -> duckdb.DuckDBPyConnection:
    """A private database in a folder, with the settings that keep ingestion's memory bounded."""
    con = duckdb.connect(str(folder / "staging.duckdb"))
    con.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
    con.execute(f"SET threads = {THREADS}")
    con.execute(f"SET temp_directory = '{folder}'")
    # Read once and thrown away: compressing it would cost more than writing it.
    con.execute("SET force_compression = 'uncompressed'")
    con.execute("SET checkpoint_threshold = '1TB'")
    return con


def stage_trace(
    con: duckdb.DuckDBPyConnection,
    path: str | Path,
    table: str = "raw_events",
    on_bytes: Callable[[int], Any] | None = None,
) -> StagedTrace:
    """Read a trace file into `table`. `on_bytes(n)` is called while packed bytes are read. Raises TraceRejected."""
    path = Path(path)
    if not path.exists():
        raise TraceRejected(str(path), None, "there is no such file; give a file, a folder or a glob in quotes")
    try:
        source = Source(path, on_bytes)
        repairs = Repairs()
        try:
            feed = read_quickly(con, source, table, lambda c: _let_pass(c, table))
        except QuickWayFailed:
            source, repairs = Source(path), Repairs()
            feed = _read_tolerantly(con, source, table, repairs)
    except NotATrace as error:
        raise _rejected(path, error) from None
    n_events = con.execute(f"SELECT count(*) FROM {table}").fetchall()[0][0]
    if repairs.counts and not _readable(con, table):
        raise TraceRejected(str(path), repairs.places[next(iter(repairs.places))], "no element of traceEvents is a readable event")
    return _staged(con, table, path, source, feed, repairs, n_events)


def _rejected(path: Path, error: NotATrace) -> TraceRejected:
    chunks = Source(path).chunks()
    text = b""
    for chunk in chunks:
        text += chunk
        if len(text) > 8 << 20:
            break
    return TraceRejected(str(path), error.offset, f"{error}: {identify(path, text)}")


def _read_tolerantly(con: duckdb.DuckDBPyConnection, source: Source, table: str, repairs: Repairs) -> Feed:
    chunks = source.chunks()
    head, text = read_head(chunks)
    feed = Feed(head=head)

    def pieces() -> Iterator[bytes]:
        yield b"["
        separator = b"\n"
        for event in clean_events(_chain(text[1:], chunks), repairs, head.start + 1):
            # An element that is no object becomes one without keys: its row is all NULL.
            yield separator + (b"{}" if event == b"null" else event)
            separator = b",\n"
        yield b"]"

    read_array(con, table, pieces(), feed)
    if head.is_object:
        feed.metadata = read_metadata(head.before, repairs.rest.encode("utf-8", "replace")) or read_metadata(head.before, b"}") or {}
    return feed


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _let_pass(con: duckdb.DuckDBPyConnection, table: str) -> str | None:
    """What DuckDB's reader accepts without a word: bare NaN, and doubles where digits were lost."""
    nan, lossy = con.execute(
        f"SELECT count(*) FILTER (WHERE (contains(args, 'NaN') OR contains(args, 'nan') OR contains(args, 'inf') "
        f"OR contains(args, 'Inf')) AND regexp_matches(args, '[:,\\[]-?(NaN|nan|Infinity|inf)[,}}\\]]') "
        f"OR ts IN ('nan', 'inf', '-inf', 'NaN', 'Infinity', '-Infinity') "
        f"OR dur IN ('nan', 'inf', '-inf', 'NaN', 'Infinity', '-Infinity')), "
        f"count(*) FILTER (WHERE contains(ts, '.') AND length(ts) <= 18 AND abs(TRY_CAST(ts AS DOUBLE)) >= 9e12) FROM {table}"
    ).fetchall()[0]
    return "bare NaN or infinity" if nan else "times lost digits" if lossy else None


def _readable(con: duckdb.DuckDBPyConnection, table: str) -> bool:
    query = f"SELECT count(*) FROM {table} WHERE ph IS NOT NULL OR name IS NOT NULL OR ts IS NOT NULL"
    return con.execute(query).fetchall()[0][0] > 0


def _staged(
    con: duckdb.DuckDBPyConnection,
    table: str,
    path: Path,
    source: Source,
    feed: Feed,
    repairs: Repairs,
    n_events: int,
) -> StagedTrace:
    findings = [*_repair_findings(source, repairs), *_time_findings(con, table)]
    cut = repairs.cut_at is not None or source.cut_at is not None
    repaired = bool(repairs.counts)
    assert feed.head is not None
    return StagedTrace(
        trace_id=source.trace_id,
        path=str(path),
        n_events=n_events,
        unpacked_bytes=source.n_bytes,
        base_ns=_whole_number(feed.metadata.get("baseTimeNanoseconds")),
        format=f"{'json.gz' if source.packed else 'json'}/{'object' if feed.head.is_object else 'array'}",
        metadata=feed.metadata,
        findings=tuple(findings),
        status="partial" if cut else "repaired" if repaired else "ok",
    )


def _repair_findings(source: Source, repairs: Repairs) -> list[Finding]:
    findings = [
        Finding(kind, "warning", n, f"{_MEANING.get(kind, kind)}; first at byte {repairs.places[kind]}")
        for kind, n in sorted(repairs.counts.items())
    ]
    if source.cut_at is not None:
        findings.append(Finding("truncated", "error", 1, f"{source.cut_reason} at unpacked byte {source.cut_at}; what came before is kept"))
    elif repairs.cut_at is not None:
        findings.append(Finding("truncated", "error", 1, f"the file ends inside traceEvents at byte {repairs.cut_at}; what came before is kept"))
    return findings


def _time_findings(con: duckdb.DuckDBPyConnection, table: str) -> list[Finding]:
    bad, negative, fine, begins, ends = con.execute(
        f"SELECT count(*) FILTER (WHERE ts IS NOT NULL AND TRY_CAST(ts AS DOUBLE) IS NULL "
        f"OR dur IS NOT NULL AND TRY_CAST(dur AS DOUBLE) IS NULL), "
        f"count(*) FILTER (WHERE starts_with(dur, '-')), "
        f"count(*) FILTER (WHERE length(rtrim(split_part(ts, '.', 2), '0')) > 3 OR length(rtrim(split_part(dur, '.', 2), '0')) > 3), "
        f"count(*) FILTER (WHERE ph = 'B'), count(*) FILTER (WHERE ph = 'E') FROM {table}"
    ).fetchall()[0]
    found = (
        ("time_not_a_number", "warning", bad, "ts or dur is no number; it is NULL"),
        ("negative_duration", "warning", negative, "dur is negative; it is kept as it is"),
        ("sub_nanosecond_time", "info", fine, "ts or dur is finer than a nanosecond; rounded to the nearest"),
        ("unmatched_begin_end", "warning", abs(begins - ends), f"{begins} begin and {ends} end events: the surplus has no duration"),
    )
    return [Finding(check, severity, n, detail) for check, severity, n, detail in found if n]


def _whole_number(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return 0
