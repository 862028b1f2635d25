"""The page about the whole fleet: jobs, trends, regressions, stragglers, and files that were not read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from pipelines.base.datafiles import rule_rows
from pipelines.base.foreign_text import visible
from pipelines.base.units import count, percent, time
from pipelines.faces.report.blocks import Column, Section, section
from pipelines.faces.report.formats import change, file_name, linked, price, rank_name, words
from pipelines.faces.report.macros import macros
from pipelines.faces.report.page import render
from pipelines.faces.report.pictures.curve import curve
from pipelines.faces.report.tables import rows_as_table
from pipelines.fleet.trends.fleet_today import MOST, Fleet

_CURVES = 12
_TITLES = {row["cause"]: row["title"] for row in rule_rows("cause_kinds")}
_JOBS = (
    Column("link", "newest capture", linked),
    Column("job", "job"),
    Column("began_at", "began", words),
    Column("n_captures", "captures", count),
    Column("n_ranks", "ranks", count),
    Column("hardware", "GPU"),
    Column("step_ns", "step", time),
    Column("step_change_percent", "against earlier", change),
    Column("idle_percent", "idle", percent),
    Column("exposed_communication_percent", "exposed communication", percent),
    Column("straggler_rank", "straggler", rank_name),
    Column("straggler_percent", "of all waiting", percent),
    Column("price", "price", price),
    Column("currency", "", words),
)
_WORSE = (
    Column("job", "job"),
    Column("hardware", "GPU"),
    Column("n_ranks", "ranks", count),
    Column("metric", "metric", words),
    Column("status", "verdict", words),
    Column("effect", "change", lambda share: f"{100 * share:+.1f} %"),
    Column("newest", "newest capture", words),
)
_STRAGGLERS = (
    Column("job", "job"),
    Column("rank", "rank", count),
    Column("n_captures", "captures", count),
    Column("n_straggler", "straggler in", count),
    Column("caused_wait_ns", "others waited", time),
    Column("last_seen_at", "last seen", words),
)
_CAUSES = (
    Column("job", "job"),
    Column("cause", "cause", lambda cause: _TITLES[cause]),
    Column("most", "most of it"),
    Column(
        "gpu_seconds",
        "GPU time this week",
        lambda seconds: f"{seconds / 3600:,.2f} h" if seconds >= 3600 else time(seconds * 1e9),
    ),
    Column("percent", "of all", percent),
    Column("job_percent", "of the job", percent),
    Column("before_percent", "in the weeks before", percent),
)
_REJECTS = (Column("path", "file", file_name), Column("reason", "reason", words), Column("seen_at", "seen", words))
_FAILURES = (
    Column("trace_id", "trace"),
    Column("table_name", "table"),
    Column("model", "model"),
    Column("reason", "reason", words),
)


def fleet_page(fleet: Fleet, links: Mapping[str, str], now: str) -> str:
    """Return the page as HTML. `links`: the file of a capture's report by capture_id; `now`: current time as text."""
    sections = [section for result in (_jobs(fleet, links), _trends(fleet), *_lists(fleet)) if (section := result)]
    facts = {
        "jobs": count(len(fleet.jobs)),
        "captures": count(fleet.n_captures),
        "traces": count(fleet.n_traces),
        "got worse": count(len(fleet.worse)),
        "files not read": count(fleet.n_rejects),
        "as of": now,
    }
    return render({"title": "The fleet today", "kind": "newest capture of each job", "facts": facts}, sections)


def _jobs(fleet: Fleet, links: Mapping[str, str]) -> Section:
    rows = [{**job, "link": _link(job["capture_id"], links)} for job in fleet.jobs]
    body = rows_as_table("jobs", _JOBS, rows) if rows else macros.paragraph("There are no captures yet.")
    note = "Step: mean over steps of the slowest rank. Earlier: up to 20 captures with the same GPUs and ranks."
    return section("jobs", "Jobs", body, note=note)


def _link(capture_id: str, links: Mapping[str, str]) -> Any:
    if capture_id not in links:
        return capture_id
    return Markup('<a href="{}">{}</a>').format(links[capture_id], capture_id)


def _trends(fleet: Fleet) -> Section | None:
    series: defaultdict[tuple, list[dict[str, Any]]] = defaultdict(list)
    for day in fleet.days:
        if day["step_ns"] is not None:
            series[day["job"], day["hardware"], day["n_ranks"]].append(day)
    long = sorted((rows for rows in series.values() if len(rows) > 1), key=lambda rows: -len(rows))
    return section("trends", "Step time by day", *map(_trend, long[:_CURVES])) if long else None


def _trend(rows: list[dict[str, Any]]) -> Markup:
    first, last, steps = rows[0], rows[-1], [row["step_ns"] for row in rows]
    title = f"{visible(first['job'] or 'no job')}, {first['n_ranks']} ranks, {visible(first['hardware'] or 'GPU unknown')}: step"
    return macros.figure(curve(title, steps, [None] * len(steps), time, f"{first['began_on']} to {last['began_on']}"))


def _lists(fleet: Fleet) -> list[Section | None]:
    worse = [{**vars(regression), **vars(regression.verdict)} for regression in fleet.worse]
    return [
        _list(
            "causes",
            "What the GPU time goes to",
            "causes",
            _CAUSES,
            fleet.causes[:MOST],
            len(fleet.causes),
            "tracelake ask fleet-causes",
        ),
        _list("worse", "What got worse", "regression_samples", _WORSE, worse, len(worse), "tracelake regressions"),
        _list("stragglers", "Stragglers again and again", "persistent_stragglers", _STRAGGLERS, fleet.stragglers),
        _list("rejects", "Files that were not read", "rejects", _REJECTS, fleet.rejects, fleet.n_rejects),
        _list("failures", "Tables that lack traces", "model_failures", _FAILURES, fleet.failures, fleet.n_failures),
    ]


def _list(
    ident: str, title: str, table_name: str, columns: tuple, rows: list[dict[str, Any]], n: int = 0, where: str = ""
) -> Section | None:
    if not rows:
        return None
    more = f"The first {MOST} of {n:,}; the table {table_name} has all." if n > len(rows) else ""
    command_note = f"`{where}` shows the numbers." if where else ""
    notes = [macros.paragraph(text) for text in (more, command_note) if text]
    return section(ident, title, rows_as_table(table_name, columns, rows), *notes)
