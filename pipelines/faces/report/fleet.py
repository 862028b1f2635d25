"""The page about the whole fleet: jobs, trends, regressions, stragglers, and files that were not read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from typing import Any

from markupsafe import Markup

from pipelines.base.datafiles import rule_rows
from pipelines.base.foreign_text import visible
from pipelines.base.units import count, time
from pipelines.faces.limiting_findings import LimitingFinding, sentences
from pipelines.faces.report.blocks import Section, section
from pipelines.faces.report.macros import macros
from pipelines.faces.report.page import render
from pipelines.faces.report.pictures.curve import curve
from pipelines.faces.report.tables import table
from pipelines.fleet.trends.fleet_today import MOST, Fleet

_CURVES = 12
_TITLES = {row["cause"]: row["title"] for row in rule_rows("cause_kinds")}


def fleet_page(
    fleet: Fleet,
    links: Mapping[str, str],
    now: str,
    findings: Collection[LimitingFinding],
    notices: Collection[str] = (),
) -> str:
    """Return the page of the fleet as HTML.

    `links`: the file of a capture's report by capture_id. `now`: current time as text. `findings`: about the newest
    captures. `notices`: sentences about rows that are missing from the tables.
    """
    sections = [section for result in (_jobs(fleet, links), _trends(fleet), *_lists(fleet)) if (section := result)]
    facts = {
        "jobs": count(len(fleet.jobs)),
        "captures": count(fleet.n_captures),
        "traces": count(fleet.n_traces),
        "got worse": count(len(fleet.worse)),
        **({} if fleet.n_rejects is None else {"files not read": count(fleet.n_rejects)}),
        "as of": now,
    }
    caveats = [*(f"{sentence}." for sentence in sentences(findings)), *notices]
    head = {"title": "The fleet today", "kind": "newest capture of each job", "facts": facts, "caveats": caveats}
    return render(head, sections)


def _jobs(fleet: Fleet, links: Mapping[str, str]) -> Section:
    rows = [{**job, "link": _link(job["capture_id"], links)} for job in fleet.jobs]
    body = table("fleet-jobs", rows) or macros.paragraph("There are no captures yet.")
    note = "Step: mean over steps of the slowest rank. Earlier: up to 20 captures with the same GPUs and ranks."
    return section("jobs", "Jobs", body, note=note)


def _link(capture_id: str, links: Mapping[str, str]) -> Any:
    if capture_id not in links:
        return capture_id
    return Markup('<a href="{}">{}</a>').format(links[capture_id], capture_id)


def _trends(fleet: Fleet) -> Section | None:
    series: defaultdict[tuple, list[dict[str, Any]]] = defaultdict(list)
    for day in fleet.days:
        if None not in (day["step_ns"], day["began_on"], day["job"]):  # captures without a job may be of different jobs
            series[day["job"], day["hardware"], day["n_ranks"]].append(day)
    long = sorted((rows for rows in series.values() if len(rows) > 1), key=lambda rows: -len(rows))
    return section("trends", "Step time by day", *map(_trend, long[:_CURVES])) if long else None


def _trend(rows: list[dict[str, Any]]) -> Markup:
    first, last, steps = rows[0], rows[-1], [row["step_ns"] for row in rows]
    title = f"{visible(first['job'])}, {first['n_ranks']} ranks, {visible(first['hardware'] or 'GPU unknown')}: step"
    return macros.figure(curve(title, steps, [None] * len(steps), time, f"{first['began_on']} to {last['began_on']}"))


def _lists(fleet: Fleet) -> list[Section | None]:
    causes = [{**row, "cause": _TITLES[row["cause"]]} for row in fleet.causes]
    fixes = [{**row, "gpu_seconds": 3600 * row["gpu_hours"]} for row in fleet.fixes]
    worse = [{**vars(regression), **vars(regression.verdict)} for regression in fleet.worse]
    return [
        _list("causes", "Where the GPU time goes", causes[:MOST], len(causes), "causes", "tracelake ask fleet-causes"),
        _list("fixes", "What would help", fixes, command="tracelake ask fleet-fixes"),
        _list("worse", "What got worse", worse, command="tracelake regressions"),
        _list("stragglers", "Stragglers again and again", fleet.stragglers),
        _list("rejects", "Files that were not read", fleet.rejects, fleet.n_rejects or 0, "rejects"),
        _list("failures", "Tables with missing traces", fleet.failures, fleet.n_failures, "model_failures"),
    ]


def _list(
    ident: str, title: str, rows: list[dict[str, Any]], n: int = 0, of: str = "", command: str = ""
) -> Section | None:
    if not rows:
        return None
    left_out = macros.paragraph(f"The first {MOST} of {n:,}; the table {of} has all.") if n > len(rows) else ""
    source = macros.paragraph(f"`{command}` shows the numbers.") if command else ""
    return section(ident, title, table(f"fleet-{ident}", rows), left_out, source)
