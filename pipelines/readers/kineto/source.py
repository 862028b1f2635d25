"""Reads the bytes of a trace file, unpacked: inflates (.gz by its magic bytes, not its name) and counts."""

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from isal import isal_zlib

from pipelines.readers.kineto.limits import Limits

GZIP_MAGIC = b"\x1f\x8b"
READ_BYTES = 1 << 17
INFLATED_BYTES = 1 << 20  # one inflate call returns at most this much, whatever the ratio


class TooLarge(Exception):
    """A limit is exceeded at byte `offset` of the unpacked content; `reason` says which, and what allows more."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset, self.reason = offset, reason


class Source:
    """One pass over a file. `unpacked_bytes` and `damage` are final once `chunks` has ended."""

    def __init__(
        self, path: Path, on_bytes: Callable[[int], object] | None = None, limits: Limits | None = None
    ) -> None:
        self.limits = limits
        self.path = path
        self.is_gzip = False
        self.unpacked_bytes = 0
        self.damage: str | None = None  # why the packed data ends early
        self._packed_bytes = 0
        self._on_bytes = on_bytes

    def chunks(self) -> Iterator[bytes]:
        """Yields unpacked content in pieces of at most INFLATED_BYTES. Raises TooLarge, and OSError if the file cannot
        be read.
        """
        with self.path.open("rb") as file:
            packed = self._packed(file)
            first = next(packed, b"")
            self.is_gzip = first.startswith(GZIP_MAGIC)
            for chunk in self._inflate(first, packed) if self.is_gzip else _chain(first, packed):
                if chunk:
                    self.unpacked_bytes += len(chunk)
                    if self.limits and (why := self.limits.unpacked(self._packed_bytes, self.unpacked_bytes)):
                        raise TooLarge(self.unpacked_bytes, why)
                    yield chunk

    def _packed(self, file) -> Iterator[bytes]:
        while data := file.read(READ_BYTES):
            self._packed_bytes += len(data)
            if self._on_bytes:
                self._on_bytes(len(data))
            yield data

    def _inflate(self, data: bytes, packed: Iterator[bytes]) -> Iterator[bytes]:
        """Yields all members of a gzip file, one after another; stops at damage and names it."""
        member = isal_zlib.decompressobj(wbits=31)
        try:
            while True:
                yield member.decompress(data, INFLATED_BYTES)
                data = member.unconsumed_tail
                if member.eof:
                    data = member.unused_data.lstrip(b"\0") or next(packed, b"").lstrip(b"\0")
                    if not data:
                        return
                    if len(data) < 2:
                        data += next(packed, b"")
                    if not data.startswith(GZIP_MAGIC):
                        self.damage = f"no gzip member follows at packed byte {self._packed_bytes - len(data)}"
                        return
                    member = isal_zlib.decompressobj(wbits=31)
                elif not data and not (data := next(packed, b"")):
                    yield from self._rest(member)
                    return
        except isal_zlib.error as error:  # pyright: ignore[reportGeneralTypeIssues] its stub says Exception
            self.damage = f"gzip data damaged before packed byte {self._packed_bytes} ({error})"

    def _rest(self, member) -> Iterator[bytes]:
        """Yields what the inflater still holds at the end of the file; reports damage if the member is incomplete."""
        while not member.eof and (left := member.decompress(b"", INFLATED_BYTES)):
            yield left
        if not member.eof:
            self.damage = f"gzip data ends early at packed byte {self._packed_bytes}"


class Kept:
    """The second pass over content that the first one kept: each chunk is freed once it is used.

    `packed_bytes` is the size of the file, which `on_bytes` is told of in equal parts.
    """

    def __init__(
        self, chunks: deque[bytes], packed_bytes: int, damage: str | None, on_bytes: Callable[[int], object] | None
    ) -> None:
        self.unpacked_bytes = 0
        self.damage = damage
        self._chunks, self._packed_bytes, self._on_bytes = chunks, packed_bytes, on_bytes

    def chunks(self) -> Iterator[bytes]:
        """Yields the content."""
        total, told = len(self._chunks), 0
        while self._chunks:
            chunk = self._chunks.popleft()
            self.unpacked_bytes += len(chunk)
            if self._on_bytes:
                now = self._packed_bytes * (total - len(self._chunks)) // total
                self._on_bytes(now - told)
                told = now
            yield chunk


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest
