"""`tracelake fleet` and `tracelake metrics`: the state of all jobs, for users and for monitoring."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from rich.table import Table

from pipelines.base import units
from pipelines.base.datafiles import rule_rows
from pipelines.base.foreign_text import visible
from pipelines.faces.cli import caveats
from pipelines.faces.cli.console import err, new_table, out, print_json, progress, styled
from pipelines.faces.cli.options import DEFAULT_LAKE, JobOption, JsonOption, LakeOption, out_option, path_option
from pipelines.faces.cli.refresh_tables import open_analyst
from pipelines.faces.limiting_findings import LimitingFinding, findings_of_newest

_SHOWN = 10
_CAUSES = 5
_FIXES = 3
_GREW = 1  # percentage points of a job's time by which a cause must grow to be printed


def fleet(
    lake: LakeOption = DEFAULT_LAKE,
    job: JobOption = None,
    to: Annotated[
        Path | None,
        path_option("Write a page, index.html, with a report of each job's newest capture next to it.", "FOLDER", "--out")
    ] = None,
    json: JsonOption = False,
) -> None:  # fmt: skip
    """What the fleet is doing: each job's newest capture, what got worse, stragglers, files that were not read.

    Example: `tracelake fleet --lake /data/lake --out /var/www/fleet`
    """
    report, findings = _today(lake, job)
    caveats.add(findings)
    if to is not None:
        index = _write_pages(report, lake, to, findings)
    if json:
        print_json(report.as_json())
    elif to is not None:
        out.line("open in a browser: [bold]{}[/]", index)
    else:
        _show(report, lake)


def metrics(
    lake: LakeOption = DEFAULT_LAKE,
    job: JobOption = None,
    to: Annotated[
        Path | None,
        out_option("Write them to this file, for the textfile collector of node_exporter; readers never see half of it.")
    ] = None,
) -> None:  # fmt: skip
    """Print the fleet as metrics in OpenMetrics text, for Prometheus.

    Example: `tracelake metrics --out /var/lib/node_exporter/tracelake.prom`
    """
    from pipelines.base.whole_file import write_whole
    from pipelines.fleet.trends.openmetrics import families_of, openmetrics

    report, _ = _today(lake, job)
    text = openmetrics(families_of(report))
    if to is None:
        print(text, end="")
        return
    write_whole(to, text)


def _today(lake: Path | str, job: str | None) -> tuple[Any, list[LimitingFinding]]:
    """Return the state of the fleet, or of a job, and the findings about its newest captures.

    Exit if the job has no traces.
    """
    from pipelines.faces.cli.fleet.regressions import refuse_unknown
    from pipelines.fleet.trends.fleet_today import TABLES, fleet_today
    from pipelines.lake.publish.prices import PRICE_TABLE

    with open_analyst(lake, [*TABLES, PRICE_TABLE]) as con:
        report = fleet_today(con, job)
        if job is not None and not report.n_traces:
            refuse_unknown(con, job)
        return report, findings_of_newest(con, report.jobs)


def _write_pages(report: Any, lake: Path | str, folder: Path, findings: list[LimitingFinding]) -> Path:
    """Write a report of each job's newest capture, then the page that links them. Return the path of the page."""
    from pipelines.base.whole_file import write_whole
    from pipelines.faces.report.fleet import fleet_page
    from pipelines.faces.report.page import page
    from pipelines.faces.report.subject import CAPTURE_TABLES, TABLES, find_subject
    from pipelines.lake.publish.prices import PRICE_TABLE
    from pipelines.runs.store.open_store import absolute_address

    folder.mkdir(parents=True, exist_ok=True)
    links = {}
    captures = [job["capture_id"] for job in report.jobs]
    if captures:
        with (
            open_analyst(lake, [*TABLES, *CAPTURE_TABLES, PRICE_TABLE]) as con,
            progress(len(captures), "writing reports") as advance,
        ):
            for capture in captures:
                subject = find_subject(con, capture, lake=absolute_address(lake))
                write_whole(folder / f"{capture}.html", page(subject, caveats.notices()))
                links[capture] = f"{capture}.html"
                advance(1)
    index = folder / "index.html"
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    write_whole(index, fleet_page(report, links, now, findings, caveats.notices()))
    return index


def _show(report: Any, lake: Path | str) -> None:
    of_lake = "" if str(lake) == str(DEFAULT_LAKE) else f" --lake {shlex.quote(str(lake))}"
    counts = {"trace": report.n_traces, "capture": report.n_captures, "job": len(report.jobs)}
    out.print(", ".join(units.counted(n, name) for name, n in counts.items()))
    out.print(_jobs_table(report.jobs))
    for content in (*_causes(report.causes), *_fixes(report.fixes)):
        out.print(content)
    if len(report.fixes) > _FIXES:
        more = len(report.fixes) - _FIXES
        out.print(styled("[dim]{} more would help: {}[/]", more, f"tracelake ask fleet-fixes{of_lake}"))
    for worse in report.worse[:_SHOWN]:
        colour = "red" if worse.verdict.status == "REGRESSION" else "yellow"
        change = "" if worse.verdict.effect is None else f" {100 * worse.verdict.effect:+.1f} %"
        out.print(styled(f"[{colour}]{{}}[/]: {{}}: {{}}{{}}", worse.verdict.status, worse.job, worse.metric, change))
    _tell_more(report.worse, f"tracelake regressions{of_lake}")
    for row in report.stragglers[:_SHOWN]:
        content = (row["job"], row["rank"], row["n_straggler"], row["n_captures"])
        out.print(styled("[yellow]straggler[/]: {}: rank {} in {} of {} captures", *content))
    _tell_more(report.stragglers, f'tracelake sql "FROM persistent_stragglers"{of_lake}')
    if report.n_rejects:
        were = "file was" if report.n_rejects == 1 else "files were"
        of_rejects = f"tracelake ask rejected-files{of_lake}"
        err.print(styled("[yellow]{:,} {} not read[/]: {}", report.n_rejects, were, of_rejects), soft_wrap=True)
    if report.n_failures:
        times = "once" if report.n_failures == 1 else f"{report.n_failures:,} times"
        lacks = "[yellow]a table lacks a trace, {}[/]: SELECT * FROM model_failures WHERE outcome = 'left_out'"
        err.print(styled(lacks, times))


def _tell_more(rows: Sequence[Any], command: str) -> None:
    if len(rows) > _SHOWN:
        out.print(styled("[dim]{:,} more: {}[/]", len(rows) - _SHOWN, command))


def _causes(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the largest causes of the newest week's GPU time over all jobs, each with the job that has most of it.

    Then yield the cause that grew most in a job since the weeks before, if it grew by at least _GREW.
    """
    titles = {row["cause"]: row["title"] for row in rule_rows("cause_kinds")}
    seconds: defaultdict[str, float] = defaultdict(float)
    top_row_by_cause: dict[str, dict[str, Any]] = {}
    for row in rows:
        seconds[row["cause"]] += row["gpu_seconds"] or 0
        top_row_by_cause.setdefault(row["cause"], row)
    total = sum(seconds.values())
    for cause, cause_seconds in sorted(seconds.items(), key=lambda item: -item[1])[:_CAUSES]:
        if cause_seconds:
            share = 100 * (top_row_by_cause[cause]["gpu_seconds"] or 0) / cause_seconds
            text = f"{titles[cause]}: {_gpu_time(cause_seconds, total)} this week ({100 * cause_seconds / total:.0f} %)"
            yield visible(f"{text}, {share:.0f} % of it job {top_row_by_cause[cause]['job']}")
    both = [row for row in rows if row["job_percent"] is not None and row["before_percent"] is not None]
    new = max(both, key=lambda row: row["job_percent"] - row["before_percent"], default=None)
    if new and new["job_percent"] - new["before_percent"] >= _GREW:
        then, now = (f"{new[name]:.0f} %" for name in ("before_percent", "job_percent"))
        yield visible(
            f"grew most: {titles[new['cause']]} of job {new['job']}, {now} of its time this week, {then} in the weeks before"
        )


def _fixes(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the kinds of change that would save most GPU time in all traces, each with the job of its largest saving."""
    for row in rows[:_FIXES]:
        hours, in_traces = row["gpu_hours"], units.counted(row["n_traces"], "trace")
        saved = f"{hours:,.2f} GPU-hours" if hours >= 1 / 60 else units.time(hours * 3.6e12)
        share = "" if row["percent"] is None else f" ({row['percent']:.0f} %)"
        yield visible(
            f"would help: {row['top_change']}, which saves {saved}{share} in {in_traces}, "
            f"most in a trace of job {row['top_job']}"
        )


def _gpu_time(seconds: float, total: float) -> str:
    """Return seconds as GPU-hours, or in the units of a trace if the total is below a minute, as in a few short traces."""
    if total < 60:
        return f"{units.time(seconds * 1e9)} of {units.time(total * 1e9)} of GPU time"
    return f"{seconds / 3600:,.2f} GPU-hours of {total / 3600:,.2f}"


def _jobs_table(jobs: list[dict[str, Any]]) -> Table:
    headings = ("ranks", "step", "earlier", "change", "idle", "exposed", "straggler")
    table = new_table("~job", "~newest capture", "~began", *(f">~{heading}" for heading in headings))
    for row in jobs:
        step, earlier = (("" if row[n] is None else units.time(row[n])) for n in ("step_ns", "earlier_step_ns"))
        change = "" if row["step_change_percent"] is None else f"{row['step_change_percent']:+.1f} %"
        idle, exposed = (
            "" if row[n] is None else f"{row[n]:.1f} %" for n in ("idle_percent", "exposed_communication_percent")
        )
        straggler = "" if row["straggler_rank"] is None else f"rank {row['straggler_rank']}"
        began = "" if row["began_at"] is None else f"{row['began_at']:%Y-%m-%d %H:%M}"
        ranks = f"{row['n_ranks']}" + (
            f" of {row['world_size']}" if row["world_size"] not in (None, row["n_ranks"]) else ""
        )
        table.add_row(
            row["job"] or "(no job)", row["capture_id"], began, ranks, step, earlier, change, idle, exposed, straggler
        )
    return table
