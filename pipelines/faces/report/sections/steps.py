"""Section on the durations of the profiler steps and their GPU work."""

from __future__ import annotations

from statistics import fmean, median

from pipelines.base.units import time
from pipelines.faces.report.blocks import Part, Section, section
from pipelines.faces.report.macros import bars, macros
from pipelines.faces.report.subject import Row, Subject, of_shown
from pipelines.faces.report.tables import table

_BARS = 40
_COLOURS = {"computing": "compute", "other GPU work": "other", "GPU idle": "idle", "on the host": "cpu"}


def steps(subject: Subject) -> Section:
    """Return the section on the shown rank's steps. For a capture, add the slowest and the fastest rank of each step."""
    rows = subject.rows("steps-in-order")
    if not rows:
        why = f"{subject.label} has no profiler steps: call prof.step() after each one"
        return section("steps", "Step times", macros.missing(why))
    lengths = [row["duration_ns"] for row in rows]
    middle = median(lengths)
    for row in rows:
        row["change"] = 100 * (row["duration_ns"] / middle - 1) if middle else None
        row["idle_percent"] = None
        if row["busy_ns"] is not None and row["duration_ns"]:
            row["idle_percent"] = 100 * (1 - row["busy_ns"] / row["duration_ns"])
    summary = f"Mean {time(fmean(lengths))}, median {time(middle)}, fastest {time(min(lengths))}, slowest {time(max(lengths))}."
    note = (
        f"{of_shown(subject)}A step lasts from the end of what bound the step before to the end of what binds it, on the host "
        "or the GPU; its annotation on the host is shorter where the host runs ahead. GPU work counts in the step during "
        "which it runs, on the device that works most in it."
    )
    return section(
        "steps",
        "Step times",
        macros.paragraph(summary),
        bars([(f"step {row['step']}", _parts(row)) for row in rows[:_BARS]], _COLOURS),
        table("steps-in-order", rows),
        table("step-ranks", subject.rows_of_capture("step-ranks")),
        note=note,
    )


def _parts(row: Row) -> list[Part]:
    if row["busy_ns"] is None:
        return [Part("on the host", row["duration_ns"], f"{time(row['duration_ns'])}, no GPU work")]
    lengths = (row["compute_ns"], row["busy_ns"] - row["compute_ns"], max(0, row["duration_ns"] - row["busy_ns"]))
    return [Part(kind, ns, time(ns)) for kind, ns in zip(_COLOURS, lengths, strict=False)]
