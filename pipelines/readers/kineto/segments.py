"""Division of the event array into pieces of whole entries, in a thread that reads and decompresses.

DuckDB's JSON reader keeps every buffer of a pipe until the pipe ends (470 MB of JSON: 0.5 GB), so each piece is a small
JSON array in a separate file. A cut inside an entry is always detected, because it leaves unbalanced brackets in both
pieces. DuckDB then rejects these, and the tolerant reader joins them again.
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
_NO_SPACES = (b"\x00", b"\x0b", b"\x0c")  # whitespace that JSON does not allow
_BOUNDARY = re.compile(rb'\}([ \t\r\n]*,[ \t\r\n]*)\{\s*"(?:ph|cat|name|pid|tid|ts|dur|args|id|s|bp|attr)"\s*:')
# Absolute times with a fraction, whose nanoseconds a double cannot represent.
_LOSSY = re.compile(rb'"ts"\s*:\s*"?-?(?:\d{14,}\.|\d{10,}\.\d{4}|9\d{12}\.|8[89]\d{11}\.)')


@dataclass
class Piece:
    """Consecutive entries of the event array, written to `file` as a separate array."""

    file: Path
    offset: int  # offset of the entries in the decompressed content
    last: bool = False
    plain: bool = True  # False if no end of the array was found in the last piece
    metadata: dict = field(default_factory=dict)  # after the array
    is_lax: bool = False  # may contain a trailing comma or whitespace that JSON does not allow; DuckDB accepts both
    marked: bool = False  # times in the file were quoted to keep their digits
    doubles: bool = False  # its times may be read as doubles
    raw: bytes | None = None  # the entries, if the file does not contain them unchanged
    after: bytes = b""  # text after the entries: a comma, or in the last piece the end of the trace

    def data(self) -> bytes:
        """Return the entries as in the trace, without the brackets of the array."""
        return self.raw if self.raw is not None else read_entries(self.file)


class Cutter:
    """Iterator over the pieces. Call `start()`, then iterate over `pieces()`, then call `close()`.

    Afterward `source.unpacked_bytes` is the number of bytes that were read.
    """

    def __init__(self, source: Source | Kept, head: Head, folder: Path) -> None:
        self.source, self.head, self.folder = source, head, folder
        self.counter = FindingCounter()
        self._queue: queue.Queue[Piece | BaseException | None] = queue.Queue(maxsize=1)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="trace-cutter", daemon=True)

    def start(self) -> None:
        """Start the thread. It cuts a few pieces ahead of `pieces()`."""
        self._thread.start()

    def pieces(self) -> Iterator[Piece]:
        """Yield the pieces in order. Raise the thread's errors: NotATrace, OSError."""
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
        except BaseException as error:  # `pieces` raises it
            self._queue.put(error)

    def _cut(self) -> None:
        number, buffer, offset = 0, bytearray(), self.head.start or 0
        n_to_skip = offset  # bytes before the array's first entry
        for chunk in self.source.chunks():
            if self._stop.is_set():
                return
            if n_to_skip:
                chunk, n_to_skip = chunk[n_to_skip:], max(n_to_skip - len(chunk), 0)
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
            end = find_end(tail, self.head.is_object, number == 0, self.counter)
        if end is None:
            self._queue.put(Piece(self._file(number), offset, last=True, plain=False, raw=tail))
        else:
            last = Piece(self._file(number), offset, last=True, metadata=end[1], after=tail[end[0] :])
            self._put(last, tail, end[0])

    def _file(self, number: int) -> Path:
        return self.folder / f"piece{number}.json"

    def _put(self, piece: Piece, text: bytes | bytearray, end: int) -> None:
        with memoryview(text) as view, view[:end] as entries:
            piece.is_lax = _has_surplus_comma(entries) or any(text.find(char, 0, end) >= 0 for char in _NO_SPACES)
            if _loses_digits(entries) or _has_mark(text, end):
                piece.raw, piece.marked = bytes(entries), True
                write_piece(piece.file, mark_times(escape_marks(piece.raw)))
            else:
                piece.doubles = not _has_truth_as_time(entries)
                write_piece(piece.file, entries)
        self._queue.put(piece)


def _loses_digits(data: memoryview) -> bool:
    """Return whether a time has more digits than a double can represent.

    A test of characters at fixed distances from each decimal point comes first, because it is ten times as fast as the
    pattern. A match of the pattern has a digit 10 places before the point. It also has a digit 4 places after the point
    or 14 places before it, or the digit 8 or 9 at 13 places before it.
    """
    codes = np.frombuffer(data, dtype=np.uint8)
    points = _points(codes)
    points = points[points >= 14]
    points = points[_is_digit(codes[points - 10])]
    fourth, thirteenth = codes[np.minimum(points + 4, len(codes) - 1)], codes[points - 13]
    is_long = _is_digit(fourth) | _is_digit(codes[points - 14]) | (thirteenth == ord("8")) | (thirteenth == ord("9"))
    return bool(is_long.any()) and _LOSSY.search(data) is not None


def _points(codes: np.ndarray) -> np.ndarray:
    """Return the indices of all decimal points in `codes`."""
    return _where(codes, lambda block: block == ord("."))


def _where(codes: np.ndarray, is_match: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return the indices at which `is_match` is true. Work by block, because a mask of all codes exceeds the cache."""
    blocks = range(0, len(codes), _BLOCK)
    index_blocks = [np.flatnonzero(is_match(codes[begin : begin + _BLOCK])) + begin for begin in blocks]
    return np.concatenate(index_blocks) if index_blocks else np.empty(0, dtype=np.int64)


def _is_digit(codes: np.ndarray) -> np.ndarray:
    return codes - np.uint8(ord("0")) < 10  # unsigned: codes below "0" wrap to values above 9


def _has_truth_as_time(data: memoryview) -> bool:
    """Return whether a time is true or false, which DuckDB would read as the numbers 1 and 0.

    Also return True if _MOST_SPACES or more whitespace characters precede a true, a false or a colon.
    """
    codes, starts = np.frombuffer(data, dtype=np.uint8), _truths(data)
    colons = _before_space(codes, starts[starts >= len('"ts":')] - 1)
    if colons is None:
        return True
    key_ends = _before_space(codes, colons[codes[colons] == ord(":")] - 1)
    if key_ends is None:
        return True
    key_ends = key_ends[(codes[key_ends - 1] == ord("s")) | (codes[key_ends - 1] == ord("r"))]
    return any(data[max(end - 4, 0) : end + 1].tobytes().endswith((b'"ts"', b'"dur"')) for end in key_ends.tolist())


def _has_surplus_comma(data: memoryview) -> bool:
    """Return whether a comma, or _MOST_SPACES or more whitespace characters, precede a closing bracket."""
    codes = np.frombuffer(data, dtype=np.uint8)
    brackets = _where(codes, lambda block: (block & 0xDF) == ord("]"))  # "]" and "}" differ in one bit
    previous = _before_space(codes, brackets[brackets > 0] - 1)
    return previous is None or bool((codes[previous] == ord(",")).any())


def _truths(data: memoryview) -> np.ndarray:
    """Return the indices of "true" and "fals". Comparing four bytes as one integer is faster than a text search."""
    index_blocks, words = [np.empty(0, dtype=np.int64)], np.frombuffer(b"truefals", dtype=np.uint32)
    is_same = np.empty(_BLOCK, dtype=np.bool_)
    for begin in range(0, len(data), 4 * _BLOCK):
        block = data[begin : begin + 4 * _BLOCK + 3]
        for first in range(min(4, len(block))):
            numbers = np.frombuffer(block, dtype=np.uint32, offset=first, count=(len(block) - first) // 4)
            for word in words:
                if np.equal(numbers, word, out=is_same[: len(numbers)]).any():
                    index_blocks.append(np.flatnonzero(is_same[: len(numbers)]) * 4 + first + begin)
    return np.concatenate(index_blocks)


def _before_space(codes: np.ndarray, positions: np.ndarray) -> np.ndarray | None:
    """Return, for each position, the last position up to it that is not whitespace, or 0.

    Return None if _MOST_SPACES or more whitespace characters precede a position.
    """
    for _ in range(_MOST_SPACES):
        is_space = np.isin(codes[positions], _SPACES) & (positions > 0)
        if not is_space.any():
            return positions
        positions = np.where(is_space, positions - 1, positions)
    return None


def _has_mark(text: bytes | bytearray, end: int) -> bool:
    """Return whether a string before `end` begins with TIME_MARK. A search for the mark alone comes first."""
    mark = TIME_MARK.encode()
    return (first := text.find(mark, 0, end)) >= 0 and text.find(b'"' + mark, max(first - 1, 0), end) >= 0


def _boundary(buffer: bytearray, limits: Limits) -> tuple[int, int] | None:
    """Return (end of an entry, start of the next) at or before PIECE_BYTES, or None if there is no boundary.

    Raise NotATrace if the buffer is over the limit of one entry.
    """
    for window in (1 << 16, 1 << 20, len(buffer)):
        begin = max(PIECE_BYTES - window, 0)
        matches = list(_BOUNDARY.finditer(buffer, begin, PIECE_BYTES))
        match = matches[-1] if matches else None
        if match:
            return match.start(1), match.end(1)
    if len(buffer) > limits.max_event_mib << 20:
        raise NotATrace(0, f"an entry does not end within {limits.max_event_mib} MiB; {allow('max_event_mib')}")
    return None
