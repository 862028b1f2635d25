"""The check of an ingested mutated file with an independent parser.

Every value is in the rows, or a finding reports it.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Collection
from decimal import ROUND_HALF_UP, Decimal, DecimalException
from operator import itemgetter
from typing import Any

from pipelines.readers.kineto.numbers import LATEST_NS

# Findings about the trace, which do not mean that a part of the file is missing from the rows.
_NO_LOSS = {"unmatched_begin", "unmatched_end", "negative_duration", "sub_nanosecond_time"}
_COLUMNS = {"ph": "ph", "name": "name", "pid": "pid", "tid": "tid", "id": "flow_id", "bp": "bp", "s": "scope"}
_NUMBERS = {"correlation": "correlation", "stream": "stream", "device": "device", "External id": "external_id"}
_KNOWN = {*_COLUMNS, "cat", "ts", "dur", "args"}


class Object(dict[str, Any]):
    """A JSON object that also keeps its members in order, including members with duplicate keys."""

    def __init__(self, members: list[tuple[str, Any]]) -> None:
        super().__init__(members)
        self.members = members


def silent_loss(data: bytes, rows: list[dict[str, Any]], findings: dict[str, int]) -> str:
    """Return which values are missing from or changed in an ingested file's rows without a finding, or "".

    `rows`: its events in order. `findings`: the count of each finding.
    """
    n_findings = sum(n for check, n in findings.items() if check not in _NO_LOSS)
    document, flaw = _parsed(data)
    if flaw:
        return "" if n_findings else f"{flaw}, and no finding"
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        return "there is no array of events, and it went in"
    if findings.get("truncated"):
        return ""
    if len(rows) != len(events):
        return "" if n_findings else f"{len(events)} entries, {len(rows)} rows, and no finding"
    # If the file's base time is unusable, which a finding reports, times are not shifted.
    shift = _shift(document)
    shift = 0 if findings.get("unusable_number") and abs(shift) > LATEST_NS else shift
    lost = [
        (at, what)
        for at, (event, row) in enumerate(zip(events, rows, strict=True))
        for what in _lost(event, row, shift)
    ]
    if len({at for at, _ in lost}) > n_findings:
        shown = "; ".join(f"entry {at}: {what}" for at, what in lost[:3])
        return f"{len(lost)} values lost or changed, findings {findings}: {shown}"
    return ""


def entries_of(data: bytes) -> int | None:
    """Return the number of entries of the event array, or None if the file is not strict JSON with such an array."""
    document, flaw = _parsed(data)
    events = document.get("traceEvents") if isinstance(document, dict) else document
    return len(events) if not flaw and isinstance(events, list) else None


def _parsed(data: bytes) -> tuple[Any, str]:
    """Return (document, ""), or (None, reason) if the file is not strict JSON without duplicate keys.

    An object in place of an event's name, pid or other column may have duplicate keys, because it is compared with the
    event's row.
    """
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            return None, "the gzip stream is damaged"
    try:
        document = json.loads(data.decode(), object_pairs_hook=Object, parse_constant=_no_constant, parse_float=Decimal)
    except (ValueError, RecursionError, DecimalException):
        return None, "it is no strict JSON"
    whole = Object([("traceEvents", document)]) if isinstance(document, list) else document
    return (None, "a key stands twice") if _has_twice(whole) else (document, "")


def _has_twice(value: Any, kept: Collection[str] = ()) -> bool:
    """Return whether an object in `value` has duplicate keys, except below the keys in `kept`."""
    if isinstance(value, list):
        return any(_has_twice(item) for item in value)
    if not isinstance(value, Object):
        return False
    if len(value) < len(value.members):
        return True
    events = value.get("traceEvents")
    if isinstance(events, list):
        kept = (*kept, "traceEvents")
        if any(_has_twice(event, _COLUMNS) for event in events):
            return True
    return any(_has_twice(item) for key, item in value.items() if key not in kept)


def _no_constant(name: str) -> Any:
    raise ValueError(name)


def _shift(document: Any) -> int:
    base = document.get("baseTimeNanoseconds") if isinstance(document, dict) else 0
    try:
        return int(base or 0)
    except (TypeError, ValueError, OverflowError):
        return 0


def _lost(event: Any, row: dict[str, Any], shift: int) -> list[str]:
    """Return the values of an entry that are not in its row."""
    if event is None:  # null has no values
        return []
    if not isinstance(event, dict):
        return [f"no object: {_short(event)}"]  # the row is empty, so a finding must report it
    lost = []
    for key, column in _COLUMNS.items():
        value = event.get(key)
        wanted = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
        if isinstance(value, dict | list):
            is_there = _normal(_read(row[column])) == _normal(value)
        else:
            is_there = row[column] is not None and (not isinstance(wanted, str) or row[column] == wanted)
        if value is not None and not is_there:
            lost.append(f"{key} {_short(value)} is {_short(row[column])}")
    if event.get("cat") is not None and row["cat"] is None:
        lost.append(f"cat {_short(event['cat'])}")
    lost += _lost_times(event, row, shift)
    lost += _lost_args(event.get("args"), row)
    extra = _read(row["extra"]) or {}
    lost += [f"key {_short(key)}" for key in event if key not in _KNOWN and event[key] is not None and key not in extra]
    return lost


def _lost_times(event: dict[str, Any], row: dict[str, Any], shift: int) -> list[str]:
    lost = []
    for key, column, base in (("ts", "start_ns", shift), ("dur", "duration_ns", 0)):
        value = event.get(key)
        if value is None:
            continue
        wanted = _ns(value)
        if wanted is None or row[column] is None or row[column] != wanted + base:
            lost.append(f"{key} {_short(value)} is {row[column]}")
    return lost


def _ns(value: Any) -> int | None:
    """Return the nanoseconds of a time in microseconds, rounded half away from zero, or None if it is not a time."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        return None
    try:
        return int((Decimal(value) * 1000).quantize(Decimal(1), ROUND_HALF_UP))
    except (DecimalException, ValueError, OverflowError):
        return None


def _lost_args(args: Any, row: dict[str, Any]) -> list[str]:
    if args is None:
        return []
    if row["args"] is None or _normal(_read(row["args"])) != _normal(args):
        return [f"args {_short(args)} are {_short(row['args'])}"]
    if not isinstance(args, dict):
        return []
    whole = {key: args[key] for key in _NUMBERS if isinstance(args.get(key), int) and not isinstance(args[key], bool)}
    return [
        f"{key} {value} is {row[_NUMBERS[key]]}"
        for key, value in whole.items()
        if -(2**63) <= value < 2**63 and row[_NUMBERS[key]] != value
    ]


def _read(text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text, object_pairs_hook=Object, parse_float=Decimal)
    except (ValueError, RecursionError):
        return f"no JSON: {text}"


def _normal(value: Any) -> Any:
    """Return a value that is equal for equal JSON, independent of the notation of numbers."""
    if isinstance(value, Object):
        return sorted(((key, _normal(inner)) for key, inner in value.members), key=itemgetter(0))
    if isinstance(value, list):
        return [_normal(inner) for inner in value]
    if isinstance(value, int | Decimal) and not isinstance(value, bool):
        return ("number", float(value)) if abs(value) < Decimal("1e300") else ("number", "large")
    return value


def _short(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 60 else text[:57] + "..."
