"""The top of the page: what it comes to in three sentences, and the three changes that would gain most."""

from __future__ import annotations

from statistics import median

import duckdb

from pipelines.base.database import rows_of
from pipelines.critical_path.whatif.sensitivity import ONLY_WAITS
from pipelines.faces.report.blocks import Block, Finding, Section, findings, lead, paragraph, section
from pipelines.faces.report.formats import percent, shorter, time, times
from pipelines.faces.report.sections.hangs import stuck
from pipelines.faces.report.sections.savings import HOST, Saving, savings
from pipelines.faces.report.subject import Row, Subject, label
from pipelines.faces.report.words import in_words
from pipelines.fleet.stragglers import Stragglers, stragglers_of
from pipelines.models.sqltext import quoted
from pipelines.models.sqltext import row as row_of

_FINDINGS = 3
_WORTH = 1.0  # percent of the path and of the trace: less is noise
_COVERED = 80.0  # percent of the trace: a path that covers less is said to


def verdict_of(con: duckdb.DuckDBPyConnection, subject: Subject) -> Section:
    """Three sentences with numbers, then three findings with what to do and by how much."""
    stragglers = None
    if subject.capture_id is not None and len(subject.traces) > 1:
        stragglers = stragglers_of(con, subject.capture_id)
    hang = stuck(con, subject)
    who = [hang] if hang else []
    if stragglers is not None:
        who.append(_who(stragglers))
        where = _where_of_all(con, subject)
    else:
        where = _where(con, subject)
    told = [*who, where, _path(con, subject), _steps(con, subject) or _kernel(con, subject)]
    return section(
        "verdict", "In short", lead([said for said in told if said][:3]), *_findings(con, subject, stragglers)
    )


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
    rows = rows_of(
        con,
        "SELECT cause, gpu_ns, percent FROM capture_costs "
        f"WHERE capture_id = {quoted(subject.capture_id or '')} AND gpu_ns > 0 ORDER BY gpu_ns DESC, cause LIMIT 4",
    )
    if not rows:
        return _where(con, subject)
    parts = ", ".join(f"{in_words(row['cause'])} {percent(row['percent'])}" for row in rows)
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


def _path(con: duckdb.DuckDBPyConnection, subject: Subject) -> str:
    rows = rows_of(
        con,
        "SELECT bound_by, duration_ns, percent, percent_of_window FROM critical_path_summary "
        f"WHERE window_id = 'full' AND trace_id = {subject.shown_id} ORDER BY duration_ns DESC, bound_by",
    )
    whole = sum(row["duration_ns"] for row in rows)
    if not whole:
        return ""
    parts = ", ".join(
        f"{in_words(row['bound_by'])} {percent(row['percent'])}" for row in rows[:3] if row["percent"] >= 1
    )
    whose = f" of {label(subject.shown)}" if len(subject.traces) > 1 else ""
    # What other threads had open, which launch nothing, may last longer than the window of the path.
    covered = min(100 * whole / (subject.shown["span_ns"] or whole), sum(row["percent_of_window"] or 0 for row in rows))
    only = f", only {percent(covered)} of the trace" if covered < _COVERED else ""
    return f"The critical path{whose} takes {time(whole)}{only}: {parts}."


def _steps(con: duckdb.DuckDBPyConnection, subject: Subject) -> str:
    rows = rows_of(
        con, f"SELECT step, dur_ns FROM profiler_steps WHERE trace_id = {subject.shown_id} AND dur_ns > 0 ORDER BY step"
    )
    if len(rows) < 2:
        return ""
    slowest = max(rows, key=lambda row: row["dur_ns"])
    middle = median(row["dur_ns"] for row in rows)
    return (
        f"The median of {len(rows)} steps takes {time(middle)}, the slowest (step {slowest['step']}) "
        f"{time(slowest['dur_ns'])}."
    )


def _kernel(con: duckdb.DuckDBPyConnection, subject: Subject) -> str:
    rows = rows_of(
        con,
        "SELECT name, count(*) AS n, sum(dur_ns) AS ns, 100.0 * sum(dur_ns) / sum(sum(dur_ns)) OVER () AS share "
        f"FROM kernels WHERE trace_id = {subject.shown_id} GROUP BY name ORDER BY ns DESC NULLS LAST, name LIMIT 1",
    )
    if rows and rows[0]["ns"]:
        (row,) = rows
        return f"{shorter(row['name'], 60)} takes the most GPU time: {time(row['ns'])} ({percent(row['share'])}), {times(row['n'])}."
    rows = rows_of(
        con,
        "SELECT name, n_events, duration_ns FROM critical_path_by_name "
        f"WHERE window_id = 'full' AND trace_id = {subject.shown_id} ORDER BY duration_ns DESC, name LIMIT 1",
    )
    if not rows:
        return ""
    (row,) = rows
    return f"{shorter(row['name'], 60)} takes the most time on the path: {time(row['duration_ns'])}, {times(row['n_events'])}."


def _findings(con: duckdb.DuckDBPyConnection, subject: Subject, stragglers: Stragglers | None) -> list[Block]:
    host = _host(con, subject)
    own = [_of_straggler(con, subject, row) for row in (stragglers.ranks if stragglers else []) if row["is_straggler"]]
    found = savings(con, subject.shown["trace_id"], subject.shown["n_events"])
    span_us = (subject.shown["span_ns"] or 0) / 1e3
    worth = [one for one in found.found if one.saved_us >= _WORTH / 100 * max(one.before_us, span_us)]
    told = [*own[:1], *(_of_saving(saving, subject, host) for saving in worth)][:_FINDINGS]
    blocks = [findings(told)] if told else []
    if found.why_not:
        blocks.append(paragraph(f"What would be gained by changes is not computed: {found.why_not}."))
    elif len(told) < _FINDINGS:
        other = "other " if told else ""
        blocks.append(
            paragraph(f"No {other}change that was tried saves 1 % of the critical path and of the trace's time.")
        )
    if worth:
        n = found.n_inferred
        inferred = f" {n:,} wait{'' if n == 1 else 's'} in the graph {'is' if n == 1 else 'are'} inferred." if n else ""
        blocks.append(
            paragraph(
                "Each gain is that of one change alone, on the path of the whole trace: gains do not add up."
                f"{inferred} A change alters durations, never the order of the work."
            )
        )
    return blocks


def _host(con: duckdb.DuckDBPyConnection, subject: Subject) -> str:
    """The operators and calls with most time on the path, but for those that a faster host does not end sooner."""
    rows = rows_of(
        con,
        "SELECT name, duration_ns FROM critical_path_by_name AS p "
        f"WHERE window_id = 'full' AND trace_id = {subject.shown_id} AND duration_ns > 0 AND name NOT IN {row_of(ONLY_WAITS)} "
        f"AND name NOT IN (SELECT k.name FROM kernels AS k WHERE k.trace_id = {subject.shown_id} AND k.name IS NOT NULL) "
        "ORDER BY duration_ns DESC, name LIMIT 3",
    )
    return ", ".join(f"{shorter(row['name'], 40)} {time(row['duration_ns'])}" for row in rows)


def _of_saving(saving: Saving, subject: Subject, host: str) -> Finding:
    before, after = time(saving.before_us * 1e3), time(saving.after_us * 1e3)
    whose = f"{label(subject.shown)}: " if len(subject.traces) > 1 else ""
    return Finding(
        f"{whose}{shorter(saving.what)}",
        f"{saving.advice}; most of it: {host}" if saving.what == HOST and host else saving.advice,
        f"{saving.change}, the trace would take {after} instead of {before} (-{percent(saving.percent)})",
        f"tracelake what-if {'RANK.json.gz' if len(subject.traces) > 1 else 'TRACE'} {saving.option}",
        ("critical-path.md", "the critical path"),
    )


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
    rows = rows_of(
        con,
        f"""
        SELECT cause, sum(gpu_ns) FILTER (WHERE rank = {rank}) AS own_ns,
            median(gpu_ns) FILTER (WHERE rank <> {rank}) AS usual_ns
        FROM (SELECT cause, rank, sum(gpu_ns) AS gpu_ns FROM gpu_time_by_cause
            WHERE capture_id = {quoted(subject.capture_id or "")} GROUP BY cause, rank)
        WHERE cause NOT IN ('straggler_wait', 'not_in_trace')
        GROUP BY cause
        ORDER BY coalesce(own_ns, 0) - coalesce(usual_ns, 0) DESC, cause LIMIT 1
        """,
    )
    if not rows or (rows[0]["own_ns"] or 0) <= (rows[0]["usual_ns"] or 0):
        return f"look at what rank {rank} does before the collectives that the others wait in"
    own, usual = time(rows[0]["own_ns"]), time(rows[0]["usual_ns"] or 0)
    return f"compare it with the others: it spends {own} on {in_words(rows[0]['cause'])}, the median of the others is {usual}"
