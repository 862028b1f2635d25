"""The first section of the page: the verdict, why the trace takes so long, and what to do about it."""

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
    """Return the section with the verdict, the causes of the trace's length, and the changes that would help."""
    stragglers = None
    if subject.capture_id is not None and len(subject.traces) > 1:
        stragglers = stragglers_of(con, subject.capture_id)
    hang = stuck(con, subject)
    sentences = [hang] if hang else []
    answer = why(con, subject.shown["trace_id"])
    prefix = f"{label(subject.shown)}: " if len(subject.traces) > 1 else ""
    sentence = f"{prefix}{answer.sentence}" if answer else _where(con, subject)
    sentences += [sentence] if stragglers is None else [_who(stragglers), sentence, _where_of_all(con, subject)]
    sentences.append(_steps(con, subject) or _kernel(con, subject))
    late = [row for row in (stragglers.ranks if stragglers else []) if row["is_straggler"]]
    shown_findings = [*(_of_straggler(con, subject, row) for row in late[:1]), *_findings(subject, answer)][:_FINDINGS]
    body = [_bar(answer)] if answer else []
    body += [findings(shown_findings)] if shown_findings else []
    if answer is None:
        body.append(paragraph("The trace has no critical path, so nothing tells what it would gain by changes."))
    elif shown_findings:
        inferred = "".join(
            f" {caveat['detail'][:1].upper()}{caveat['detail'][1:]}."
            for caveat in answer.caveats
            if "inferred" in caveat["detail"]
        )
        body.append(
            paragraph(
                "Each gain is that of one change alone, on the whole trace: gains do not add up. A change alters durations, "
                f"never the order of the work.{inferred}"
            )
        )
    body += _fixes(subject, answer)
    return section("verdict", "In short", lead([text for text in sentences if text][:3]), body)


def _who(stragglers: Stragglers) -> str:
    if not stragglers.ranks:
        return "Who waits for whom is unknown: no collective could be matched on all ranks."
    waited = sum(row["wait_ns"] or 0 for row in stragglers.ranks)
    worst = stragglers.ranks[0]
    if stragglers.agreement is None or stragglers.culprit_uncertain:
        return f"The ranks wait {time(waited)} for each other in all; for whom is uncertain (see Stragglers)."
    if not stragglers.stragglers:
        longest = f", longest for rank {worst['rank']}" if waited else ""
        return f"No rank is a straggler: the ranks wait {time(waited)} for each other in all{longest}."
    row = next(row for row in stragglers.ranks if row["is_straggler"])
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
    for key, phrase in (("exposed_communication_ns", "exposed communication"), ("exposed_memory_ns", "exposed copies")):
        if row[key] > span / 1000:
            parts.append(f"{percent(100 * row[key] / span)} {phrase}")
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
    """Return the causes of the shown trace's length, largest first, that take at least _WORTH percent and save time."""
    if answer is None:
        return []
    return [_of_cause(cause, answer, subject) for cause in answer.causes if cause.share >= _WORTH and cause.saves]


def _of_cause(cause: Cause, answer: Why, subject: Subject) -> Finding:
    before, of_it = answer.length, ", both without the profiler" if answer.is_without_profiler else ""
    after = before - (cause.saves or 0)
    prefix = f"{label(subject.shown)}: " if len(subject.traces) > 1 else ""
    doubt = answer.doubt_of(cause)
    return Finding(
        f"{prefix}{cause.title}, {time(cause.duration)} ({percent(cause.share)}): {cause.names(_NAMES)}",
        cause.advice,
        f"without it the trace would take {time(after)} instead of {time(before)} (-{percent(100 * (before - after) / before)}{of_it})"
        + (f"; but {doubt}" if doubt else ""),
        cause.command(_placeholder(subject), answer.options()),
        ("why.md", "why"),
    )


def _placeholder(subject: Subject) -> str:
    """Return the placeholder for the trace in commands on the page."""
    return "RANK.json.gz" if len(subject.traces) > 1 else "TRACE"


def _fixes(subject: Subject, answer: Why | None) -> list[Block]:
    """Return the changes that make the shown trace shorter, largest saving first, or no blocks if there are none."""
    if answer is None or not answer.fixes:
        return []
    rank_text = f" {label(subject.shown)}" if len(subject.traces) > 1 else ""
    without = " without the profiler" if answer.is_without_profiler else ""
    title = f"What would help{rank_text}, each by itself, in the {time(answer.length)}{without}"
    trace = _placeholder(subject)
    return [heading(title), helps([_help(row, answer, trace) for row in answer.fixes[:SHOWN]])]


def _help(row: Row, answer: Why, trace: str) -> Help:
    limits = (same_stretch(row, answer.fixes), row["caveat"])
    return Help(
        f"{saving_of(row, 1)} ({percent(row['saves_percent'])})",
        change_of(row),
        answer.fix_command(row, trace),
        "; ".join(limit for limit in limits if limit),
    )


def _bar(answer: Why) -> Block:
    """Return a bar of the window, split by causes."""
    return cause_bars([("the window", [(cause.kind["cause"], cause.duration) for cause in answer.causes])])


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
    """Return advice that names the cause on which the rank spends more GPU time than the median of the other ranks."""
    rows = rows_of_question(con, "straggler-causes", capture=subject.capture_id)
    rows = [row for row in rows if row["rank"] == rank]
    if not rows or (rows[0]["gpu_ns"] or 0) <= (rows[0]["usual_ns"] or 0):
        return f"look at what rank {rank} does before the collectives that the others wait in"
    rank_time, usual = time(rows[0]["gpu_ns"]), time(rows[0]["usual_ns"] or 0)
    return f"compare it with the others: it spends {rank_time} on {in_words(rows[0]['cause'])}, the median of the others is {usual}"
