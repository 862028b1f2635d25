"""Conversion of an Inspector log's lines to rows of collectives and point-to-point calls. Other lines are counted.

Source: NCCL `plugins/profiler/inspector/inspector_json.cc` and its README (formerly `ext-profiler/inspector`), formats
v4.0 to v4.3. Up to v4.2, each line has its communicator. In v4.3, a `dump_stats` line has the communicator of the lines
that follow.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from typing import Any

from pipelines.models.sqltext import as_text
from pipelines.readers.inputs.faults import SHOWN, Faults

_LARGEST = 2**63 - 1  # a BIGINT
_LATEST_US = _LARGEST // 1000
_KINDS = {"coll_perf": "coll", "p2p_perf": "p2p"}
_COUNTED_BY = {"coll_perf": "coll_records", "p2p_perf": "p2p_records", "proxy_trace": "proxy_records"}


class BadLine(ValueError):
    """A line that is not a valid record. The message gives the reason, `check` the name of the fault."""

    def __init__(self, check: str, why: str) -> None:
        super().__init__(why)
        self.check = check


@dataclass
class Records:
    """One pass over a log's lines: rows of `inspector_collectives`, and the faults of other lines."""

    version: str | None = None
    host: str | None = None
    pid: int | None = None
    n_lines: int = 0
    n_dropped: int = 0
    faults: Faults = field(default_factory=Faults)
    _context: tuple[dict[str, Any], dict[str, Any]] | None = None
    _left: dict[str, int] = field(default_factory=dict)

    def row(self, line: bytes) -> tuple[Any, ...] | None:
        """Return the row of a line, or None if the line is not a call. Count a line that cannot be read as a fault."""
        self.n_lines += 1
        try:
            return self._row(line)
        except BadLine as error:
            self.faults.add(error.check, "warning", str(error))
            return None

    def finish(self, is_cut: bool) -> None:
        """Record the faults at the end of the file: a truncated last line, and missing lines of the last dump."""
        if is_cut:
            self.faults.add("cut_line", "info", "the last line has no end: the log is still written, or was cut off")
        self._end_dump()

    def _row(self, line: bytes) -> tuple[Any, ...] | None:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            start = line[:SHOWN].decode("utf-8", "replace")
            raise BadLine("not_json", f"line {self.n_lines:,} is not JSON: {start}") from None
        if not isinstance(record, dict):
            raise BadLine("not_a_record", f"line {self.n_lines:,} is not an object")
        if "dump_stats" in record:
            self._begin_dump(record)
            return None
        kind = next((key for key in _COUNTED_BY if key in record), None)
        if kind is None:
            raise BadLine("unknown_record", f"line {self.n_lines:,} has neither coll_perf nor p2p_perf")
        header, metadata = self._context_of(record, kind)
        if kind not in _KINDS:
            self.faults.add("proxy_trace", "info", f"line {self.n_lines:,} is a proxy_trace, which is not read")
            return None
        try:
            return self._collective(_KINDS[kind], header, metadata, _object(record, kind))
        except ValueError as error:
            raise BadLine("wrong_field", f"line {self.n_lines:,}: {error}") from None

    def _begin_dump(self, record: dict[str, Any]) -> None:
        self._end_dump()
        try:
            header, metadata, stats = (_object(record, key) for key in ("header", "metadata", "dump_stats"))
            for kind in ("coll", "p2p"):
                self.n_dropped += _whole(stats, f"{kind}_dropped_since_last_dump") or 0
            if metadata.get("inspector_output_format_version") == "v4.3":
                self._context = header, metadata
                self._left = {kind: _whole(stats, key) or 0 for kind, key in _COUNTED_BY.items()}
        except ValueError as error:
            raise BadLine("wrong_field", f"line {self.n_lines:,}: {error}") from None

    def _end_dump(self) -> None:
        missing = sum(self._left.values())
        if missing:
            detail = f"{missing:,} lines of a dump are missing before line {self.n_lines:,}"
            self.faults.add("incomplete_dump", "warning", detail, missing)
        self._context, self._left = None, {}

    def _context_of(self, record: dict[str, Any], kind: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the header and metadata of a record or, if the record has none, of the dump that contains it.

        Raise BadLine if neither the record nor its dump has them, or the record's are not objects.
        """
        if "header" in record and "metadata" in record:
            try:
                return _object(record, "header"), _object(record, "metadata")
            except ValueError as error:
                raise BadLine("wrong_field", f"line {self.n_lines:,}: {error}") from None
        if self._context is None or self._left.get(kind, 0) < 1:
            raise BadLine("no_communicator", f"line {self.n_lines:,} does not say which communicator it is of")
        self._left[kind] -= 1
        return self._context

    def _collective(
        self, kind: str, header: dict[str, Any], metadata: dict[str, Any], perf: dict[str, Any]
    ) -> tuple[Any, ...]:
        self.version = self.version or _text(metadata, "inspector_output_format_version")
        self.host = self.host or _text(metadata, "hostname")
        self.pid = self.pid if self.pid is not None else _whole(metadata, "pid")
        communicator, name, seq = _text(header, "id"), _text(perf, kind), _whole(perf, f"{kind}_sn")
        if communicator is None or name is None or seq is None:
            raise ValueError(f"it has no communicator, no {kind} or no {kind}_sn")
        times = perf.get("event_trace_ts")
        times = times if isinstance(times, dict) else {}
        duration_ns = _ns(perf, f"{kind}_exec_time_us")
        is_measured = kind == "coll" or duration_ns != 0  # the plugin writes 0 for a p2p call without a kernel's time
        return (
            self.n_lines,
            communicator,
            _text(header, "comm_name"),
            _whole(header, "rank"),
            _whole(header, "n_ranks"),
            _whole(header, "nnodes"),
            kind,
            name,
            seq,
            _whole(perf, "p2p_peer") if kind == "p2p" else None,
            _text(perf, f"{kind}_algo"),
            _text(perf, f"{kind}_proto"),
            _whole(perf, f"{kind}_msg_size_bytes"),
            duration_ns if is_measured else None,
            _text(perf, f"{kind}_timing_source"),
            _number(perf, f"{kind}_algobw_gbs") if is_measured else None,
            _number(perf, f"{kind}_busbw_gbs") if is_measured else None,
            _ns(metadata, "dump_timestamp_us"),
            _ns(times, f"{kind}_start_ts"),
        )


def _object(record: dict[str, Any], key: str) -> dict[str, Any]:
    value = record.get(key)
    if not isinstance(value, dict):
        raise ValueError(f"{key} is not an object")
    return value


def _whole(record: dict[str, Any], key: str) -> int | None:
    value = record.get(key)
    if value is None:
        return None
    if type(value) is int and 0 <= value <= _LARGEST:
        return value
    raise ValueError(f"{key} is {as_text(repr(value))[:SHOWN]}, not a whole number below 2^63")


def _ns(record: dict[str, Any], key: str) -> int | None:
    """Return a time or duration in ns from `record[key]` in us, or None if it is missing.

    Raise ValueError unless it is an integer in the range of times. The plugin writes 0 for an unknown time, so a time
    of 0 is None. A duration of 0 stays 0.
    """
    value = _whole(record, key)
    if value is not None and value > _LATEST_US:
        raise ValueError(f"{key} is {value}: too large")
    return value * 1000 if value else (value if key.endswith("exec_time_us") else None)


def _number(record: dict[str, Any], key: str) -> float | None:
    value = record.get(key)
    if value is None:
        return None
    if type(value) in (int, float) and 0 <= value <= sys.float_info.max:
        return float(value)
    raise ValueError(f"{key} is {as_text(repr(value))[:SHOWN]}, not a number of at least 0")


def _text(record: dict[str, Any], key: str) -> str | None:
    value = record.get(key)
    if value is None:
        return None
    if isinstance(value, str):
        return as_text(value)
    raise ValueError(f"{key} is {as_text(repr(value))[:SHOWN]}, not a text")
