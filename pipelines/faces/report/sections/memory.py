"""Section on memory in use: the peaks of all ranks, and one rank's allocations over time."""

from __future__ import annotations

from markupsafe import Markup

from pipelines.base.units import size, time
from pipelines.faces.report.blocks import Section, section
from pipelines.faces.report.formats import device_kind
from pipelines.faces.report.macros import macros
from pipelines.faces.report.pictures.curve import carried, curve
from pipelines.faces.report.subject import Row, Subject, label
from pipelines.faces.report.tables import table


def memory(subject: Subject) -> Section:
    """Return the section with the peaks by rank and device, largest first, and the plot of the shown rank."""
    rows = subject.rows_of_all("memory-devices")
    without = _without(subject, {row["trace_id"] for row in rows})
    if not rows:
        return section("memory", "Memory", without)
    note = (
        "From [memory] events, by the allocator's own totals where the trace has them. "
        "Above start: what was in use before the trace began is unknown."
    )
    return section("memory", "Memory", _picture(subject, rows), table("memory-devices", rows), without, note=note)


def _without(subject: Subject, have: set[str]) -> Markup:
    lacking = [label(trace) for trace in subject.traces if trace["trace_id"] not in have]
    if not lacking:
        return Markup()
    names = ", ".join(lacking[:8]) + (f" and {len(lacking) - 8} more" if len(lacking) > 8 else "")
    return macros.missing(f"no [memory] events in the trace of {names}: record with profile_memory=True")


def _picture(subject: Subject, rows: list[Row]) -> Markup:
    """Return the plot of the shown rank's device with the highest peak. A GPU is preferred over the CPU."""
    peak = next((row for row in rows if row["trace_id"] == subject.shown["trace_id"]), None)
    if peak is None:
        return Markup()
    of_all = subject.rows("memory-over-time")
    rows_of_device = [row for row in of_all if all(row[key] == peak[key] for key in ("device_type", "device"))]
    used, held = (carried(rows_of_device, f"most_{suffix}", f"last_{suffix}") for suffix in ("bytes", "reserved_bytes"))
    if all(value is None for value in used):  # the trace has no arguments of events
        return Markup()
    # Without the allocator's totals, the sum of the trace's own allocations is drawn, which has no reserved bytes.
    meaning = "allocated (dashed: reserved)" if peak["peak_allocated_bytes"] is not None else "in use above start"
    kind = "a device" if peak["device_type"] is None else device_kind(peak["device_type"])
    where = kind if peak["device"] in (None, -1) else f"{kind} {peak['device']}"
    title = f"{subject.label}, {where}: {meaning}, the maximum in each of {len(used)} intervals"
    return macros.figure(curve(title, used, held, size, time(rows_of_device[0]["span_ns"])))
