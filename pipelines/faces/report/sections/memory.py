"""Section on memory in use: the peaks of all ranks, and one rank's allocations over time."""

from __future__ import annotations

import duckdb

from pipelines.base.database import rows_of
from pipelines.base.units import count, size, time
from pipelines.faces.report.blocks import Block, Column, Section, figure, missing, more, section, table
from pipelines.faces.report.pictures.curve import carried, curve
from pipelines.faces.report.subject import Row, Subject, label
from pipelines.models.questions import rows_of_question

_SHOWN = 64
_KINDS = {0: "CPU", 1: "CUDA", 6: "HIP"}


def _kind(device_type: int) -> str:
    return _KINDS.get(device_type, f"type {device_type}")


_COLUMNS = [
    *(Column("rank", "rank", count), Column("device_type", "kind", _kind), Column("device", "device", count)),
    *(Column("peak_allocated_bytes", "peak allocated", size), Column("peak_reserved_bytes", "peak reserved", size)),
    *(Column("peak_relative_bytes", "peak above start", size), Column("net_bytes", "end above start", size)),
    *(Column("n_live", "unreleased blocks", count), Column("live_bytes", "their bytes", size)),
    *(Column("n_allocs", "allocations", count), Column("n_frees", "releases", count)),
]


def memory(con: duckdb.DuckDBPyConnection, subject: Subject) -> Section:
    """Return the section with the peaks by rank and device, largest first, and the plot of the shown rank."""
    rows = rows_of(
        con,
        "SELECT t.rank, p.* FROM memory_peaks AS p JOIN traces AS t USING (trace_id) "
        f"WHERE p.trace_id IN {subject.trace_ids} ORDER BY p.device_type = 0, "
        "coalesce(p.peak_allocated_bytes, p.peak_relative_bytes) DESC, t.rank, t.path, p.device",
    )
    without = _without(subject, {row["trace_id"] for row in rows})
    if not rows:
        return section("memory", "Memory", without)
    peaks = [table("memory_peaks", _COLUMNS, rows[:_SHOWN]), *more(rows, _SHOWN, "in table memory_peaks")]
    note = (
        "From [memory] events, by the allocator's own totals where the trace has them. "
        "Above start: what was in use before the trace began is unknown."
    )
    return section("memory", "Memory", _picture(con, subject, rows), peaks, without, note=note)


def _without(subject: Subject, have: set[str]) -> list[Block]:
    lacking = [label(trace) for trace in subject.traces if trace["trace_id"] not in have]
    if not lacking:
        return []
    names = ", ".join(lacking[:8]) + (f" and {len(lacking) - 8} more" if len(lacking) > 8 else "")
    return [missing(f"no [memory] events in the trace of {names}: record with profile_memory=True")]


def _picture(con: duckdb.DuckDBPyConnection, subject: Subject, rows: list[Row]) -> list[Block]:
    """Return the plot of the shown rank's device with the highest peak. A GPU is preferred over the CPU."""
    peak = next((row for row in rows if row["trace_id"] == subject.shown["trace_id"]), None)
    if peak is None:
        return []
    of_all = rows_of_question(con, "memory-over-time", trace=peak["trace_id"])
    rows_of_device = [row for row in of_all if all(row[key] == peak[key] for key in ("device_type", "device"))]
    used, held = (carried(rows_of_device, f"most_{suffix}", f"last_{suffix}") for suffix in ("bytes", "reserved_bytes"))
    # Without the allocator's totals, the sum of the trace's own allocations is drawn, which has no reserved bytes.
    meaning = "allocated (dashed: reserved)" if peak["peak_allocated_bytes"] is not None else "in use above start"
    kind = "a device" if peak["device_type"] is None else _kind(peak["device_type"])
    where = kind if peak["device"] in (None, -1) else f"{kind} {peak['device']}"
    title = f"{label(subject.shown)}, {where}: {meaning}, the most in each of {len(used)} stretches"
    return [figure(curve(title, used, held, size, time(rows_of_device[0]["span_ns"])))]
