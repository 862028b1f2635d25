"""Cuts the event array into pieces of whole entries, in a thread that reads and inflates.

Why pieces: DuckDB's JSON reader keeps every buffer of a pipe until the pipe ends (470 MB of JSON: 0.5 GB), so each
piece is a small JSON array in a file of its own. A cut in the wrong place (inside an entry) cannot go unnoticed: it
leaves unbalanced brackets in both pieces, DuckDB rejects them, and the tolerant reader joins them again.
"""

import queue
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from pipelines.readers.kineto.envelope import Head, NotATrace, find_end
from pipelines.readers.kineto.json_repair import TIME_MARK
from pipelines.readers.kineto.limits import Limits, allow
from pipelines.readers.kineto.piece import read_entries, write_piece
from pipelines.readers.kineto.reading_result import FindingCounter
from pipelines.readers.kineto.scan import TAIL_BYTES
from pipelines.readers.kineto.source import Kept, Source
from pipelines.readers.kineto.tolerant_reader import escape_marks, mark_times

PIECE_BYTES = 12 << 20  # of JSON per piece
_BLOCK = 1 << 16
_MOST_SPACES = 64
_SPACES = np.frombuffer(b" \t\r\n", dtype=np.uint8)
_NO_SPACES = (b"\x00", b"\x0b", b"\x0c")  # not to JSON
_BOUNDARY = re.compile(rb'\}([ \t\r\n]*,[ \t\r\n]*)\{\s*"(?:ph|cat|name|pid|tid|ts|dur|args|id|s|bp|attr)"\s*:')
# Absolute times with a fraction: a double cannot hold their nanoseconds.
_LOSSY = re.compile(rb'"ts"\s*:\s*"?-?(?:\d{14,}\.|\d{10,}\.\d{4}|9\d{12}\.|8[89]\d{11}\.)')


@dataclass
class Piece:
    """Some entries of the array, in `file` as a separate array."""

    file: Path
    offset: int  # offset of the entries in the unpacked content
    last: bool = False
    plain: bool = True  # False: no end of the array was found in the last piece
    metadata: dict = field(default_factory=dict)  # after the array
    is_lax: bool = False  # perhaps a surplus comma, or space that is none in JSON, to which DuckDB has no objection
    marked: bool = False  # times in the file were quoted, so that their digits are kept
    doubles: bool = False  # its times may be read as doubles
    raw: bytes | None = None  # the entries, if the file does not hold them unchanged
    after: bytes = b""  # text after its entries: a comma, or in the last piece the end of the trace

    def data(self) -> bytes:
        """Returns the entries without the brackets, as in the trace."""
        return self.raw if self.raw is not None else read_entries(self.file)


class Cutter:
    """Call `start()` first, then iterate over `pieces()` to the end or leave it through `close()`; then `source` knows how far it got."""

    def __init__(self, source: Source | Kept, head: Head, folder: Path) -> None:
        self.source, self.head, self.folder = source, head, folder
        self.found = FindingCounter()
        self._queue: queue.Queue[Piece | BaseException | None] = queue.Queue(maxsize=1)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trace-cutter", daemon=True)

    def start(self) -> None:
        """Begin to cut; a few pieces are cut before the first is asked for."""
        self._thread.start()

    def pieces(self) -> Iterator[Piece]:
        """Yields the pieces in order. Raises the thread's errors: NotATrace, OSError."""
        while (item := self._queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item

    def close(self) -> None:
        self._stop.set()
        while self._thread.is_alive():
            try:
                self._queue.get(timeout=0.05)
            except queue.Empty:
                continue

    def _run(self) -> None:
        try:
            self._cut()
            self._queue.put(None)
        except BaseException as error:  # passed to the reader of the queue, which raises it
            self._queue.put(error)

    def _cut(self) -> None:
        number, buffer, offset = 0, bytearray(), self.head.start or 0
        before = offset  # bytes to skip until the array starts
        for chunk in self.source.chunks():
            if self._stop.is_set():
                return
            if before:
                chunk, before = chunk[before:], max(before - len(chunk), 0)
            buffer += chunk
            if len(buffer) >= PIECE_BYTES + TAIL_BYTES and (cut := _boundary(buffer, self.head.limits)):
                end, begin = cut
                self._put(Piece(self._file(number), offset, after=bytes(buffer[end:begin])), buffer, end)
                del buffer[:begin]
                offset += begin
                number += 1
        self._finish(bytes(buffer), offset, number)

    def _finish(self, tail: bytes, offset: int, number: int) -> None:
        end = None
        if self.source.damage is None:
            end = find_end(tail, self.head.is_object, number == 0, self.found)
        if end is None:
            self._queue.put(Piece(self._file(number), offset, last=True, plain=False, raw=tail))
        else:
            last = Piece(self._file(number), offset, last=True, metadata=end[1], after=tail[end[0] :])
            self._put(last, tail, end[0])

    def _file(self, number: int) -> Path:
        return self.folder / f"piece{number}.json"

    def _put(self, piece: Piece, text: bytes | bytearray, end: int) -> None:
        with memoryview(text) as whole, whole[:end] as entries:
            piece.is_lax = _has_surplus_comma(entries) or any(text.find(one, 0, end) >= 0 for one in _NO_SPACES)
            if _loses_digits(entries) or _has_mark(text, end):
                piece.raw, piece.marked = bytes(entries), True
                write_piece(piece.file, mark_times(escape_marks(piece.raw)))
            else:
                piece.doubles = not _has_truth_as_time(entries)
                write_piece(piece.file, entries)
        self._queue.put(piece)


def _loses_digits(data: memoryview) -> bool:
    """Returns whether some time in it is longer than a double can hold.

    The pattern looks at every event. First, ten times as fast, come the characters at fixed distances from every point:
    a match of the pattern has a digit ten before the point, and also four after it, 14 before it, or an 8 or 9 13 before.
    """
    codes = np.frombuffer(data, dtype=np.uint8)
    at = _points(codes)
    at = at[at >= 14]
    at = at[_is_digit(codes[at - 10])]
    fourth, thirteenth = codes[np.minimum(at + 4, len(codes) - 1)], codes[at - 13]
    is_long = _is_digit(fourth) | _is_digit(codes[at - 14]) | (thirteenth == ord("8")) | (thirteenth == ord("9"))
    return bool(is_long.any()) and _LOSSY.search(data) is not None


def _points(codes: np.ndarray) -> np.ndarray:
    """Returns where decimal points are; block by block, because a mask of all of it does not fit the cache."""
    return _where(codes, lambda block: block == ord("."))


def _where(codes: np.ndarray, is_meant: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    blocks = range(0, len(codes), _BLOCK)
    found = [np.flatnonzero(is_meant(codes[begin : begin + _BLOCK])) + begin for begin in blocks]
    return np.concatenate(found) if found else np.empty(0, dtype=np.int64)


def _is_digit(codes: np.ndarray) -> np.ndarray:
    return codes - np.uint8(ord("0")) < 10  # unsigned: what is below "0" wraps to above 9


def _has_truth_as_time(data: memoryview) -> bool:
    """Returns whether some time is true or false, which DuckDB would read as the numbers 1 and 0. Also true for what
    stands behind so much white space that it is not looked at.
    """
    codes, at = np.frombuffer(data, dtype=np.uint8), _truths(data)
    colon = _before_space(codes, at[at >= len('"ts":')] - 1)
    if colon is None:
        return True
    key = _before_space(codes, colon[codes[colon] == ord(":")] - 1)
    if key is None:
        return True
    key = key[(codes[key - 1] == ord("s")) | (codes[key - 1] == ord("r"))]
    return any(data[max(end - 4, 0) : end + 1].tobytes().endswith((b'"ts"', b'"dur"')) for end in key.tolist())


def _has_surplus_comma(data: memoryview) -> bool:
    """Returns whether a comma stands before a closing bracket, or so much white space that it is not looked at."""
    codes = np.frombuffer(data, dtype=np.uint8)
    at = _where(codes, lambda block: (block & 0xDF) == ord("]"))  # the brackets differ in one bit
    before = _before_space(codes, at[at > 0] - 1)
    return before is None or bool((codes[before] == ord(",")).any())


def _truths(data: memoryview) -> np.ndarray:
    """Returns where "true" and "fals" are: four bytes are compared as one integer, faster than any search for text."""
    found, words = [np.empty(0, dtype=np.int64)], np.frombuffer(b"truefals", dtype=np.uint32)
    same = np.empty(_BLOCK, dtype=np.bool_)
    for begin in range(0, len(data), 4 * _BLOCK):
        block = data[begin : begin + 4 * _BLOCK + 3]
        for first in range(min(4, len(block))):
            numbers = np.frombuffer(block, dtype=np.uint32, offset=first, count=(len(block) - first) // 4)
            for word in words:
                if np.equal(numbers, word, out=same[: len(numbers)]).any():
                    found.append(np.flatnonzero(same[: len(numbers)]) * 4 + first + begin)
    return np.concatenate(found)


def _before_space(codes: np.ndarray, at: np.ndarray) -> np.ndarray | None:
    """Returns the first position from each one on backwards that is no white space, or the text's first; None if that
    is far away.
    """
    for _ in range(_MOST_SPACES):
        space = np.isin(codes[at], _SPACES) & (at > 0)
        if not space.any():
            return at
        at = np.where(space, at - 1, at)
    return None


def _has_mark(text: bytes | bytearray, end: int) -> bool:
    """Returns whether a string before `end` begins with the mark of a quoted time; first looks for the mark alone."""
    mark = TIME_MARK.encode()
    return (first := text.find(mark, 0, end)) >= 0 and text.find(b'"' + mark, max(first - 1, 0), end) >= 0


def _boundary(buffer: bytearray, limits: Limits) -> tuple[int, int] | None:
    """Returns (end of an entry, start of the next) near PIECE_BYTES; searches the whole buffer if there is none nearby."""
    for window in (1 << 16, 1 << 20, len(buffer)):
        begin = max(PIECE_BYTES - window, 0)
        places = list(_BOUNDARY.finditer(buffer, begin, PIECE_BYTES))
        found = places[-1] if places else None
        if found:
            return found.start(1), found.end(1)
    if len(buffer) > limits.max_event_mib << 20:
        raise NotATrace(0, f"an entry does not end within {limits.max_event_mib} MiB; {allow('max_event_mib')}")
    return None
