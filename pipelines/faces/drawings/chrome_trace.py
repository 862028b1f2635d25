"""Writes events in the Chrome trace format: their text, exact to the nanosecond, and the files that hold it."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from json.encoder import encode_basestring_ascii as quoted
from pathlib import Path
from typing import IO, TypeVar, cast

from isal import igzip

T = TypeVar("T")
DRAWN = "tracelake"
"""Key of the mark in a file that tracelake drew (pipelines/readers/drawings.py reads it)."""
_FLOWS = 1 << 40  # the ids of a trace's arrows begin at so many times its place
_NUMBER = re.compile(r"(0|-?[1-9]\d{0,17})\Z")


def write_trace(target: Path, drawing: str, traces: Iterable[str], metadata: str, lines: Iterator[str]) -> None:
    """Write a file of event texts, whole or not at all; packed where its name ends in .gz. Its folder is created if missing.

    `drawing` and `traces` are its mark, by which ingestion knows a file that shows traces of a lake; `metadata`: the other
    keys of its object, as the JSON text of one.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    mark = f'"{DRAWN}": {json.dumps({"drawing": drawing, "of": list(traces)})}'
    keys = ", ".join(filter(None, (mark, metadata.strip()[1:-1].strip(), '"traceEvents": [')))
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with _opened(unfinished, packed=target.name.endswith(".gz")) as out:
            out.write(f"{{{keys}".encode())
            _write_lines(out, lines)
            out.write(b"\n]}\n")
        os.replace(unfinished, target)
    finally:
        unfinished.unlink(missing_ok=True)


def _opened(path: Path, *, packed: bool) -> IO[bytes]:
    """The gzip header has no time, so equal content gives equal bytes."""
    return cast("IO[bytes]", igzip.IGzipFile(path, "wb", compresslevel=1, mtime=0)) if packed else path.open("wb")


def based(base_ns: int) -> str:
    """Returns the metadata of a file whose times are relative to this one."""
    return json.dumps({"baseTimeNanoseconds": base_ns})


def whole_seconds(ns: int) -> int:
    """Returns the whole second at or before a time, which the times of a file are relative to."""
    return ns // 1_000_000_000 * 1_000_000_000


def flow_of(place: int, flow_id: str) -> str:
    """Returns an id of a trace's arrow that none of the file's other traces has, as a number: Perfetto reads text as
    hexadecimal. `place`: the trace's among them, from 0.
    """
    own = int(flow_id) if flow_id.isdecimal() else zlib.crc32(flow_id.encode()) + (1 << 32)
    return str((place + 1) * _FLOWS + own % _FLOWS)


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


def _write_lines(out: IO[bytes], lines: Iterator[str]) -> None:
    """Event texts with commas between them, some hundred at a time: one compressor call per event is slow."""
    pending: list[str] = []
    before = "\n"
    for line in lines:
        pending.append(line)
        if len(pending) == 500:
            out.write((before + ",\n".join(pending)).encode())
            before = ",\n"
            pending.clear()
    if pending:
        out.write((before + ",\n".join(pending)).encode())


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
