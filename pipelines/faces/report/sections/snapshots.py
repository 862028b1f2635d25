"""Section on GPU memory at its peak, by operator and module, for ranks with a memory snapshot and a trace."""

from __future__ import annotations

from pipelines.base.units import percent, size
from pipelines.faces.report.blocks import Section, section
from pipelines.faces.report.macros import macros
from pipelines.faces.report.subject import Row, Subject
from pipelines.faces.report.tables import table
from pipelines.models.questions import rows_of_question


def snapshots(subject: Subject) -> Section | None:
    """Return the section on the snapshot device with the most memory in use, of the shown rank or else of any rank.

    Return None if no snapshot belongs to a trace.
    """
    devices = subject.rows("snapshot-traces") or subject.rows_of_all("snapshot-traces")
    if not devices:
        return None
    device = devices[0]
    owners = rows_of_question(subject.con, "peak-owners", trace=device["trace_id"])
    rows = [row for row in owners if all(row[key] == device[key] for key in ("snapshot_id", "device"))]
    return section(
        "snapshots",
        "GPU memory at its peak",
        macros.paragraph(_summary(device, rows)),
        table("peak-owners", rows),
        note="From a CUDA memory snapshot. Memory allocated before the trace began, or whose operator the trace "
        "does not identify for certain, has none.",
        docs=("memory-snapshots.md", "operators and modules"),
    )


def _summary(device: Row, rows: list[Row]) -> str:
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
