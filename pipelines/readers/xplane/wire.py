"""Fields of a protobuf message in a mapped file: (number, value), where a value with a length is a view of its bytes.

Source: protobuf.dev/programming-guides/encoding. Nothing is copied, so a message may be larger than the memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_LONGEST_VARINT = 10
_DOUBLE = struct.Struct("<d")
_SIGN = 1 << 63


class Damaged(Exception):
    """The file is no such message at byte `offset`."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset


class Message:
    """Bytes `begin` to `end` of `data`, as a message."""

    __slots__ = ("begin", "data", "end")

    def __init__(self, data: memoryview, begin: int, end: int) -> None:
        self.data, self.begin, self.end = data, begin, end

    def fields(self) -> Iterator[tuple[int, int | float | Message]]:
        """Yields number and value of each field: an unsigned integer, a double, or what has a length. Raises Damaged."""
        at, data, end = self.begin, self.data, self.end
        while at < end:
            begin = at
            tag, at = self._varint(at)
            number, kind = tag >> 3, tag & 7
            if kind == 0:
                value, at = self._varint(at)
            elif kind == 2:
                length, at = self._varint(at)
                if length > end - at:
                    raise Damaged(begin, "a field reaches beyond the end of what it is in: the file is cut or damaged")
                value, at = Message(data, at, at + length), at + length
            elif kind in (1, 5):
                size = 8 if kind == 1 else 4
                if size > end - at:
                    raise Damaged(begin, "the file ends within a number")
                value = _DOUBLE.unpack_from(data, at)[0] if kind == 1 else int.from_bytes(data[at : at + 4], "little")
                at += size
            else:
                raise Damaged(begin, f"no field of protobuf begins here (wire type {kind})")
            if not number:
                raise Damaged(begin, "no field of protobuf begins here (number 0)")
            yield number, value

    def text(self) -> str:
        """Returns the bytes as text."""
        return bytes(self.data[self.begin : self.end]).decode("utf-8", "replace")

    def _varint(self, at: int) -> tuple[int, int]:
        value, data = 0, self.data
        for place in range(_LONGEST_VARINT):
            if at >= self.end:
                raise Damaged(at, "the file ends within a number")
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, at
        raise Damaged(at, "a number of more than 64 bits")


def signed(value: int) -> int:
    """Returns an int64 as it was written."""
    return value - (_SIGN << 1) if value >= _SIGN else value
