"""Writer of the Chrome trace format: the text of events, exact to the nanosecond, and their files."""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterable, Iterator
from json.encoder import encode_basestring_ascii as quoted
from pathlib import Path
from typing import IO, TypeVar, cast

from isal import igzip, isal_zlib

T = TypeVar("T")
DRAWN = "tracelake"
"""Key of the marker in a file that tracelake drew (pipelines/readers/drawings.py reads it)."""
_LONGEST_MARK = 1 << 16
_FLOWS = 1 << 40  # arrow ids of the trace with index i start at (i + 1) * _FLOWS
_NUMBER = re.compile(r"(0|-?[1-9][0-9]{0,17})\Z")


def write_trace(target: Path, drawing: str, traces: Iterable[str], metadata: str, lines: Iterator[str]) -> None:
    """Write a file of event texts atomically, compressed if its name ends in .gz. Create its folder if it is missing.

    `drawing` and `traces` form the file's marker, by which ingestion recognizes a file that tracelake drew. `metadata`:
    the other keys of the file's object, as the JSON text of an object.
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


def drawn_traces(path: Path) -> list[str]:
    """Return the traces in the marker of a file, or [] if there is no such file, or `write_trace` did not write it."""
    before = f'{{"{DRAWN}": '
    try:
        with igzip.open(path, "rb") if path.name.endswith(".gz") else path.open("rb") as file:
            head = cast("bytes", file.read(_LONGEST_MARK)).decode("utf-8", "replace")
        return json.JSONDecoder().raw_decode(head, len(before))[0]["of"] if head.startswith(before) else []
    except (OSError, EOFError, ValueError, LookupError, TypeError):
        return []
    except isal_zlib.error:  # pyright: ignore[reportGeneralTypeIssues] its stub says Exception
        return []


def _opened(path: Path, *, packed: bool) -> IO[bytes]:
    """Open a file for writing. Its gzip header has no timestamp, so equal content produces equal bytes."""
    return cast("IO[bytes]", igzip.IGzipFile(path, "wb", compresslevel=1, mtime=0)) if packed else path.open("wb")


def based(base_ns: int) -> str:
    """Return the metadata of a file whose times are relative to `base_ns`."""
    return json.dumps({"baseTimeNanoseconds": base_ns})


def whole_seconds(ns: int) -> int:
    """Return the last whole second at or before a time, in ns, as the base of a file's times."""
    return ns // 1_000_000_000 * 1_000_000_000


def flow_of(place: int, flow_id: str) -> str:
    """Return an arrow's id that is unique among the traces of a file.

    It is a number, because Perfetto parses text as hexadecimal. `place`: index of the trace in the file, from 0.
    """
    own_id = int(flow_id) if flow_id.isdecimal() else zlib.crc32(flow_id.encode()) + (1 << 32)
    return str((place + 1) * _FLOWS + own_id % _FLOWS)


def microseconds(ns: int) -> str:
    """Format nanoseconds as a JSON number in microseconds: an integer if exact, or else with three decimals.

    Viewers read an integer exactly, while a decimal goes through a double.
    """
    us, ns_rest = divmod(abs(ns), 1000)
    return f"{'-' if ns < 0 else ''}{us}{f'.{ns_rest:03d}' if ns_rest else ''}"


def with_critical(args: str | None) -> str:
    """Return the JSON text of an event's arguments with `critical` = 1 added.

    A value that is not an object is moved to key `args`.
    """
    text = (args or "{}").strip()
    if text == "null":
        text = "{}"
    if not text.startswith("{"):
        return f'{{"args": {text}, "critical": 1}}'
    if '"critical"' in text:  # an overlay of an overlay; avoid a duplicate key
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
    """Return the JSON text of an event without its None fields. `args` and `extra` (further keys) are JSON text."""
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
    """Write event texts separated by commas, 500 at a time, because a compressor call per event is slow."""
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
    """Clip steps (start, weight, payload) so that none starts before the previous steps end.

    Yield (start, duration, weight, payload). The path goes back in time if, by the trace's clock, waiting work starts
    before the awaited work ends. Steps without a remaining duration are dropped.
    """
    past: int | None = None
    for start, weight, payload in steps:
        end = start + weight
        begin = start if past is None else max(start, past)
        if end > begin:
            yield begin, end - begin, weight, payload
            past = end
