"""Fields of a protobuf message in a mapped file, as (number, value). A value with a length is a view of its bytes.

Source: protobuf.dev/programming-guides/encoding. Nothing is copied, so a message may be larger than the memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_LONGEST_VARINT = 10
_DOUBLE = struct.Struct("<d")
_SIGN = 1 << 63


class Damaged(Exception):
    """A file that is not a protobuf message, at byte `offset`."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset


class Message:
    """A protobuf message in bytes `begin` to `end` of `data`."""

    __slots__ = ("begin", "data", "end")

    def __init__(self, data: memoryview, begin: int, end: int) -> None:
        self.data, self.begin, self.end = data, begin, end

    def fields(self) -> Iterator[tuple[int, int | float | Message]]:
        """Yield number and value of each field: an unsigned integer, a double, or a Message for a value with a length.

        Raise Damaged if the bytes are not a protobuf message.
        """
        offset, data, end = self.begin, self.data, self.end
        while offset < end:
            begin = offset
            tag, offset = self._varint(offset)
            number, kind = tag >> 3, tag & 7
            if kind == 0:
                value, offset = self._varint(offset)
            elif kind == 2:
                length, offset = self._varint(offset)
                if length > end - offset:
                    raise Damaged(begin, "a field reaches beyond the end of what it is in: the file is cut or damaged")
                value, offset = Message(data, offset, offset + length), offset + length
            elif kind in (1, 5):
                size = 8 if kind == 1 else 4
                if size > end - offset:
                    raise Damaged(begin, "the file ends within a number")
                value = (
                    _DOUBLE.unpack_from(data, offset)[0]
                    if kind == 1
                    else int.from_bytes(data[offset : offset + 4], "little")
                )
                offset += size
            else:
                raise Damaged(begin, f"no field of protobuf begins here (wire type {kind})")
            if not number:
                raise Damaged(begin, "no field of protobuf begins here (number 0)")
            yield number, value

    def text(self) -> str:
        """Return the message's bytes, decoded as UTF-8."""
        return bytes(self.data[self.begin : self.end]).decode("utf-8", "replace")

    def _varint(self, offset: int) -> tuple[int, int]:
        value, data = 0, self.data
        for index in range(_LONGEST_VARINT):
            if offset >= self.end:
                raise Damaged(offset, "the file ends within a number")
            byte = data[offset]
            offset += 1
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value & 0xFFFF_FFFF_FFFF_FFFF, offset
        raise Damaged(offset, "a number of more than 64 bits")


def signed(value: int) -> int:
    """Return the signed integer whose 64 bits are those of `value`."""
    return value - (_SIGN << 1) if value >= _SIGN else value
