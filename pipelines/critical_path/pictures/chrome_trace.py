"""Writes events in the Chrome trace format: their text, exact to the nanosecond, and the files that hold it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from json.encoder import encode_basestring_ascii as quoted
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from isal import igzip

T = TypeVar("T")
DRAWN = "tracelake"
"""Key of the mark in a file that tracelake drew (pipelines/readers/drawings.py reads it)."""
_NUMBER = re.compile(r"(0|-?[1-9]\d{0,17})\Z")


def open_trace(path: Path, *, packed: bool) -> IO[bytes]:
    """Open a file for writing, gzip or plain. The gzip header has no time, so equal content gives equal bytes."""
    return cast("IO[bytes]", igzip.IGzipFile(path, "wb", compresslevel=1, mtime=0)) if packed else path.open("wb")


def drawn(drawing: str, traces: Iterable[str]) -> str:
    """Returns the mark of a file that shows traces of a lake, as the beginning of its object: ingestion knows it by that."""
    return f'"{DRAWN}": {json.dumps({"drawing": drawing, "of": list(traces)})}'


def microseconds(ns: int) -> str:
    """Formats nanoseconds as a JSON number in microseconds: integers if whole, else three decimals.

    Viewers read an integer exactly, while a decimal goes through a double.
    """
    whole, rest = divmod(abs(ns), 1000)
    return f"{'-' if ns < 0 else ''}{whole}{f'.{rest:03d}' if rest else ''}"


def with_critical(args: str | None) -> str:
    """Returns the JSON text of an event's arguments with `critical` = 1 added; a value that is not an object is moved
    to key `args`.
    """
    text = (args or "{}").strip()
    if text == "null":
        text = "{}"
    if not text.startswith("{"):
        return f'{{"args": {text}, "critical": 1}}'
    if '"critical"' in text:  # it may be an overlay of an overlay: no key may occur twice
        return json.dumps({**json.loads(text), "critical": 1})
    inside = text[1:-1].strip()
    return f'{{{inside}{", " if inside else ""}"critical": 1}}'


def trace_event(
    ph: str,
    cat: str | None,
    name: str | None,
    pid: str | None,
    tid: str | None,
    start_ns: int | None,
    duration_ns: int | None,
    *,
    flow_id: str | None = None,
    bp: str | None = None,
    scope: str | None = None,
    args: str | None = None,
    extra: str | None = None,
) -> str:
    """Returns the JSON text of one event; None fields are left out. `args` and `extra` (further keys) are JSON text."""
    parts = [f'"ph": {quoted(ph)}']
    for key, text in (("cat", cat), ("name", name)):
        if text is not None:
            parts.append(f'"{key}": {quoted(text)}')
    for key, text in (("pid", pid), ("tid", tid), ("id", flow_id)):
        if text is not None:
            parts.append(f'"{key}": {text if _NUMBER.match(text) else quoted(text)}')
    for key, time in (("ts", start_ns), ("dur", duration_ns)):
        if time is not None:
            parts.append(f'"{key}": {microseconds(time)}')
    for key, text in (("bp", bp), ("s", scope)):
        if text is not None:
            parts.append(f'"{key}": {quoted(text)}')
    if args is not None:
        parts.append(f'"args": {args}')
    if extra and (inside := extra.strip()[1:-1].strip()):
        parts.append(inside)
    return f"{{{', '.join(parts)}}}"


def write_lines(write: Callable[[bytes], Any], lines: Iterator[str]) -> None:
    """Write event texts with commas between them, some hundred at a time: one compressor call per event is slow."""
    pending: list[str] = []
    before = "\n"
    for line in lines:
        pending.append(line)
        if len(pending) == 500:
            write((before + ",\n".join(pending)).encode())
            before = ",\n"
            pending.clear()
    if pending:
        write((before + ",\n".join(pending)).encode())


def step_times(steps: Iterable[tuple[int, int, T]]) -> Iterator[tuple[int, int, int, T]]:
    """Clip steps (start, weight, what) so that none begins before the earlier ones end: (start, dur, weight, what).

    The path goes back in time where, by the trace's clock, waiting work begins before what it waited for ended. Steps
    with nothing left are dropped.
    """
    past: int | None = None
    for start, weight, what in steps:
        end = start + weight
        begin = start if past is None else max(start, past)
        if end > begin:
            yield begin, end - begin, weight, what
            past = end
