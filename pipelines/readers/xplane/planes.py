"""Planes of an XSpace, and the events of their lines as rows.

The names of events and stats follow the lines in a plane, so each plane is read twice. Only the names are kept in
memory.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pipelines.readers.xplane.wire import Message, signed

_DEVICE = re.compile(r"/device:(?:GPU|TPU):(\d{1,9})\b(?: SparseCore (\d{1,9})\b)?")
_STREAM = re.compile(r"Stream #(\d+)")
_LARGEST = 1 << 63
_CORE_BITS = 32  # low bits of a SparseCore line's stream, below the bits with the core's number
_LONGEST_TEXT = 1 << 20
Row = tuple[Any, ...]


@dataclass
class Plane:
    """A plane. `device`: number of the device, None for the host. `stats`: values by name.

    `sparse_core`: number of the SparseCore whose plane this is, or None for all other planes.
    """

    name: str = ""
    device: int | None = None
    sparse_core: int | None = None
    lines: list[Message] = field(default_factory=list)
    events: dict[int, tuple[str, Message | None]] = field(default_factory=dict)
    stat_names: dict[int, str] = field(default_factory=dict)
    stats: dict[str, Any] = field(default_factory=dict)
    _raw_stats: list[Message] = field(default_factory=list)


class Space:
    """Planes of a file. `counts`: number of faults by check. `places`: position of the first fault of each check."""

    def __init__(self, data: memoryview) -> None:
        self.counts: Counter[str] = Counter()
        self.places: dict[str, str] = {}
        self.hosts: list[str] = []
        self.warnings: list[str] = []
        self.planes: list[Plane] = []
        self.others: Counter[str] = Counter()
        self.lines: set[tuple[int | None, str, str]] = set()
        for number, value in Message(data, 0, len(data)).fields():
            if number == 1 and isinstance(value, Message):
                self.planes.append(self._plane(value))
            elif number in (2, 3) and isinstance(value, Message):
                self.warnings.append(value.text()[:200])
            elif number == 4 and isinstance(value, Message):
                self.hosts.append(value.text())

    def start_ns(self) -> int | None:
        """Return the start of profiling, ns since 1970, or None if the file does not contain it."""
        start = next((plane.stats.get("profile_start_time") for plane in self.planes if "Task Env" in plane.name), None)
        return start if isinstance(start, int) else None

    def rows(self) -> Iterator[Row]:
        """Yield the events of the devices and of the host."""
        for plane in self.planes:
            if plane.device is None and not plane.name.startswith("/host:CPU"):
                if plane.lines:
                    self.others[plane.name] += 1
                continue
            for line in plane.lines:
                yield from self._line(plane, line)

    def _plane(self, message: Message) -> Plane:
        plane = Plane()
        for number, value in message.fields():
            if not isinstance(value, Message):
                continue
            if number == 2:
                plane.name = value.text()
            elif number == 3:
                plane.lines.append(value)
            elif number == 4:
                key, entry = _entry(value)
                self._named(plane.events, key, (_text(entry, 4) or _text(entry, 2), entry), plane)
            elif number == 5:
                key, entry = _entry(value)
                self._named(plane.stat_names, key, _text(entry, 2), plane)
            elif number == 6:
                plane._raw_stats.append(value)
        if match := _DEVICE.match(plane.name):
            plane.device = int(match[1])
            plane.sparse_core = int(match[2]) if match[2] else None
        plane.stats = self._stats(plane, plane._raw_stats)
        return plane

    def _named(self, names: dict[int, Any], key: int, value: Any, plane: Plane) -> None:
        if key in names:
            self._note("xplane_id_twice", f"plane {plane.name}, id {key}")
        names[key] = value

    def _line(self, plane: Plane, message: Message) -> Iterator[Row]:
        ident, name, at_ns = 0, "", 0
        events: list[Message] = []
        for number, value in message.fields():
            if number == 1 and isinstance(value, int):
                ident = value
            elif number == 11 and isinstance(value, Message):
                name = value.text() or name
            elif number == 2 and isinstance(value, Message):
                name = name or value.text()
            elif number == 3 and isinstance(value, int):
                at_ns = signed(value)
            elif number == 4 and isinstance(value, Message):
                events.append(value)
        match = _STREAM.search(name)
        stream = int(match[1]) if match else ident % _LARGEST
        if plane.sparse_core is not None:  # line ids are unique only within a plane
            stream = (1 + plane.sparse_core) << _CORE_BITS | stream % (1 << _CORE_BITS)
        self.lines.add((plane.device, str(ident), name))
        for event in events:
            row = self._event(plane, event, at_ns)
            if row is not None:
                yield (plane.device, str(ident), name, None if plane.device is None else stream, *row)

    def _event(self, plane: Plane, message: Message, line_ns: int) -> Row | None:
        key = offset = duration = None
        repeats, stats = None, []
        for number, value in message.fields():
            if number == 1 and isinstance(value, int):
                key = value
            elif number == 2 and isinstance(value, int):
                offset = signed(value)
            elif number == 3 and isinstance(value, int):
                duration = signed(value)
            elif number == 4 and isinstance(value, Message):
                stats.append(value)
            elif number == 5 and isinstance(value, int):
                repeats = value
        position = f"byte {message.begin}"
        if repeats is not None and offset is None:  # a sum over many events, which has no time
            self._note("xplane_without_time", position)
            return None
        name, metadata = plane.events.get(key or 0, (None, None))
        if name is None:
            self._note("xplane_unknown_name", position)
        args = (
            self._stats(
                plane, [value for number, value in metadata.fields() if number == 5 and isinstance(value, Message)]
            )
            if metadata
            else {}
        )
        args |= self._stats(plane, stats)
        begin = line_ns * 1000 + (offset or 0)
        start_ns = self._time(_rounded(begin), position)
        duration_ns = None if duration is None else self._time(_rounded(begin + duration) - _rounded(begin), position)
        return (
            start_ns,
            duration_ns,
            name,
            self._integer(args, "correlation_id", position),
            self._step(args),
            *_split(args),
        )

    def _stats(self, plane: Plane, messages: list[Any]) -> dict[str, Any]:
        value_by_name: dict[str, Any] = {}
        for message in messages:
            name = value = None
            for number, part in message.fields():
                if number == 1:
                    name = plane.stat_names.get(int(part)) if isinstance(part, int) else None
                    if name is None:
                        self._note("xplane_unknown_name", f"byte {message.begin}")
                elif number == 7 and isinstance(part, int):
                    value = plane.stat_names.get(part)
                elif number in (5, 6) and isinstance(part, Message):
                    value = part.text() if part.end - part.begin <= _LONGEST_TEXT and number == 5 else None
                elif number == 4 and isinstance(part, int):
                    value = signed(part)
                elif isinstance(part, int | float):
                    value = part
            # JSON has neither NaN nor infinity.
            if name is not None and not (isinstance(value, float) and not math.isfinite(value)):
                value_by_name[name] = value
        return value_by_name

    def _integer(self, args: dict[str, Any], name: str, position: str) -> int | None:
        value = args.get(name)
        if value is None or (isinstance(value, int) and -_LARGEST <= value < _LARGEST):
            return value
        self._note("xplane_wrong_type", f"{position} ({name})")
        return None

    def _time(self, ns: int, position: str) -> int | None:
        if -_LARGEST <= ns < _LARGEST:
            return ns
        self._note("xplane_wrong_type", f"{position} (a time)")
        return None

    def _step(self, args: dict[str, Any]) -> int | None:
        value = args.get("step_num")
        return value if isinstance(value, int) and 0 <= value < _LARGEST else None

    def _note(self, check: str, position: str) -> None:
        self.counts[check] += 1
        self.places.setdefault(check, position)


def _split(args: dict[str, Any]) -> tuple[str | None, str]:
    """Return the details of a launch (grid, block) or of a copy, None if missing, and the arguments as JSON."""
    details = args.get("kernel_details") or args.get("memcpy_details")
    return details if isinstance(details, str) else None, json.dumps(args, separators=(",", ":"))


def _entry(message: Message) -> tuple[int, Message]:
    """Return (key, value) of an entry of a map. The defaults are 0 and an empty message."""
    key, value = 0, Message(message.data, message.end, message.end)
    for number, part in message.fields():
        if number == 1 and isinstance(part, int):
            key = part
        elif number == 2 and isinstance(part, Message):
            value = part
    return key, value


def _text(message: Message, number: int) -> str:
    return next(
        (
            part.text()
            for field_number, part in message.fields()
            if field_number == number and isinstance(part, Message)
        ),
        "",
    )


def _rounded(ps: int) -> int:
    """Return a time in ps rounded to ns."""
    return (ps + 500) // 1000
