"""Writer of XSpace files by the schema (xplane.proto of openxla/xla)."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any


def varint(value: int) -> bytes:
    out = b""
    value &= (1 << 64) - 1
    while value >= 0x80:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def part(number: int, value: int | float | str | bytes) -> bytes:
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


@dataclass
class Plane:
    """A plane; its events are (name, offset in ps or None for 0, duration in ps or None, stats)."""

    name: str
    lines: list[tuple[int, str, int, list[Any]]] = field(default_factory=list)
    about: dict[str, Any] = field(default_factory=dict)
    event_stats: dict[str, dict[str, Any]] = field(default_factory=dict)
    extra: bytes = b""

    def data(self) -> bytes:
        stats: dict[str, int] = {}
        names: dict[str, int] = {}

        def number(known: dict[str, int], name: str) -> int:
            return known.setdefault(name, len(known) + 1)

        def stat(name: str, value: Any) -> bytes:
            kind = 2 if isinstance(value, float) else 7 if isinstance(value, str) else 4 if value < 0 else 3
            shown = number(stats, value) if isinstance(value, str) else value
            return part(1, number(stats, name)) + part(kind, shown)

        def event(name: str, offset: int, duration: int | None, args: dict[str, Any]) -> bytes:
            out = part(1, number(names, name)) + (part(2, offset) if offset else b"")
            out += b"" if duration is None else part(3, duration)
            return out + b"".join(part(4, stat(key, value)) for key, value in args.items())

        lines = b"".join(
            part(
                3,
                part(1, ident) + part(2, title) + part(3, at) + b"".join(part(4, event(*values)) for values in events),
            )
            for ident, title, at, events in self.lines
        )
        about = b"".join(part(6, stat(key, value)) for key, value in self.about.items())
        stat_parts = {
            name: b"".join(part(5, stat(key, value)) for key, value in self.event_stats.get(name, {}).items())
            for name in names
        }
        metadata = b"".join(
            part(4, part(1, key) + part(2, part(1, key) + part(2, name) + stat_parts[name]))
            for name, key in names.items()
        )
        known = b"".join(part(5, part(1, key) + part(2, part(1, key) + part(2, name))) for name, key in stats.items())
        return part(2, self.name) + lines + metadata + known + about + self.extra


def space(*planes: Plane, host: str = "tw003") -> bytes:
    return b"".join(part(1, plane.data()) for plane in planes) + part(4, host)
