"""Input for Perfetto traces. Each file is one trace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb

from pipelines.base.extras import MissingExtra, need
from pipelines.readers.events_by_sql import Contents, doubts, events_by_sql
from pipelines.readers.inputs import EventInput
from pipelines.readers.kineto import ReadRequest, TraceRejected
from pipelines.readers.kineto.reading_result import Finding
from pipelines.readers.perfetto.packets import Damaged, Packets, TooLarge, begins_as_trace
from pipelines.readers.perfetto.rows import Rows, shown
from pipelines.readers.perfetto.stage import stage_rows, stage_tracks

_FINDINGS = {
    "broken": ("perfetto_broken_packet", "error", "packets that cannot be read are skipped"),
    "missing_text": ("perfetto_missing_text", "warning", "names that no earlier packet defines: NULL"),
    "no_time": ("perfetto_without_time", "warning", "events without a time"),
    "unknown_clock": ("perfetto_unknown_clock", "warning", "times on a clock that no snapshot explains: NULL"),
}


def stage(con: duckdb.DuckDBPyConnection, request: ReadRequest) -> Contents:
    """Fill the tables that `_perfetto_events.sql` reads. Raise TraceRejected if the file has no readable event."""
    path = request.path
    rows = _rows(path)
    packets = Packets(path, request.limits)
    damage: list[Damaged] = []
    try:
        n = stage_rows(con, rows.of(_until_damage(packets, damage), packets.inside))
    except TooLarge as error:
        raise TraceRejected(path, packets.offset, str(error)) from None
    if not n:
        reason = f"{damage[0]} (byte {damage[0].offset})" if damage else "it has none"
        left_out = f"; what else is in it: {shown(rows.others)}" if rows.others else ""
        message = f"no slice or GPU work could be read: {reason}{left_out}. Is it a trace that PyTorch wrote? Copy or profile it again"
        raise TraceRejected(path, damage[0].offset if damage else None, message)
    stage_tracks(con, rows.tracks)
    findings = [
        Finding(check, severity, rows.counts[key], meaning)
        for key, (check, severity, meaning) in _FINDINGS.items()
        if rows.counts[key]
    ]
    findings += [
        Finding(
            "truncated",
            "error",
            1,
            f"the file is truncated; everything readable before that is kept; byte {fault.offset} ({fault})",
        )
        for fault in damage
    ]
    if rows.others:
        findings.append(Finding("perfetto_left_out", "info", rows.others.total(), f"not read: {shown(rows.others)}"))
    findings += doubts(con, "_perfetto_doubts")
    return Contents("pftrace", {}, "partial" if damage or rows.counts["broken"] else "ok", tuple(findings))


def _rows(path: Path) -> Rows:
    try:
        need("perfetto", "a Perfetto trace")
    except MissingExtra as error:
        raise TraceRejected(path, None, str(error)) from None
    from google.protobuf.message import DecodeError
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket  # pyright: ignore

    return Rows(TracePacket, DecodeError)


def _until_damage(packets: Packets, damage: list[Damaged]) -> Iterator[bytes]:
    try:
        yield from packets
    except Damaged as error:
        damage.append(error)


INPUT = EventInput(
    suffixes=(".pftrace", ".pftrace.gz", ".perfetto-trace", ".perfetto-trace.gz"),
    recognise=begins_as_trace,
    read=events_by_sql("_perfetto_events", stage),
)
