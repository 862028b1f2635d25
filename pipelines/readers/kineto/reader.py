"""Reader of a trace file, which returns Arrow tables of its events in order, its metadata and its findings.

A thread cuts the array into pieces. DuckDB reads several pieces concurrently, each directly with
`sql/ingest/traces/events.sql`. The tolerant reader gets only the pieces that DuckDB rejects or would silently misread.
Memory does not grow with the file, because only a few pieces are in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator, Set
from concurrent.futures import Future, ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from pipelines.base import database
from pipelines.readers.kineto.envelope import TWO_IN_ONE, Head, NotATrace, second_document, suffix
from pipelines.readers.kineto.identify import identify_path, identify_text
from pipelines.readers.kineto.limits import allow
from pipelines.readers.kineto.merged import MergedRank
from pipelines.readers.kineto.numbers import base_time
from pipelines.readers.kineto.piece import (
    KNOWN_KEYS,
    all_keys,
    exact_times,
    has_duplicate_key,
    has_no_number,
    keys_in,
    known_keys,
    with_kinds,
    write_piece,
)
from pipelines.readers.kineto.reader_check import check_reader
from pipelines.readers.kineto.reading_result import CHANGED, Finding, FindingCounter, TraceRejected
from pipelines.readers.kineto.scan import Scan, scan, stamp_of
from pipelines.readers.kineto.segments import PIECE_BYTES, Cutter, Piece
from pipelines.readers.kineto.source import Kept, Source, TooLarge
from pipelines.readers.kineto.tolerant_reader import read_stretch
from pipelines.readers.read_request import ReadRequest
from pipelines.readers.secrets import file_may_hold_secrets, with_masked_ids, with_masks

if TYPE_CHECKING:
    import pyarrow as pa

READERS = 3  # one more than cores, because one is always waiting for its piece to be written

# UnicodeDecodeError, because DuckDB's message may quote half a character of the file.
_UNREADABLE = (duckdb.InvalidInputException, duckdb.DataError, UnicodeDecodeError)
_NOTHING: Any = object()
_SMALL = 1 << 20  # bytes; planning the query of a smaller piece takes longer than reading its rows


def connect_reader() -> duckdb.DuckDBPyConnection:
    """Return a private in-memory database for `TraceReader`. Each query has one thread, and several run in parallel.

    Raise WrongDuckDB if this version of DuckDB would lose data.
    """
    con = database.connect(config={"threads": 1, "memory_limit": "300MB", "temp_directory": ""})
    check_reader(con)
    return con


class TraceReader:
    """Reader of one file.

    Use `trace_id`, then iterate over `tables` to the end, then use `metadata`, `findings`, `status`.
    The constructor and `tables` raise TraceRejected if the file is not a trace, and OSError if it cannot be read.
    """

    def __init__(self, request: ReadRequest, part: MergedRank | None = None) -> None:
        if reason := identify_path(request.path):
            raise TraceRejected(request.path, None, reason)
        self.request, self.part = request, part
        self.n_events = 0
        self._head = Head(request.limits)
        self._counter = FindingCounter()
        try:
            self._scan: Scan = scan(request.path, self._head)
        except NotATrace as error:
            raise self._rejected(error) from None
        except TooLarge as error:
            raise TraceRejected(request.path, error.offset, error.reason) from None
        self.trace_id = part.trace_id(self._scan.trace_id) if part else self._scan.trace_id
        self.unpacked_bytes = self._scan.unpacked_bytes
        self.format = f"{'json.gz' if self._scan.is_gzip else 'json'}/{'object' if self._head.is_object else 'array'}"
        self._before = self._head.metadata(self._counter)
        self.metadata = self._metadata(self._scan.after)
        self.base_ns = base_of(self.metadata)

    def tables(
        self, con: duckdb.DuckDBPyConnection, query: str, texts: tuple[str, ...] = ("args", "extra")
    ) -> Generator[pa.Table, None, None]:
        """Yield the result of `query` over the entries, one table per piece.

        `query` reads the entries of a piece as `raw_events` and numbers them from 0. In the results `event_id` is
        consecutive across pieces. Secrets are masked in names and in the columns `texts`. Afterward `metadata` is
        complete. Its base time may differ from `base_ns` if the first pass did not find the metadata after the array.
        """
        cutter = Cutter(self._second_pass(), self._head, self.request.folder)
        cutter.counter = self._counter
        cutter.start()
        pieces = _Pieces(con, query, texts, cutter, self.part)
        try:
            import_module("pyarrow.parquet")  # takes as long as cutting the first piece
            for table in pieces.tables():
                yield _numbered(table, self.n_events)
                self.n_events += table.num_rows
        except NotATrace as error:
            raise self._rejected(error) from None
        finally:
            cutter.close()
        if stamp_of(self.request.path) != self._scan.stamp or cutter.source.unpacked_bytes != self.unpacked_bytes:
            raise TraceRejected(self.request.path, None, CHANGED)
        duplicate_keys = [key for key in pieces.after if key in self._before]
        self._counter.add("duplicate_metadata_key", len(duplicate_keys), ", ".join(duplicate_keys[:5]))
        self.metadata = self._metadata(pieces.after)
        self._note_damage(cutter.source)

    def _metadata(self, after: dict[str, Any]) -> dict[str, Any]:
        """Return the metadata on both sides of the array, restricted to the part if the reader has one."""
        of_file = {**after, **self._before}
        return self.part.metadata(of_file) if self.part else of_file

    def _second_pass(self) -> Source | Kept:
        chunks, packed_bytes, on_bytes = self._scan.kept, self._scan.stamp[0], self.request.on_bytes
        if chunks:
            return Kept(chunks, packed_bytes, self._scan.damage, on_bytes)
        return Source(self.request.path, on_bytes)

    def add_finding(self, check: str, n: int, place: str = "") -> None:
        """Count a finding that only the events, or the whole file, show."""
        self._counter.add(check, n, place)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """The faults and peculiarities of the trace."""
        return self._counter.findings()

    @property
    def status(self) -> str:
        """The status of the trace: ok, repaired or partial."""
        return self._counter.status()

    def _note_damage(self, source: Source | Kept) -> None:
        if source.damage is not None:
            self._counter.counts["truncated"] = 1
            self._counter.places["truncated"] = f"byte {source.unpacked_bytes} ({source.damage})"
        if self._head.has_bom:
            self._counter.add("repaired_bom", 1, "byte 0")

    def _rejected(self, error: NotATrace) -> TraceRejected:
        # A file with an event array is a trace, so identify_text must not describe it as something else.
        has_array = self._head.start is not None
        description = None if has_array else identify_text(bytes(self._head.text[:4096]), self._head.keys)
        reason = f"{error.reason}; it is {description}" if description else error.reason
        return TraceRejected(self.request.path, error.offset, reason)


class _Pieces:
    """Reading of the pieces, in order. `carry`: an incomplete entry, which the next piece completes.

    `tail`: the text after the array if the array ended before the last piece, else None.
    """

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        query: str,
        texts: tuple[str, ...],
        cutter: Cutter,
        part: MergedRank | None = None,
    ) -> None:
        self.con, self.query, self.texts, self.cutter, self.part = con, query, texts, cutter, part
        self.carry, self.carry_offset = b"", 0
        self.tail: bytearray | None = None
        self.has_unknown = False  # whether events have unknown keys
        self.kinds: set[int] = set()  # kinds of arguments without duplicate keys (`has_duplicate_key`)
        self.has_text_times = False  # whether a piece had times that are not exact as doubles
        self.after: dict[str, Any] = {}

    def tables(self) -> Iterator[pa.Table]:
        """Yield the pieces' tables. Pieces are read ahead, but the results are checked in order."""
        in_flight: deque[tuple[Piece, Future[pa.Table | None]]] = deque()
        readers = database.threads(READERS)
        with ThreadPoolExecutor(readers) as pool:
            for piece in self.cutter.pieces():
                in_flight.append((piece, pool.submit(self._plainly, piece)))
                if len(in_flight) > readers:
                    yield from self._settled(*in_flight.popleft())
            while in_flight:
                yield from self._settled(*in_flight.popleft())

    def _settled(self, piece: Piece, reading: Future[pa.Table | None]) -> Iterator[pa.Table]:
        table, self.after = reading.result(), piece.metadata
        if self.tail is not None:
            self._behind(piece)
        elif self.carry or table is not _NOTHING:
            if self.carry or table is None:
                table = self._tolerantly(piece)
            yield table
        piece.file.unlink(missing_ok=True)

    def _behind(self, piece: Piece) -> None:
        """Append a piece to the text after the array. Parse the text with the last piece."""
        assert self.tail is not None
        self.tail += piece.data() + piece.after
        limits = self.cutter.head.limits
        if len(self.tail) > limits.metadata_bytes:
            message = f"more than {limits.max_metadata_mib} MiB after the event array"
            raise NotATrace(self.carry_offset, f"{message}; {allow('max_metadata_mib')}")
        if piece.last:
            self._end(bytes(self.tail))

    def _end(self, text: bytes) -> None:
        """Set `after` to the metadata in the text after the array's closing bracket.

        Raise NotATrace if a second document follows. Count any other text that does not parse as a finding.
        """
        after = suffix(text, self.cutter.head.is_object, self.cutter.counter)
        if after is None:
            if second_document("]" + text.decode("utf-8", "replace"), 0, self.cutter.head.is_object):
                raise NotATrace(self.carry_offset, TWO_IN_ONE)
            self.cutter.counter.add("trailing_text", 1, f"byte {self.carry_offset}")
        self.after = after or {}

    def _plainly(self, piece: Piece) -> pa.Table | None:
        """Read a piece with DuckDB. Return None if DuckDB cannot read it, _NOTHING if it has no entry of the part.

        Small read buffers come first, because they are twice as fast as buffers for events of any size.
        """
        if not piece.plain or piece.is_lax:
            return None
        if self.part and not self.part.is_in(piece.data()):
            return _NOTHING
        keys = self._known_keys(piece.file, 1 << 20)
        if keys is not None and (table := self._with_known_keys(piece, keys)) is not None:
            return table
        return None if has_no_number(piece.data()) else self._read(piece.file, 2 * PIECE_BYTES, piece.marked)

    def _with_known_keys(self, piece: Piece, keys: Set[str]) -> pa.Table | None:
        if piece.doubles and not self.has_text_times:
            table = self._table(exact_times(piece.file, 1 << 20, keys), piece.file)
            if table is not None:
                return table
        query = known_keys(piece.file, 1 << 20, keys, refuse_suspect=True, marked=piece.marked)
        table = self._table(query, piece.file)
        # If one piece needs its times as text, later pieces probably need it as well.
        self.has_text_times = self.has_text_times or (piece.doubles and table is not None)
        return table

    def _known_keys(self, file: Path, limit: int) -> frozenset[str] | None:
        """Return the keys of the entries, or None if some are unknown or DuckDB cannot read the piece.

        After a piece with unknown keys, always return None, because later pieces probably have unknown keys as well.
        """
        if self.has_unknown:
            return None
        try:
            with database.cursor(self.con) as cursor:
                keys = keys_in(cursor, file, limit)
        except _UNREADABLE:
            return None
        return keys if keys <= KNOWN_KEYS else None

    def _read(self, file: Path, limit: int, marked: bool, mended: bool = False) -> pa.Table | None:
        """Read a piece without bare NaNs or infinities. Return None if DuckDB cannot read it."""
        keys, table = self._known_keys(file, limit), None
        if keys is not None:
            table = self._table(known_keys(file, limit, keys, marked=marked, mended=mended), file, mended)
        if table is None:
            table = self._table(all_keys(file, limit, marked, mended), file, mended)
            self.has_unknown = self.has_unknown or table is not None
        return table

    def _table(self, raw_events: str, file: Path, mended: bool = False) -> pa.Table | None:
        """Return the events of a piece, or None if DuckDB cannot read it.

        Unless `mended`, also return None if arguments have a duplicate key.
        """
        try:
            with database.cursor(self.con) as cursor:
                is_small = file.stat().st_size < _SMALL
                # Planning the masks takes as long as reading a few events.
                masks = not is_small or file_may_hold_secrets(cursor, file)
                events = with_masks(self.query, self.texts) if masks else with_masks(self.query, (), ())
                raw_events = self.part.rows(raw_events) if self.part else raw_events
                query = f"WITH raw_events AS ({raw_events})\n{events if mended else with_kinds(events)}"
                # .execute() plans the query only once, but needs memory for the rows twice, so it is for small pieces.
                table = (database.arrow_result(cursor, query) if is_small else cursor.sql(query)).to_arrow_table()
        except _UNREADABLE:
            return None
        except duckdb.OutOfMemoryException:  # values nested too deep; the tolerant reader skips them
            if mended:
                raise
            return None
        if mended:
            return with_masked_ids(table)
        return None if has_duplicate_key(table, self.kinds) else with_masked_ids(table.drop_columns("_kind"))

    def _tolerantly(self, piece: Piece) -> pa.Table:
        # The last plain piece does not contain the bracket that ends the array.
        closing = b"]" if piece.last and piece.plain else b""
        data = self.carry + piece.data() + closing
        offset = self.carry_offset if self.carry else piece.offset
        counter = self.cutter.counter
        counter_before = FindingCounter(counter.counts.copy(), dict(counter.places))
        stretch = read_stretch(data, piece.last, offset, counter)
        table = self._clean(piece.file, stretch.array(), len(data))
        if table is None:
            # Every entry parses, but DuckDB rejects one of them, so repair all.
            counter.counts, counter.places = counter_before.counts, counter_before.places
            stretch = read_stretch(data, piece.last, offset, counter, mend_all=True)
            table = self._clean(piece.file, stretch.array(), len(data))
        if table is None:
            raise NotATrace(offset, "a stretch of events is still unreadable after repair")
        following = stretch.rest
        self.carry, self.carry_offset = b"" if stretch.ended else following, offset + stretch.stopped
        if stretch.ended and piece.last and (following or not closing):
            # The array ended elsewhere than the cutter assumed.
            self._end(following.removesuffix(closing) + piece.after)
        elif stretch.ended and not piece.last:
            self.tail = bytearray(following + piece.after)
        elif self.carry:
            self.carry += piece.after
        return table

    def _clean(self, file: Path, array: bytes, size: int) -> pa.Table | None:
        write_piece(file, array)
        return self._read(file, 2 * max(size, PIECE_BYTES), marked=True, mended=True)


def _numbered(table: pa.Table, first: int) -> pa.Table:
    """Return the table sorted by event id, with ids from `first` on.

    The query numbers the entries as they are read, but a join in the query may return them in another order.
    """
    import numpy as np
    import pyarrow as pa

    def ids(begin: int) -> pa.Array:
        """Return `table.num_rows` ids from `begin` on.

        Wrap a buffer, because a conversion makes pyarrow import pandas.
        """
        id_buffer = pa.py_buffer(np.arange(begin, begin + table.num_rows, dtype=np.int64))
        return pa.Array.from_buffers(pa.int64(), table.num_rows, [None, id_buffer])

    column_index = table.schema.get_field_index("event_id")
    if not table.column(column_index).equals(pa.chunked_array([ids(0)])):
        table = table.sort_by("event_id")
        assert table.column(column_index).equals(pa.chunked_array([ids(0)])), "the query lost or repeated entries"
    return table.set_column(column_index, "event_id", ids(first))


def base_of(metadata: dict[str, Any]) -> int:
    """Return baseTimeNanoseconds, or 0 if it is missing or unusable."""
    return base_time(metadata) or 0
