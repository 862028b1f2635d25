"""Section on GPU memory at its peak, by operator and module, for ranks with a memory snapshot and a trace."""

from __future__ import annotations

import duckdb

from pipelines.base.database import rows_of
from pipelines.base.units import count, percent, size
from pipelines.faces.report.blocks import Column, Section, more, paragraph, section, table
from pipelines.faces.report.subject import Row, Subject
from pipelines.faces.words import in_words
from pipelines.models.questions import rows_of_question
from pipelines.models.sqltext import quoted

_SHOWN = 20
_COLUMNS = [
    Column(
        "op", "operator", says="Innermost operator of the trace when it was allocated; empty where that is not certain."
    ),
    Column("module", "module", says="Innermost module of the trace that was open on the same thread."),
    Column("module_frame", "module's code", says="Innermost `forward` in the stack of the allocation."),
    Column("source", "known from", in_words, "memory event: the trace shows the same allocation; clock: by time."),
    *(
        Column("n_allocations", "allocations", count),
        Column("size_bytes", "in use", size, "Bytes that were asked for."),
    ),
    Column("size_percent", "share", percent, "Of all that was in use on the device at its peak, percent."),
]


def snapshots(con: duckdb.DuckDBPyConnection, subject: Subject) -> Section | None:
    """Return the section on the snapshot device with the most memory in use, of the shown rank or else of any rank.

    Return None if no snapshot belongs to a trace.
    """
    devices = rows_of_question(con, "snapshot-traces", trace=subject.ids)
    if not devices:
        return None
    own_devices = [row for row in devices if row["trace_id"] == subject.shown["trace_id"]]
    device = (own_devices or devices)[0]
    rows = rows_of(
        con,
        f"SELECT * FROM snapshot_peak_owners WHERE snapshot_id = {quoted(device['snapshot_id'])} AND device = {device['device']} "
        "ORDER BY size_bytes DESC, op, module, module_frame, source",
    )
    return section(
        "snapshots",
        "GPU memory at its peak",
        paragraph(_said(device, rows)),
        table("snapshot_peak_owners", _COLUMNS, rows[:_SHOWN]),
        more(rows, _SHOWN, "rows of `tracelake ask snapshot-operators`"),
        note="From a CUDA memory snapshot. What was allocated before the trace began, or where the trace does not tell "
        "the operator for certain, has none.",
        docs=("memory-snapshots.md", "operators and modules"),
    )


def _said(device: Row, rows: list[Row]) -> str:
    source = device["snapshot"]
    if device["snapshot_rank"] is not None:
        source = f"rank {device['snapshot_rank']} ({source})"
    attributed_bytes = sum(row["size_bytes"] for row in rows if row["source"] is not None)
    text = f"Device {device['device']} of {source}: {size(device['peak_bytes'])} in use"
    text += " at the peak of its history." if device["has_history"] else " at the snapshot, which has no history."
    if device["peak_bytes"]:
        text += f" Of {percent(100 * attributed_bytes / device['peak_bytes'])} the operator or module is known from the trace."
    if device["is_consistent"] is False:
        text += " The history does not fit the snapshot: do not trust the peak."
    return text
