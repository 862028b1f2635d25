"""Longer traces from real ones: the events are repeated, each copy later in time and with its own ids."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

_IDS = ("correlation", "wait_on_cuda_event_record_corr_id", "External id", "external id", "Python id",
        "Python parent id")  # fmt: skip
_FLOWS = ("s", "t", "f")
_STEP = re.compile(r"^ProfilerStep#(\d+)$")
_MARK = re.compile(r'"\\u0000(\w+):([^"]*)"')
_STEP_MARK = re.compile(r"#\\u0000step:(\d+)")


class _Number(float):
    """A JSON number that keeps its text, because a double cannot represent µs since 1970 with three decimals."""

    text: str

    def __new__(cls, text: str) -> _Number:
        number = super().__new__(cls, text)
        number.text = text
        return number


class _Template(NamedTuple):
    """An event's text with %s where copies differ, and the (kind, value) of each %s."""

    text: str
    slots: tuple[tuple[str, str], ...]


def enlarge(src: Path | str, dst: Path | str, times: int) -> int:
    """Write `times` copies of src's events to dst, one after another in time, and return the number of events.

    Correlations, External ids, Python ids, flow ids and the numbers of ProfilerStep annotations are shifted, so that
    copies do not share them. Correlations and ids in arguments that are 0 or negative (unknown) stay unchanged. src and
    dst are .json or .json.gz. The source must fit in memory, and the result is streamed. Raises ValueError for an array
    at the top level, `times` below 1, and timestamps that are text.
    """
    if times < 1:
        raise ValueError("times must be at least 1")
    document = _load(Path(src))
    if not isinstance(document, dict):
        raise ValueError(f"{src}: only an object with traceEvents can be enlarged")
    events: list[dict[str, Any]] = document.pop("traceEvents")
    period_us, id_stride, step_stride = _strides(events)
    if id_stride * times >= 2**63:
        raise ValueError(f"{src}: ids up to {id_stride - 1} cannot be shifted {times} times within 64 bits")
    templates = [_template(event) for event in events]
    n_events = len(events) * times
    del events
    with _create(Path(dst)) as out:
        out.write((json.dumps(document)[:-1] + (", " if document else "") + '"traceEvents": [\n').encode())
        for copy in range(times):
            shifts = {"ts": period_us * copy, "id": id_stride * copy, "step": step_stride * copy}
            for chunk in _chunks(templates, shifts):
                out.write((",\n" if copy or chunk.start else "").encode() + chunk.text.encode())
        out.write(b"\n]}\n")
    return n_events


def _load(path: Path) -> Any:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return json.loads(raw, strict=False, parse_float=_Number)


def _create(path: Path) -> IO[bytes]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return cast("IO[bytes]", gzip.GzipFile(path, "wb", 1, mtime=0)) if path.suffix == ".gz" else path.open("wb")


def _strides(events: list[dict[str, Any]]) -> tuple[int, int, int]:
    """Return the length of one copy in whole µs, and the increments of ids and step numbers per copy."""
    starts, ends, top, steps = [], [], 0, []
    for event in events:
        ts = event.get("ts")
        if isinstance(ts, str):
            raise ValueError(f"the timestamp {ts!r} is a string")
        if ts is not None and event.get("ph") != "M":
            starts.append(ts)
            ends.append(ts + (event.get("dur") or 0))
        args = event.get("args")
        values = [args.get(key) for key in _IDS] if isinstance(args, dict) else []
        values.append(event.get("id") if event.get("ph") in _FLOWS else None)
        top = max([top, *(v for v in values if isinstance(v, int))])
        if match := _STEP.match(str(event.get("name"))):
            steps.append(int(match[1]))
    period = int(max(ends) - min(starts)) + 1000 if starts else 1000
    return period, top + 1, max(steps) - min(steps) + 1 if steps else 0


def _template(event: dict[str, Any]) -> _Template:
    marked = dict(event)
    if "ts" in event:
        ts = event["ts"]
        marked["ts"] = f"\0ts:{ts.text if isinstance(ts, _Number) else ts}"
    if event.get("ph") in _FLOWS and isinstance(event.get("id"), int):
        marked["id"] = f"\0id:{event['id']}"
    if match := _STEP.match(str(event.get("name"))):
        marked["name"] = f"ProfilerStep#\0step:{match[1]}"
    args = event.get("args")
    if isinstance(args, dict):
        marked["args"] = {k: f"\0id:{v}" if k in _IDS and isinstance(v, int) and v > 0 else v for k, v in args.items()}
    text = _STEP_MARK.sub(r'#"\\u0000step:\1"', json.dumps(marked))
    slots = tuple((m[1], m[2]) for m in _MARK.finditer(text))
    return _Template(_MARK.sub("%s", text.replace("%", "%%")), slots)


class _Chunk(NamedTuple):
    start: int
    text: str


def _chunks(templates: list[_Template], shifts: dict[str, int], size: int = 10_000) -> Iterator[_Chunk]:
    for start in range(0, len(templates), size):
        lines = [
            text % tuple(_shifted(value, shifts[kind]) for kind, value in slots)
            for text, slots in templates[start : start + size]
        ]
        yield _Chunk(start, ",\n".join(lines))


def _shifted(value: str, by: int) -> str:
    """Return the text of a number plus a whole number, with the same decimals."""
    whole, dot, decimals = value.partition(".")
    if value.startswith("-") or "e" in value.lower():
        return f"{Decimal(value) + by:f}"
    return f"{int(whole) + by}{dot}{decimals}"
