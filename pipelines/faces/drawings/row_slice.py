"""Rows of a query as a trace for Perfetto or chrome://tracing, on separate tracks.

Rows become slices (a start and a duration), counters (a time and numbers) or marks (a time alone).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import Any

from pipelines.faces.cells import as_json
from pipelines.faces.drawings.chrome_trace import based, trace_event, whole_seconds, write_trace
from pipelines.faces.drawings.trace_slice import SLICE, NoSlice, Sliced

STARTS, ENDS, LENGTHS = ("start_ns", "at_ns"), ("end_ns",), ("duration_ns",)
_TRACKS = ("track", "trace_id", "rank", "device", "stream", "pid", "tid", "thread_id")
_NUMBERS = (int, float, Decimal)

Row = Mapping[str, Any]


def write_rows(rows: Sequence[Row], columns: Sequence[str], target: Path) -> Sliced:
    """Write the rows that have a time as slices, counters or marks. Raise NoSlice if no row has a time.

    A row starts at column `start_ns` or `at_ns`. If the query has a column `end_ns` or `duration_ns`, each row becomes
    a slice. Otherwise, if it has further columns of numbers, a row becomes counters, one per number, or else a mark.
    Events are named by column `name`, or else by the first text column. Rows share a track if they agree in all columns
    of _TRACKS. If slices of a track overlap, further tracks follow. A time that is NULL or not finite counts as
    missing.
    """
    start = _first(STARTS, columns)
    if start is None:
        raise NoSlice(
            "nothing to draw: select trace_id and event_id, or a start (start_ns, at_ns) with duration_ns or "
            f"end_ns for slices, or with numbers for counters; the columns are {', '.join(columns)}"
        )
    length, end = _first(LENGTHS, columns), _first(ENDS, columns)
    for name in filter(None, (start, length, end)):
        wrong = next((row[name] for row in rows if row[name] is not None and not isinstance(row[name], _NUMBERS)), None)
        if wrong is not None:
            raise NoSlice(f"nothing to draw: {name} must be a number of nanoseconds, not {wrong!r}")
    timed = sorted((row for row in rows if _is_known(row[start])), key=lambda row: int(row[start]))
    if not timed:
        raise NoSlice("nothing to draw: the query has no rows with a time")
    base_ns = whole_seconds(int(timed[0][start]))
    drawing = _Drawing(timed, columns, (start, length, end), base_ns)
    lines = list(drawing.lines(timed))
    traces = {row["trace_id"] for row in rows if row.get("trace_id") is not None}
    write_trace(target, SLICE, sorted(map(str, traces)), based(base_ns), chain(drawing.named(), lines))
    n = drawing.n
    return Sliced(target, 0, n["X"], n["C"], n["i"], len(rows) - len(timed))


class _Drawing:
    """Conversion of rows to events. It chooses the columns of their name, track, numbers and arguments."""

    def __init__(
        self, timed: Sequence[Row], columns: Sequence[str], times: tuple[str, str | None, str | None], base_ns: int
    ) -> None:
        self.start, self.length, self.end = times
        self.base_ns = base_ns
        self.tracks = [name for name in _TRACKS if name in columns]
        texts = (
            name for name in columns if name not in self.tracks and any(isinstance(row[name], str) for row in timed)
        )
        self.named_by = "name" if "name" in columns else next(texts, None)
        twice = (used for used in (self.start, self.length) if used)
        drawn = {*times, self.named_by, *self.tracks, *(name for used in twice for name in _same(used, columns, timed))}
        self.others = [name for name in columns if name not in drawn]
        self.numbers = [name for name in self.others if any(isinstance(row[name], _NUMBERS) for row in timed)]
        self.lanes = _Lanes()
        self.n = {"X": 0, "C": 0, "i": 0}

    def lines(self, timed: Sequence[Row]) -> Iterator[str]:
        """Yield the rows as events."""
        for row in timed:
            start_ns = int(row[self.start])
            track = ", ".join(f"{column} {row[column]}" for column in self.tracks if row[column] is not None)
            name = None if self.named_by is None else row[self.named_by]
            if self.length or self.end:
                yield self._event("X", name, row, track, start_ns, self._until(row, start_ns))
            elif self.numbers:
                yield from self._counters(name, row, track, start_ns)
            else:
                yield self._event("i", name, row, track, start_ns, start_ns + 1)

    def named(self) -> Iterator[str]:
        """Yield the names of the process and its threads."""
        yield trace_event("M", None, "process_name", "1", "0", 0, None, args=json.dumps({"name": "query"}))
        yield from self.lanes.named()

    def _until(self, row: Row, start_ns: int) -> int:
        if self.length and _is_known(row[self.length]):
            return max(start_ns, start_ns + int(row[self.length]))
        return max(start_ns, int(row[self.end])) if self.end and _is_known(row[self.end]) else start_ns

    def _event(self, ph: str, label: Any, row: Row, track: str, start_ns: int, until: int) -> str:
        self.n[ph] += 1
        return trace_event(
            ph,
            "query",
            "row" if label is None else str(label),
            "1",
            self.lanes.place(track, start_ns, until),
            start_ns - self.base_ns,
            until - start_ns if ph == "X" else None,
            scope="t" if ph == "i" else None,
            args=as_json({name: row[name] for name in self.others}),
        )

    def _counters(self, label: Any, row: Row, track: str, start_ns: int) -> Iterator[str]:
        for name in self.numbers:
            if _is_known(row[name]):
                self.n["C"] += 1
                counter_name = " ".join(filter(None, ("" if label is None else str(label), name, track)))
                args = json.dumps({name: float(row[name])})
                yield trace_event("C", None, counter_name, "1", "0", start_ns - self.base_ns, None, args=args)


class _Lanes:
    """Threads of tracks. A slice goes to the first free thread of its track, because viewers drop overlapping slices."""

    def __init__(self) -> None:
        self.free_at: dict[str, list[tuple[int, str]]] = {}
        self.n = 0

    def place(self, track: str, start: int, end: int) -> str:
        lanes = self.free_at.setdefault(track, [])
        for number, (free_at, tid) in enumerate(lanes):
            if free_at <= start:
                lanes[number] = (end, tid)
                return tid
        self.n += 1
        lanes.append((end, str(self.n)))
        return str(self.n)

    def named(self) -> Iterator[str]:
        for track, lanes in self.free_at.items():
            for _, tid in lanes:
                args = json.dumps({"name": track or "rows"})
                yield trace_event("M", None, "thread_name", "1", tid, 0, None, args=args)


def _first(names: Sequence[str], columns: Sequence[str]) -> str | None:
    return next((name for name in names if name in columns), None)


def _same(used: str, columns: Sequence[str], timed: Sequence[Row]) -> list[str]:
    """Return the columns that repeat column `used` under another name, so that they are not drawn as values."""
    names = next(names for names in (STARTS, LENGTHS) if used in names)
    return [name for name in names if name in columns and name != used and all(row[name] == row[used] for row in timed)]


def _is_known(value: Any) -> bool:
    return value is not None and isfinite(value)
