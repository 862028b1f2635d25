"""The top of the page: what it comes to, why the trace takes so long, and what to do about it."""

from __future__ import annotations

from statistics import fmean

import duckdb

from pipelines.base.database import rows_of
from pipelines.base.units import percent, time, times
from pipelines.faces.report.blocks import (
    Block,
    Finding,
    Help,
    Section,
    findings,
    heading,
    helps,
    lead,
    paragraph,
    section,
)
from pipelines.faces.report.cause_bars import cause_bars
from pipelines.faces.report.formats import shorter
from pipelines.faces.report.sections.hangs import stuck
from pipelines.faces.report.sections.kernels import kernel_rows
from pipelines.faces.report.sections.steps import step_rows
from pipelines.faces.report.sections.times import cost_rows, path_names
from pipelines.faces.report.subject import Row, Subject, label
from pipelines.faces.what_helps import SHOWN, change_of, same_stretch, saving_of
from pipelines.faces.why import Cause, Why, why
from pipelines.faces.words import in_words
from pipelines.fleet.stragglers import Stragglers, stragglers_of
from pipelines.models.questions import rows_of_question

_FINDINGS, _NAMES = 3, 3
_WORTH = 1.0  # percent of the window: less is noise


def verdict_of(con: duckdb.DuckDBPyConnection, subject: Subject) -> Section:
    """What it comes to, why the trace takes so long, and what to do about it."""
    stragglers = None
    if subject.capture_id is not None and len(subject.traces) > 1:
        stragglers = stragglers_of(con, subject.capture_id)
    hang = stuck(con, subject)
    told = [hang] if hang else []
    answer = why(con, subject.shown["trace_id"])
    whose = f"{label(subject.shown)}: " if len(subject.traces) > 1 else ""
    sentence = f"{whose}{answer.sentence}" if answer else _where(con, subject)
    told += [sentence] if stragglers is None else [_who(stragglers), sentence, _where_of_all(con, subject)]
    told.append(_steps(con, subject) or _kernel(con, subject))
    late = [row for row in (stragglers.ranks if stragglers else []) if row["is_straggler"]]
    found = [*(_of_straggler(con, subject, row) for row in late[:1]), *_findings(subject, answer)][:_FINDINGS]
    body = [_bar(answer)] if answer else []
    body += [findings(found)] if found else []
    if answer is None:
        body.append(paragraph("The trace has no critical path, so nothing tells what it would gain by changes."))
    elif found:
        inferred = "".join(
            f" {one['detail'][:1].upper()}{one['detail'][1:]}." for one in answer.caveats if "inferred" in one["detail"]
        )
        body.append(
            paragraph(
                "Each gain is that of one change alone, on the whole trace: gains do not add up. A change alters durations, "
                f"never the order of the work.{inferred}"
            )
        )
    body += _fixes(subject, answer)
    return section("verdict", "In short", lead([said for said in told if said][:3]), body)


def _who(found: Stragglers) -> str:
    if not found.ranks:
        return "Who waits for whom is unknown: no collective could be matched on all ranks."
    waited = sum(row["wait_ns"] or 0 for row in found.ranks)
    worst = found.ranks[0]
    if found.agreement is None or found.culprit_uncertain:
        return f"The ranks wait {time(waited)} for each other in all; for whom is uncertain (see Stragglers)."
    if not found.stragglers:
        longest = f", longest for rank {worst['rank']}" if waited else ""
        return f"No rank is a straggler: the ranks wait {time(waited)} for each other in all{longest}."
    row = next(row for row in found.ranks if row["is_straggler"])
    share = f" ({percent(row['caused_percent'])} of all waiting)" if row["caused_percent"] is not None else ""
    return f"Rank {row['rank']} is a straggler: the other ranks wait {time(row['caused_wait_ns'] or 0)} for it{share}."


def _where_of_all(con: duckdb.DuckDBPyConnection, subject: Subject) -> str:
    rows = [row for row in cost_rows(con, subject) if row["gpu_ns"] > 0]
    if not rows:
        return _where(con, subject)
    parts = ", ".join(f"{in_words(row['cause'])} {percent(row['percent'])}" for row in rows[:4])
    return f"The GPU time of all {len(subject.traces)} ranks: {parts}."


def _where(con: duckdb.DuckDBPyConnection, subject: Subject) -> str:
    rows = rows_of(
        con,
        f"SELECT * FROM temporal_breakdown WHERE trace_id = {subject.shown_id} AND device IS NOT NULL ORDER BY busy_ns DESC",
    )
    if not rows:
        span = time(subject.shown["span_ns"] or 0)
        n = subject.shown["n_events"]
        return f"The trace has no GPU work: {n:,} event{'' if n == 1 else 's'} in {span}."
    row = rows[0]
    span = row["span_ns"] or 1
    parts = [f"{percent(row['compute_percent'])} computing"]
    for key, said in (("exposed_communication_ns", "exposed communication"), ("exposed_memory_ns", "exposed copies")):
        if row[key] > span / 1000:
            parts.append(f"{percent(100 * row[key] / span)} {said}")
    many = f" (device {row['device']}, the busiest of {len(rows)})" if len(rows) > 1 else ""
    return (
        f"From the first to the last GPU work, {time(span)}, the GPU{many} was idle for {time(row['idle_ns'])} "
        f"({percent(row['idle_percent'])}); "
        f"{', '.join(parts)}."
    )


def _steps(con: duckdb.DuckDBPyConnection, subject: Subject) -> str:
    rows = [row for row in step_rows(con, subject) if row["duration_ns"] > 0]
    if len(rows) < 2:
        return ""
    slowest = max(rows, key=lambda row: row["duration_ns"])
    mean = fmean(row["duration_ns"] for row in rows)
    return (
        f"A step takes {time(mean)} in the mean of {len(rows)}, the slowest (step {slowest['step']}) "
        f"{time(slowest['duration_ns'])}."
    )


def _kernel(con: duckdb.DuckDBPyConnection, subject: Subject) -> str:
    rows = kernel_rows(con, subject)
    if rows and (ns := rows[0]["duration_ns"]):
        row = rows[0]
        return f"{shorter(row['name'], 60)} takes the most GPU time: {time(ns)} ({percent(row['percent'])}), {times(row['n'])}."
    rows = path_names(con, subject)
    if not rows:
        return ""
    row = rows[0]
    return f"{shorter(row['name'], 60)} takes the most time on the path: {time(row['duration_ns'])}, {times(row['n_events'])}."


def _findings(subject: Subject, answer: Why | None) -> list[Finding]:
    """The largest causes of the shown trace's length that save something."""
    if answer is None:
        return []
    return [_of_cause(one, answer, subject) for one in answer.causes if one.share >= _WORTH and one.saves]


def _of_cause(one: Cause, answer: Why, subject: Subject) -> Finding:
    before, of_it = answer.length, ", both without the profiler" if answer.is_without_profiler else ""
    after = before - (one.saves or 0)
    whose = f"{label(subject.shown)}: " if len(subject.traces) > 1 else ""
    doubt = answer.doubt_of(one)
    return Finding(
        f"{whose}{one.title}, {time(one.duration)} ({percent(one.share)}): {one.names(_NAMES)}",
        one.advice,
        f"without it the trace would take {time(after)} instead of {time(before)} (-{percent(100 * (before - after) / before)}{of_it})"
        + (f"; but {doubt}" if doubt else ""),
        one.command(_placeholder(subject), answer.options()),
        ("why.md", "why"),
    )


def _placeholder(subject: Subject) -> str:
    """What commands on the page call the trace."""
    return "RANK.json.gz" if len(subject.traces) > 1 else "TRACE"


def _fixes(subject: Subject, answer: Why | None) -> list[Block]:
    """The changes that make the shown trace shorter, largest saving first."""
    if answer is None or not answer.fixes:
        return []
    whose = f" {label(subject.shown)}" if len(subject.traces) > 1 else ""
    without = " without the profiler" if answer.is_without_profiler else ""
    said = f"What would help{whose}, each by itself, in the {time(answer.length)}{without}"
    trace = _placeholder(subject)
    return [heading(said), helps([_help(row, answer, trace) for row in answer.fixes[:SHOWN]])]


def _help(row: Row, answer: Why, trace: str) -> Help:
    limits = (same_stretch(row, answer.fixes), row["caveat"])
    return Help(
        f"{saving_of(row, 1)} ({percent(row['saves_percent'])})",
        change_of(row),
        answer.fix_command(row, trace),
        "; ".join(limit for limit in limits if limit),
    )


def _bar(answer: Why) -> Block:
    """The window, split by causes."""
    return cause_bars([("the window", [(one.kind["cause"], one.duration) for one in answer.causes])])


def _of_straggler(con: duckdb.DuckDBPyConnection, subject: Subject, row: Row) -> Finding:
    gain = "how much the capture would gain is not known"
    if row["marginal_ns"] is not None:
        of_span = "" if row["marginal_percent"] is None else f", {percent(row['marginal_percent'])} of the span"
        gain = f"the job would go on {time(row['marginal_ns'])} sooner if only rank {row['rank']} were on time{of_span}"
    return Finding(
        f"rank {row['rank']} holds the others up",
        _why_late(con, subject, row["rank"]),
        gain,
        "tracelake stragglers FOLDER; tracelake timeline FOLDER shows the ranks side by side",
        ("reading-a-fleet.md", "reading a fleet"),
    )


def _why_late(con: duckdb.DuckDBPyConnection, subject: Subject, rank: int) -> str:
    """What the rank spends more GPU time on than the median of the others."""
    rows = rows_of_question(con, "straggler-causes", capture=subject.capture_id)
    rows = [row for row in rows if row["rank"] == rank]
    if not rows or (rows[0]["gpu_ns"] or 0) <= (rows[0]["usual_ns"] or 0):
        return f"look at what rank {rank} does before the collectives that the others wait in"
    own, usual = time(rows[0]["gpu_ns"]), time(rows[0]["usual_ns"] or 0)
    return f"compare it with the others: it spends {own} on {in_words(rows[0]['cause'])}, the median of the others is {usual}"
