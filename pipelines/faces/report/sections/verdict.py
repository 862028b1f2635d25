"""The first section of the page: the verdict, why the trace takes so long, and the changes that would help."""

from __future__ import annotations

from statistics import fmean

from markupsafe import Markup

from pipelines.base.units import percent, time, times
from pipelines.faces.report.blocks import Section, section
from pipelines.faces.report.cause_bars import cause_bars
from pipelines.faces.report.formats import shorter
from pipelines.faces.report.macros import macros
from pipelines.faces.report.sections.hangs import stuck
from pipelines.faces.report.subject import Row, Subject
from pipelines.faces.what_helps import SHOWN, change_of, same_stretch, saving_of
from pipelines.faces.why import Cause, Why, why
from pipelines.faces.words import in_words
from pipelines.fleet.stragglers import Stragglers, stragglers_of

_FINDINGS, _NAMES = 3, 3
_WORTH = 1.0  # minimum percent of the window, because less is noise


def verdict_of(subject: Subject) -> Section:
    """Return the section with the verdict, the causes of the trace's length, and the changes that would help."""
    stragglers = None
    if subject.capture_id is not None and len(subject.traces) > 1:
        stragglers = stragglers_of(subject.con, subject.capture_id)
    answer = why(subject.con, subject.shown["trace_id"])
    sentence = f"{_prefix(subject)}{answer.sentence}" if answer else _where(subject)
    # For a capture, its own sentence is added to the sentences about one rank.
    of_capture = [subject.capture_answer.sentence] if subject.capture_answer else []
    sentences = [stuck(subject), *of_capture]
    sentences += [sentence] if stragglers is None else [_who(stragglers), sentence, _where_of_all(subject)]
    sentences.append(_steps(subject) or _kernel(subject))
    late = [row for row in (stragglers.ranks if stragglers else []) if row["is_straggler"]]
    findings = [*(_of_straggler(subject, row) for row in late[:1]), *_findings(subject, answer)][:_FINDINGS]
    return section(
        "verdict",
        "In short",
        macros.lead([text for text in sentences if text][: 3 + len(of_capture)]),
        _bar(answer) if answer else "",
        macros.findings(findings) if findings else "",
        _limits(answer, bool(findings)),
        _fixes(subject, answer),
    )


def _prefix(subject: Subject) -> str:
    """Return the prefix of sentences about the shown rank, or "" if there is only one trace."""
    return f"{subject.label}: " if len(subject.traces) > 1 else ""


def _limits(answer: Why | None, has_findings: bool) -> Markup:
    """Return the limits of the findings' gains, such as that gains do not add up."""
    if answer is None:
        return macros.paragraph("The trace has no critical path, so the savings of changes are unknown.")
    if not has_findings:
        return Markup()
    details = [caveat["detail"] for caveat in answer.caveats if "inferred" in caveat["detail"]]
    inferred = "".join(f" {detail[:1].upper()}{detail[1:]}." for detail in details)
    return macros.paragraph(
        "Each gain is that of one change alone, on the whole trace: gains do not add up. A change alters durations, "
        f"never the order of the work.{inferred}"
    )


def _who(stragglers: Stragglers) -> str:
    if not stragglers.ranks:
        return "Who waits for whom is unknown: no collective could be matched on all ranks."
    waited = sum(row["wait_ns"] or 0 for row in stragglers.ranks)
    worst = stragglers.ranks[0]
    if stragglers.agreement is None or stragglers.culprit_uncertain:
        return f"The ranks wait {time(waited)} for each other in all; for whom is uncertain (see Stragglers)."
    if not stragglers.stragglers:
        longest = f", longest for rank {worst['rank']}" if waited else ""
        if stragglers.undetermined:
            return f"The ranks wait {time(waited)} for each other in all{longest}; {stragglers.named}, {stragglers.undetermined}."
        return f"No rank is a straggler: the ranks wait {time(waited)} for each other in all{longest}."
    row = next(row for row in stragglers.ranks if row["is_straggler"])
    share = f" ({percent(row['caused_percent'])} of all waiting)" if row["caused_percent"] is not None else ""
    n_others = len(stragglers.ranks) - 1
    who = f"the other {n_others} ranks together wait" if n_others > 1 else "the other rank waits"
    and_unknown = f"; {stragglers.undetermined}" if stragglers.undetermined else ""
    return f"Rank {row['rank']} is a straggler: {who} {time(row['caused_wait_ns'] or 0)} for it{share}{and_unknown}."


def _where_of_all(subject: Subject) -> str:
    rows = [row for row in subject.rows_of_capture("capture-costs") if row["gpu_ns"] > 0]
    if not rows:
        return _where(subject)
    parts = ", ".join(f"{in_words(row['cause'])} {percent(row['percent'])}" for row in rows[:4])
    return f"The GPU time of all {len(subject.traces)} ranks: {parts}."


def _where(subject: Subject) -> str:
    rows = sorted(subject.rows("breakdown"), key=lambda row: -row["busy_ns"])
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


def _steps(subject: Subject) -> str:
    rows = [row for row in subject.rows("steps-in-order") if row["duration_ns"] > 0]
    if len(rows) < 2:
        return ""
    slowest = max(rows, key=lambda row: row["duration_ns"])
    mean = fmean(row["duration_ns"] for row in rows)
    return (
        f"A step takes {time(mean)} in the mean of {len(rows)}, the slowest (step {slowest['step']}) "
        f"{time(slowest['duration_ns'])}."
    )


def _kernel(subject: Subject) -> str:
    rows = subject.rows("rank-kernels")
    if rows and (ns := rows[0]["duration_ns"]):
        row = rows[0]
        return f"{_name(row)} takes the most GPU time: {time(ns)} ({percent(row['percent'])}), {times(row['n'])}."
    rows = subject.rows("path-parts")
    if not rows:
        return ""
    row = rows[0]
    return f"{_name(row)} takes the most time on the path: {time(row['duration_ns'])}, {times(row['n_events'])}."


def _name(row: Row) -> str:
    return "Work without a name" if row["name"] is None else shorter(row["name"], 60)


def _findings(subject: Subject, answer: Why | None) -> list[Row]:
    """Return the causes of the shown trace's length, largest first, that take at least _WORTH percent and save time."""
    if answer is None:
        return []
    return [_of_cause(cause, answer, subject) for cause in answer.causes if cause.share >= _WORTH and cause.saves]


def _of_cause(cause: Cause, answer: Why, subject: Subject) -> Row:
    before, of_it = answer.length, ", both without the profiler" if answer.is_without_profiler else ""
    after = before - (cause.saves or 0)
    doubt = answer.caveat_for(cause)
    return {
        "what": f"{_prefix(subject)}{cause.title}, {time(cause.duration)} ({percent(cause.share)}): {cause.names(_NAMES)}",
        "advice": cause.advice,
        "gain": f"without it the trace would take {time(after)} instead of {time(before)} (-{percent(100 * (before - after) / before)}{of_it})"
        + (f"; but {doubt}" if doubt else ""),
        "command": cause.command(subject.named, answer.options(subject.options)),
        "docs": ("why.md", "why"),
    }


def _fixes(subject: Subject, answer: Why | None) -> Markup:
    """Return the changes that make the shown trace shorter, largest saving first, or nothing if there are none."""
    if answer is None or not answer.fixes:
        return Markup()
    rank_text = f" {subject.label}" if len(subject.traces) > 1 else ""
    without = " without the profiler" if answer.is_without_profiler else ""
    title = f"What would help{rank_text}, each by itself, in the {time(answer.length)}{without}"
    rows = [_fix(row, answer, subject) for row in answer.fixes[:SHOWN]]
    return macros.heading(title) + macros.helps(rows)


def _fix(row: Row, answer: Why, subject: Subject) -> Row:
    limits = (same_stretch(row, answer.fixes), row["caveat"])
    return {
        "saves": f"{saving_of(row, 1)} ({percent(row['saves_percent'])})",
        "change": change_of(row),
        "command": answer.fix_command(row, subject.named, subject.options),
        "caveat": "; ".join(limit for limit in limits if limit),
    }


def _bar(answer: Why) -> Markup:
    """Return a bar of the window, split by causes."""
    return cause_bars([("the window", [(cause.kind["cause"], cause.duration) for cause in answer.causes])])


def _of_straggler(subject: Subject, row: Row) -> Row:
    gain = "how much the capture would gain is unknown"
    if row["marginal_ns"] is not None:
        of_span = "" if row["marginal_percent"] is None else f", {percent(row['marginal_percent'])} of the span"
        gain = f"the job would go on {time(row['marginal_ns'])} sooner if only rank {row['rank']} were on time{of_span}"
    return {
        "what": f"rank {row['rank']} holds the others up",
        "advice": _why_late(subject, row["rank"]),
        "gain": gain,
        "command": "tracelake stragglers FOLDER; tracelake timeline FOLDER shows the ranks side by side",
        "docs": ("reading-a-fleet.md", "reading a fleet"),
    }


def _why_late(subject: Subject, rank: int) -> str:
    """Return advice on a late rank.

    It names the cause on which the rank spends more GPU time than the median of the other ranks. Without such a cause,
    it is to look at the rank's work before the collectives.
    """
    rows = [row for row in subject.rows_of_capture("straggler-causes") if row["rank"] == rank]
    if not rows or (rows[0]["gpu_ns"] or 0) <= (rows[0]["usual_ns"] or 0):
        return f"look at what rank {rank} does before the collectives that the others wait in"
    rank_time, usual = time(rows[0]["gpu_ns"]), time(rows[0]["usual_ns"] or 0)
    return f"compare it with the others: it spends {rank_time} on {in_words(rows[0]['cause'])}, the median of the others is {usual}"
