"""Input for XSpace files. Each file is one trace, with the host's threads and all devices of its process."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

import duckdb

from pipelines.readers.events_by_sql import Contents, doubts, events_by_sql
from pipelines.readers.inputs import EventInput
from pipelines.readers.kineto import ReadRequest, TraceRejected
from pipelines.readers.kineto.reading_result import Finding
from pipelines.readers.xplane.planes import Plane, Space
from pipelines.readers.xplane.stage import stage_about, stage_rows
from pipelines.readers.xplane.wire import Damaged

_FINDINGS = {
    "xplane_unknown_name": ("warning", "events or stats whose name the plane does not have: NULL, or skipped"),
    "xplane_id_twice": ("warning", "duplicate ids of names in a plane: the last one is used"),
    "xplane_wrong_type": ("error", "times and correlation ids that do not fit 64 bits became NULL"),
    "xplane_without_time": ("warning", "sums over many events, which have no position in time, are skipped"),
}
_SHOWN = 8


def recognise(path: Path) -> bool:
    """Return whether a file begins like an XSpace with planes."""
    with path.open("rb") as file:
        return file.read(1) == b"\x0a"


def stage(con: duckdb.DuckDBPyConnection, request: ReadRequest) -> Contents:
    """Fill the tables that `_xplane_events.sql` reads. Raise TraceRejected if the file is damaged or has no events."""
    path = request.path
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        data = memoryview(mapped)
        try:
            space = Space(data)
            n_rows = stage_rows(con, space.rows())
        except Damaged as error:
            raise TraceRejected(path, error.offset, f"{error}; copy or profile it again") from None
        finally:
            data.release()
    if not n_rows:
        plane_names = ", ".join(sorted(plane.name for plane in space.planes)[:_SHOWN]) or "none"
        raise TraceRejected(path, None, f"no events of devices or of the host; its planes: {plane_names}")
    start_ns = space.start_ns()
    stage_about(con, sorted(space.lines, key=str), start_ns or 0)
    findings = [
        Finding(check, _FINDINGS[check][0], n_faults, f"{_FINDINGS[check][1]}; first at {space.places[check]}")
        for check, n_faults in space.counts.items()
    ]
    if start_ns is None:
        message = "when profiling began is unknown: times count from its start, and ranks have no common clock"
        findings.append(Finding("xplane_no_wall_clock", "info", 1, message))
    if space.warnings:
        findings.append(Finding("xplane_warning", "warning", len(space.warnings), "; ".join(space.warnings[:_SHOWN])))
    if space.others:
        names = ", ".join(sorted(space.others)[:_SHOWN])
        findings.append(Finding("xplane_planes_left_out", "info", space.others.total(), f"not read: {names}"))
    findings += doubts(con, "_xplane_doubts")
    return Contents("xplane.pb", _metadata(space), "ok", tuple(findings))


def _metadata(space: Space) -> dict[str, Any]:
    plane_by_device: dict[int, Plane] = {}
    for plane in sorted(space.planes, key=lambda plane: plane.sparse_core is not None):
        if plane.device is not None:
            plane_by_device.setdefault(plane.device, plane)
    devices = [_device(plane) for plane in plane_by_device.values()]
    host = {"host_name": space.hosts[0]} if space.hosts else {}
    return {"deviceProperties": devices, **host, "xplane": {"planes": sorted(plane.name for plane in space.planes)}}


def _device(plane: Plane) -> dict[str, Any]:
    """Return the properties of a device, under the keys of Kineto's deviceProperties."""
    stats = plane.stats
    names = {"name": "device_type_string", "totalGlobalMem": "memory_size", "numSms": "core_count"}
    names |= {"computeMajor": "compute_cap_major", "computeMinor": "compute_cap_minor", "vendor": "device_vendor"}
    return {"id": plane.device, **{ours: stats[theirs] for ours, theirs in names.items() if theirs in stats}}


INPUT = EventInput(suffixes=(".xplane.pb",), recognise=recognise, read=events_by_sql("_xplane_events", stage))
