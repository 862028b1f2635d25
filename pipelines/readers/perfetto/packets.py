"""Packets of a Perfetto trace, one at a time. They are field 1 of the message Trace, each preceded by its length."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from pipelines.readers.kineto.limits import Limits, allow

_GZIP = b"\x1f\x8b"
_PACKET = 0x0A  # field 1, with a length
_CHUNK = 1 << 20
_LONGEST_VARINT = 10
_ZLIB_OR_GZIP = 47  # zlib's wbits for either format, detected from the header; Perfetto's own reader accepts both


class Damaged(Exception):
    """A file that cannot be read from `offset` (decompressed bytes) on."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset


class TooLarge(Exception):
    """A limit that is exceeded. The message names the option that raises the limit."""


def begins_as_trace(path: Path) -> bool:
    """Return whether a file begins with a packet, after decompression if it is gzip."""
    with path.open("rb") as file:
        head = file.read(1 << 10)
    if head.startswith(_GZIP):
        try:
            head = zlib.decompressobj(31).decompress(head, 1)
        except zlib.error:
            return False
    return head[:1] == bytes([_PACKET])


class Packets:
    """Packets of a file, and packets inside compressed packets.

    `offset`: next packet's position, decompressed bytes.
    """

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path, self.limits = path, limits
        self.offset = 0
        self._unpacked = 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield the packets.

        Raise Damaged if the file is truncated or broken, TooLarge if it exceeds a limit, and OSError if it cannot be
        read.
        """
        for packet, offset in _Pieces(self._inflated(), self.limits):
            self.offset = offset
            yield packet

    def inside(self, compressed: bytes) -> Iterator[bytes]:
        """Yield the packets in a packet's `compressed_packets`, a zlib or gzip stream.

        Raise Damaged if the stream is broken, and TooLarge if the decompressed packets exceed a limit.
        """
        for packet, _ in _Pieces(self._counted(self._inflated_field(compressed)), self.limits):
            yield packet

    def _inflated(self) -> Iterator[bytes]:
        with self.path.open("rb") as file:
            is_gzip = file.read(2) == _GZIP
            file.seek(0)
            yield from self._counted(self._gunzipped(file) if is_gzip else iter(lambda: file.read(_CHUNK), b""))

    def _counted(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        packed = self.path.stat().st_size
        for chunk in chunks:
            self._unpacked += len(chunk)
            if why := self.limits.unpacked(packed, self._unpacked):
                raise TooLarge(why)
            yield chunk

    def _gunzipped(self, file: BinaryIO) -> Iterator[bytes]:
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
            raise Damaged(self.offset, "gzip: the file is truncated")

    def _inflated_field(self, data: bytes) -> Iterator[bytes]:
        inflate = zlib.decompressobj(_ZLIB_OR_GZIP)
        while not inflate.eof:
            try:
                chunk = inflate.decompress(data, _CHUNK)
            except zlib.error as error:
                raise Damaged(self.offset, f"compressed packets: {error}") from None
            data = inflate.unconsumed_tail
            if not chunk and not data and not inflate.eof:
                raise Damaged(self.offset, "compressed packets are truncated")
            yield chunk
        if inflate.unused_data:
            raise Damaged(self.offset, "something follows the compressed packets")


class _Pieces:
    """Iterator over the packets in chunks of bytes, as (packet, offset of the next packet)."""

    def __init__(self, chunks: Iterator[bytes], limits: Limits) -> None:
        self._chunks, self._limits = chunks, limits
        self._offset = 0
        self._buffer = bytearray()
        self._at = 0

    def __iter__(self) -> Iterator[tuple[bytes, int]]:
        longest = self._limits.max_event_mib << 20
        while self._has(1):
            tag, length, size = self._buffer[self._at], *self._length()
            if tag != _PACKET:
                raise Damaged(self._offset, "no packet begins here")
            if length > longest:
                message = f"a packet of {length:,} bytes, more than {self._limits.max_event_mib} MiB; {allow('max_event_mib')}"
                raise Damaged(self._offset, message)
            if not self._has(size + length):
                raise Damaged(self._offset, "the file ends within a packet")
            begin = self._at + size
            packet = bytes(self._buffer[begin : begin + length])
            self._at += size + length
            self._offset += size + length
            yield packet, self._offset

    def _length(self) -> tuple[int, int]:
        """Return (length of the packet, length of its tag and length field), bytes."""
        value = 0
        for index in range(_LONGEST_VARINT):
            if not self._has(index + 2):
                raise Damaged(self._offset, "the file ends within a packet")
            byte = self._buffer[self._at + index + 1]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value, index + 2
        raise Damaged(self._offset, "no packet begins here")

    def _has(self, size: int) -> bool:
        """Read chunks until the buffer has `size` more bytes. Return False if the file ends before that."""
        while len(self._buffer) - self._at < size:
            del self._buffer[: self._at]
            self._at = 0
            chunk = next(self._chunks, None)
            if chunk is None:
                return False
            self._buffer += chunk
        return True
