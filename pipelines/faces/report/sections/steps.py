"""Section on the durations of the profiler steps and their GPU work."""

from __future__ import annotations

from statistics import fmean, median

import duckdb

from pipelines.base.units import count, percent, time
from pipelines.faces.report.blocks import Block, Column, Part, Section, bars, missing, more, paragraph, section, table
from pipelines.faces.report.subject import Row, Subject, label, of_shown
from pipelines.models.questions import rows_of_question

_SHOWN = 40
_COLOURS = {"computing": "compute", "other GPU work": "other", "GPU idle": "idle", "on the host": "cpu"}
_COLUMNS = [
    *(
        Column("step", "step", count),
        Column("duration_ns", "took", time),
        Column("host_ns", "on the host", time, "How long its annotation is on the host."),
        Column("change", "against median", lambda x: f"{x:+.1f} %"),
    ),
    *(Column("busy_ns", "GPU busy", time), Column("compute_ns", "computing", time)),
    *(Column("communication_ns", "communication", time), Column("idle_percent", "GPU idle", percent)),
]
_OF_RANKS = [
    *(
        Column("step", "step", count),
        Column("longest_ns", "slowest rank", time, "Duration on the rank where it is longest, ns."),
    ),
    Column("slowest_rank", "which", lambda rank: f"rank {rank}", "That rank."),
    Column("shortest_ns", "fastest rank", time, "Duration on the rank where it is shortest, ns."),
]


def step_rows(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Row]:
    """Return the shown rank's steps in order."""
    return rows_of_question(con, "steps-in-order", trace=subject.shown["trace_id"])


def steps(con: duckdb.DuckDBPyConnection, subject: Subject) -> Section:
    """Return the section on the shown rank's steps. For a capture, add the slowest and the fastest rank of each step."""
    rows = step_rows(con, subject)
    if not rows:
        why = f"{label(subject.shown)} has no profiler steps: call prof.step() after each one"
        return section("steps", "Step times", missing(why))
    middle = median(row["duration_ns"] for row in rows)
    for row in rows:
        row["change"] = 100 * (row["duration_ns"] / middle - 1) if middle else None
        row["idle_percent"] = None
        if row["busy_ns"] is not None and row["duration_ns"]:
            row["idle_percent"] = 100 * (1 - row["busy_ns"] / row["duration_ns"])
    stacked = [(f"step {row['step']}", _parts(row)) for row in rows[:_SHOWN]]
    summary = paragraph(
        f"Mean {time(fmean(row['duration_ns'] for row in rows))}, median {time(middle)}, fastest {time(min(r['duration_ns'] for r in rows))}, slowest {time(max(r['duration_ns'] for r in rows))}."
    )
    body = [summary, bars(stacked, _COLOURS), table("step_times", _COLUMNS, rows[:_SHOWN])]
    body += more(rows, _SHOWN, "steps in table step_times")
    note = (
        f"{of_shown(subject)}A step lasts from the end of what bound the step before to the end of what binds it, on the host "
        "or the GPU; its annotation on the host is shorter where the host runs ahead. GPU work counts in the step during "
        "which it runs."
    )
    return section("steps", "Step times", body, _of_ranks(con, subject), note=note)


def _parts(row: Row) -> list[Part]:
    if row["busy_ns"] is None:
        return [Part("on the host", row["duration_ns"], f"{time(row['duration_ns'])}, no GPU work")]
    lengths = (row["compute_ns"], row["busy_ns"] - row["compute_ns"], max(0, row["duration_ns"] - row["busy_ns"]))
    return [Part(kind, ns, time(ns)) for kind, ns in zip(_COLOURS, lengths, strict=False)]


def _of_ranks(con: duckdb.DuckDBPyConnection, subject: Subject) -> list[Block]:
    if subject.capture_id is None:
        return []
    rows = rows_of_question(con, "step-ranks", capture=subject.capture_id)
    return (
        [table("rank_steps", _OF_RANKS, rows[:_SHOWN]), *more(rows, _SHOWN, "steps in table rank_steps")]
        if rows
        else []
    )
