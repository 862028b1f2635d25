"""What held GPU memory at its peak, by operator and module, where a memory snapshot of a rank was taken with its trace."""

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
    """The snapshot device of the shown rank, else of any rank, that had most in use; None where no snapshot meets a trace."""
    found = rows_of_question(con, "snapshot-traces", trace=subject.ids)
    if not found:
        return None
    own = [row for row in found if row["trace_id"] == subject.shown["trace_id"]]
    one = (own or found)[0]
    rows = rows_of(
        con,
        f"SELECT * FROM snapshot_peak_owners WHERE snapshot_id = {quoted(one['snapshot_id'])} AND device = {one['device']} "
        "ORDER BY size_bytes DESC, op, module, module_frame, source",
    )
    return section(
        "snapshots",
        "GPU memory at its peak",
        paragraph(_said(one, rows)),
        table("snapshot_peak_owners", _COLUMNS, rows[:_SHOWN]),
        more(rows, _SHOWN, "rows of `tracelake ask snapshot-operators`"),
        note="From a CUDA memory snapshot. What was allocated before the trace began, or where the trace does not tell "
        "the operator for certain, has none.",
        docs=("memory-snapshots.md", "operators and modules"),
    )


def _said(one: Row, rows: list[Row]) -> str:
    whose = one["snapshot"]
    if one["snapshot_rank"] is not None:
        whose = f"rank {one['snapshot_rank']} ({whose})"
    known = sum(row["size_bytes"] for row in rows if row["source"] is not None)
    said = f"Device {one['device']} of {whose}: {size(one['peak_bytes'])} in use"
    said += " at the peak of its history." if one["has_history"] else " at the snapshot, which has no history."
    if one["peak_bytes"]:
        said += f" Of {percent(100 * known / one['peak_bytes'])} the operator or module is known from the trace."
    if one["is_consistent"] is False:
        said += " The history does not fit the snapshot: do not trust the peak."
    return said
