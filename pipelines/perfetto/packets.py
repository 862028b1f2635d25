"""A Perfetto trace → its packets, one at a time: field 1 of the message Trace, each with its length before it."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

from pipelines.traces.limits import Limits, allow

_GZIP = b"\x1f\x8b"
_PACKET = 0x0A  # field 1, with a length
_CHUNK = 1 << 20
_LONGEST_VARINT = 10


class Damaged(Exception):
    """The file cannot be read from `offset` (unpacked bytes) on."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset


class TooLarge(Exception):
    """A limit is exceeded; the message says which option raises it."""


def begins_as_trace(path: Path) -> bool:
    """Whether a file, inflated if need be, begins with a packet."""
    with path.open("rb") as file:
        head = file.read(1 << 10)
    if head.startswith(_GZIP):
        try:
            head = zlib.decompressobj(31).decompress(head, 1)
        except zlib.error:
            return False
    return head[:1] == bytes([_PACKET])


class Packets:
    """The packets of a file. `offset`: of the next one, in unpacked bytes."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path, self.limits = path, limits
        self.offset = 0
        self._buffer = bytearray()
        self._at = 0
        self._unpacked = 0
        self._chunks = self._inflated()

    def __iter__(self) -> Iterator[bytes]:
        """Yields the packets. Raises Damaged where the file is cut off or broken, TooLarge, or OSError."""
        while self._has(1):
            tag, length, size = self._byte(0), *self._length()
            if tag != _PACKET:
                raise Damaged(self.offset, "no packet begins here")
            longest = self.limits.max_event_mib << 20
            if length > longest:
                told = (
                    f"a packet of {length:,} bytes, more than {self.limits.max_event_mib} MiB; {allow('max_event_mib')}"
                )
                raise Damaged(self.offset, told)
            if not self._has(size + length):
                raise Damaged(self.offset, "the file ends within a packet")
            begin = self._at + size
            packet = bytes(self._buffer[begin : begin + length])
            self._at += size + length
            self.offset += size + length
            yield packet

    def _length(self) -> tuple[int, int]:
        """Returns the length of the packet, and how many bytes tag and length take."""
        value = 0
        for place in range(_LONGEST_VARINT):
            if not self._has(place + 2):
                raise Damaged(self.offset, "the file ends within a packet")
            byte = self._byte(place + 1)
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value, place + 2
        raise Damaged(self.offset, "no packet begins here")

    def _byte(self, place: int) -> int:
        return self._buffer[self._at + place]

    def _has(self, size: int) -> bool:
        """Whether so many bytes are left."""
        while len(self._buffer) - self._at < size:
            del self._buffer[: self._at]
            self._at = 0
            chunk = next(self._chunks, None)
            if chunk is None:
                return False
            self._buffer += chunk
        return True

    def _inflated(self) -> Iterator[bytes]:
        packed = self.path.stat().st_size
        with self.path.open("rb") as file:
            is_gzip = file.read(2) == _GZIP
            file.seek(0)
            for chunk in self._gunzipped(file) if is_gzip else iter(lambda: file.read(_CHUNK), b""):
                self._unpacked += len(chunk)
                if why := self.limits.unpacked(packed, self._unpacked):
                    raise TooLarge(why)
                yield chunk

    def _gunzipped(self, file) -> Iterator[bytes]:
        inflate = zlib.decompressobj(31)
        while data := file.read(_CHUNK):
            more = True
            while data or more:
                if inflate.eof:
                    if not data:
                        break
                    inflate = zlib.decompressobj(31)
                try:
                    chunk = inflate.decompress(data, _CHUNK)
                except zlib.error as error:
                    raise Damaged(self.offset, f"gzip: {error}") from None
                data = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
                more = len(chunk) == _CHUNK
                yield chunk
        if not inflate.eof:
            raise Damaged(self.offset, "gzip: the file ends early")
