"""One trace file → table `raw_events`, a row an entry of traceEvents in their order, with metadata and findings.

The file is read once. DuckDB reads the pieces of the array that a thread cuts; a piece that it refuses, or in which it
would let something pass without a word, goes through the tolerant reader, and only that piece.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb

from pipelines.sqltext import quoted
from pipelines.traces.envelope import NotATrace, suffix
from pipelines.traces.identify import identify_path, identify_text
from pipelines.traces.record import FindingCounter, StagedTrace, TraceRejected
from pipelines.traces.repair import read_stretch
from pipelines.traces.segments import PIECE_BYTES, Cutter, Piece
from pipelines.traces.source import Source

MEMORY_LIMIT = "300MB"
THREADS = 2
_COLUMNS = {
    **dict.fromkeys(("ph", "cat", "name", "pid", "tid", "ts", "dur", "id", "bp", "s"), "VARCHAR"),
    **dict.fromkeys(("args", "attr"), "JSON"),
    **dict.fromkeys(("tts", "tdur", "cname", "sf"), "VARCHAR"),
    "stack": "JSON",
}
_NO_NUMBERS = (b"NaN", b"nan", b"Inf", b"inf")


def connect_staging(folder: Path) -> duckdb.DuckDBPyConnection:
    """A private database in a folder, with the settings that keep ingestion's memory bounded."""
    con = duckdb.connect(str(folder / "staging.duckdb"))
    con.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
    con.execute(f"SET threads = {THREADS}")
    con.execute(f"SET temp_directory = '{folder}'")
    # Read once and thrown away: compressing it would cost more than writing it.
    con.execute("SET force_compression = 'uncompressed'")
    return con


def stage_trace(
    con: duckdb.DuckDBPyConnection,
    path: str | Path,
    table: str = "raw_events",
    on_bytes: Callable[[int], Any] | None = None,
) -> StagedTrace:
    """Read a trace file into `table`. `on_bytes(n)` is called while packed bytes are read. Raises TraceRejected."""
    path = Path(path)
    if reason := identify_path(path):
        raise TraceRejected(str(path), None, reason)
    columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
    con.execute(f"CREATE OR REPLACE TABLE {table} ({columns})")
    source = Source(path, on_bytes)
    with tempfile.TemporaryDirectory() as folder:
        cutter = Cutter(source, Path(folder))
        try:
            metadata = _Reader(con, table, cutter).read()
        except NotATrace as error:
            what = identify_text(bytes(cutter.head.text[:4096]), cutter.head.keys)
            reason = f"{error.reason}; it is {what}" if what else error.reason
            raise TraceRejected(str(path), error.offset, reason) from None
        finally:
            cutter.close()
    return _staged(con, table, path, cutter, metadata)


class _Reader:
    """Puts piece after piece into the table; `carry` is an entry that the next piece completes."""

    def __init__(self, con: duckdb.DuckDBPyConnection, table: str, cutter: Cutter) -> None:
        self.con, self.table, self.cutter = con, table, cutter
        self.carry, self.carry_offset = b"", 0

    def read(self) -> dict[str, Any]:
        """Read all pieces; returns the metadata around the array."""
        after: dict[str, Any] = {}
        for piece in self.cutter.pieces():
            if self.carry or not piece.plain or _has_no_number(piece.data) or not self._insert_any(piece.file):
                after = self._tolerantly(piece) or piece.metadata
            else:
                after = piece.metadata
            piece.file.unlink(missing_ok=True)
        return {**self.cutter.head.metadata(self.cutter.found), **after}

    def _insert_any(self, file: Path) -> bool:
        """Small read buffers first: they are twice as quick as those that hold any event."""
        return self._insert(file, 1 << 20) or self._insert(file, 2 * PIECE_BYTES)

    def _insert(self, file: Path, limit: int) -> bool:
        """Append a JSON array's entries; False, with nothing appended, where DuckDB cannot read it."""
        columns = ", ".join(f"'{name}': '{kind}'" for name, kind in _COLUMNS.items())
        try:
            self.con.execute(
                f"INSERT INTO {self.table} SELECT * FROM read_json({quoted(file)}, format = 'array', "
                f"columns = {{{columns}}}, maximum_object_size = {limit})"
            )
        except duckdb.InvalidInputException:
            return False
        return True

    def _tolerantly(self, piece: Piece) -> dict[str, Any] | None:
        # The bracket that ends the array was cut off behind the last plain piece.
        data = self.carry + piece.data + (b"]" if piece.last and piece.plain else b"")
        offset = self.carry_offset if self.carry else piece.offset
        found = self.cutter.found
        before = FindingCounter(found.counts.copy(), dict(found.places))
        stretch = read_stretch(data, piece.last, offset, found)
        if not self._append(piece.file, stretch.array(), len(data)):
            # Something in an entry that reads well is not to DuckDB's taste: mend every entry.
            found.counts, found.places = before.counts, before.places
            stretch = read_stretch(data, piece.last, offset, found, mend_all=True)
            if not self._append(piece.file, stretch.array(), len(data)):
                raise NotATrace(offset, "a stretch of events stays unreadable after repair")
        self.carry, self.carry_offset = data[stretch.stopped :], offset + stretch.stopped
        if not piece.last:
            return None
        if stretch.ended and piece.plain:
            return piece.metadata
        if stretch.ended:
            rest = suffix(self.carry, self.cutter.head.is_object, found)
            if rest is None:
                found.add("trailing_text", 1, f"byte {self.carry_offset}")
            return rest
        return None

    def _append(self, file: Path, array: bytes, size: int) -> bool:
        file.write_bytes(array)
        return self._insert(file, 2 * max(size, PIECE_BYTES))


def _has_no_number(data: bytes) -> bool:
    """A bare NaN or infinity, which DuckDB's reader takes without a word: the word as a value, outside of names."""
    for word in _NO_NUMBERS:
        at = data.find(word)
        while at >= 0:
            before = data[max(at - 8, 0) : at].rstrip().rstrip(b"+-").rstrip()[-1:]
            after = data[at : at + 16].lstrip(b"+-NaIifnty").lstrip()[:1]
            if before in (b":", b",", b"[") and after in (b",", b"}", b"]"):
                return True
            at = data.find(word, at + 3)
    return False


def _staged(
    con: duckdb.DuckDBPyConnection, table: str, path: Path, cutter: Cutter, metadata: dict[str, Any]
) -> StagedTrace:
    source, found = cutter.source, cutter.found
    if source.damage is not None:
        found.counts["truncated"], found.places["truncated"] = 1, f"byte {source.unpacked_bytes} ({source.damage})"
    if cutter.head.has_bom:
        found.add("repaired_bom", 1, "byte 0")
    n_events, n_readable, last_row = con.execute(
        f"SELECT count(*), count(coalesce(ph, name, ts, pid)), max(rowid) FROM {table}"
    ).fetchall()[0]
    if n_events and not n_readable:
        raise TraceRejected(str(path), 0, "no element of the array is a readable event; is it a profiler trace?")
    if n_events and last_row != n_events - 1:  # a refused piece may leave a gap in the numbering
        con.execute(f"CREATE OR REPLACE TABLE {table} AS SELECT * FROM {table} ORDER BY rowid")
    _count_times(con, table, found)
    form = "object" if cutter.head.is_object else "array"
    return StagedTrace(
        trace_id=source.trace_id,
        path=str(path),
        n_events=n_events,
        unpacked_bytes=source.unpacked_bytes,
        base_ns=_whole_number(metadata.get("baseTimeNanoseconds")),
        format=f"{'json.gz' if source.is_gzip else 'json'}/{form}",
        metadata=metadata,
        findings=found.findings(),
        status=found.status(),
    )


def _count_times(con: duckdb.DuckDBPyConnection, table: str, found: FindingCounter) -> None:
    bad, negative, fine, begins, ends = con.execute(
        f"WITH t AS (SELECT ph, ltrim(ts, '~') AS ts, ltrim(dur, '~') AS dur FROM {table}) "
        "SELECT count(*) FILTER (WHERE ts IS NOT NULL AND TRY_CAST(ts AS DOUBLE) IS NULL "
        "OR dur IS NOT NULL AND TRY_CAST(dur AS DOUBLE) IS NULL), "
        "count(*) FILTER (WHERE starts_with(dur, '-')), "
        "count(*) FILTER (WHERE length(rtrim(split_part(ts, '.', 2), '0')) > 3 "
        "OR length(rtrim(split_part(dur, '.', 2), '0')) > 3), "
        "count(*) FILTER (WHERE ph = 'B'), count(*) FILTER (WHERE ph = 'E') FROM t"
    ).fetchall()[0]
    found.add("time_not_a_number", bad)
    found.add("negative_duration", negative)
    found.add("sub_nanosecond_time", fine)
    found.add("unmatched_begin", max(begins - ends, 0))
    found.add("unmatched_end", max(ends - begins, 0))


def _whole_number(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return 0
