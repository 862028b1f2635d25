"""`tracelake fleet` and `tracelake metrics`: what all jobs are doing, for people and for monitoring."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pipelines.base import units
from pipelines.base.datafiles import rule_rows
from pipelines.base.foreign_text import visible
from pipelines.faces.cli.console import (
    DEFAULT_LAKE,
    AnyLakeOption,
    JsonOption,
    err,
    local,
    new_file,
    out,
    print_json,
    progress,
    styled,
)
from pipelines.faces.cli.up_to_date import open_analyst

JobOption = Annotated[str | None, typer.Option(help="Only this job.")]
_SHOWN = 10
_CAUSES = 5
_GREW = 1  # percent of a job's time that a cause has more than before


def fleet(
    lake: AnyLakeOption = DEFAULT_LAKE,
    job: JobOption = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FOLDER", parser=local,
            help="Write a page, index.html, with a report of each job's newest capture beside it.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:  # fmt: skip
    """What the fleet is doing: each job's newest capture, what got worse, stragglers, files that were not read.

    Example: `tracelake fleet --lake /data/lake --out /var/www/fleet`
    """
    from pipelines.fleet.trends.fleet_today import TABLES, fleet_today
    from pipelines.lake.publish.prices import PRICE_TABLE

    with open_analyst(lake, [*TABLES, PRICE_TABLE]) as con:
        found = fleet_today(con, job)
    if to is not None:
        index = _write_pages(found, lake, to)
    if json:
        print_json(found.as_json())
    elif to is not None:
        out.print(styled("open in a browser: [bold]{}[/]", index), soft_wrap=True)
    else:
        _show(found)


def metrics(
    lake: AnyLakeOption = DEFAULT_LAKE,
    job: JobOption = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE", parser=new_file,
            help="Write them to this file, for the textfile collector of node_exporter; readers never see half of it.",
        ),
    ] = None,
) -> None:  # fmt: skip
    """Print the fleet as metrics in OpenMetrics text, for Prometheus.

    Example: `tracelake metrics --out /var/lib/node_exporter/tracelake.prom`
    """
    from pipelines.fleet.trends.fleet_today import TABLES, fleet_today
    from pipelines.fleet.trends.openmetrics import families_of, openmetrics
    from pipelines.lake.publish.prices import PRICE_TABLE

    with open_analyst(lake, [*TABLES, PRICE_TABLE]) as con:
        text = openmetrics(families_of(fleet_today(con, job)))
    if to is None:
        print(text, end="")
        return
    _write(to, text)


def _write_pages(found: Any, lake: Path | str, folder: Path) -> Path:
    """Write a report of each job's newest capture, then the page that links them. Exits if they cannot be written."""
    from pipelines.faces.report.fleet import fleet_page
    from pipelines.faces.report.page import page
    from pipelines.faces.report.subject import CAPTURE_TABLES, TABLES, find_subject
    from pipelines.lake.publish.prices import PRICE_TABLE

    folder.mkdir(parents=True, exist_ok=True)
    links = {}
    captures = [one["capture_id"] for one in found.jobs]
    if captures:
        with (
            open_analyst(lake, [*TABLES, *CAPTURE_TABLES, PRICE_TABLE]) as con,
            progress(len(captures), "writing reports") as advance,
        ):
            for capture in captures:
                _write(folder / f"{capture}.html", page(con, find_subject(con, capture)))
                links[capture] = f"{capture}.html"
                advance(1)
    index = folder / "index.html"
    _write(index, fleet_page(found, links, f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"))
    return index


def _write(file: Path, text: str) -> None:
    """Write a file whole or not at all: others may read it at any time."""
    unfinished = file.with_name(f".{file.name}.unfinished")
    unfinished.write_text(text, encoding="utf-8")
    os.replace(unfinished, file)


def _show(found: Any) -> None:
    counts = {"trace": found.n_traces, "capture": found.n_captures, "job": len(found.jobs)}
    out.print(", ".join(f"{n:,} {name}{'' if n == 1 else 's'}" for name, n in counts.items()))
    out.print(_jobs_table(found.jobs))
    for said in _causes(found.causes):
        out.print(said)
    for worse in found.worse[:_SHOWN]:
        colour = "red" if worse.verdict.status == "REGRESSION" else "yellow"
        change = "" if worse.verdict.effect is None else f" {100 * worse.verdict.effect:+.1f} %"
        out.print(styled(f"[{colour}]{{}}[/]: {{}}: {{}}{{}}", worse.verdict.status, worse.job, worse.metric, change))
    for row in found.stragglers[:_SHOWN]:
        said = (row["job"] or "no job", row["rank"], row["n_straggler"], row["n_captures"])
        out.print(styled("[yellow]straggler[/]: {}: rank {} in {} of {} captures", *said))
    if found.n_rejects:
        were = "file was" if found.n_rejects == 1 else "files were"
        err.print(styled("[yellow]{:,} {} not read[/]: tracelake ask rejected-files", found.n_rejects, were))
    if found.n_failures:
        err.print(
            styled(
                "[yellow]{:,} tables lack a trace[/]: SELECT * FROM model_failures WHERE outcome = 'left_out'",
                found.n_failures,
            )
        )


def _causes(rows: list[dict[str, Any]]) -> Iterator[str]:
    """What the GPU time of the newest week goes to: the largest causes over all jobs, each with the job that has most of it; and
    which cause grew most in a job since the weeks before.
    """
    titles = {row["cause"]: row["title"] for row in rule_rows("cause_kinds")}
    seconds: defaultdict[str, float] = defaultdict(float)
    most: dict[str, dict[str, Any]] = {}
    for row in rows:
        seconds[row["cause"]] += row["gpu_seconds"] or 0
        most.setdefault(row["cause"], row)
    whole = sum(seconds.values())
    for cause, of in sorted(seconds.items(), key=lambda one: -one[1])[:_CAUSES]:
        if of:
            share = 100 * (most[cause]["gpu_seconds"] or 0) / of
            told = f"{titles[cause]}: {_gpu_time(of, whole)} this week ({100 * of / whole:.0f} %)"
            yield visible(f"{told}, {share:.0f} % of it job {most[cause]['job']}")
    both = [row for row in rows if row["job_percent"] is not None and row["before_percent"] is not None]
    new = max(both, key=lambda row: row["job_percent"] - row["before_percent"], default=None)
    if new and new["job_percent"] - new["before_percent"] >= _GREW:
        then, now = (f"{new[name]:.0f} %" for name in ("before_percent", "job_percent"))
        yield visible(
            f"grew most: {titles[new['cause']]} of job {new['job']}, {now} of its time this week, {then} in the weeks before"
        )


def _gpu_time(of: float, whole: float) -> str:
    """Seconds as hours of a fleet; less than a minute, as a few short traces have, in the units of a trace."""
    if whole < 60:
        return f"{units.time(of * 1e9)} of {units.time(whole * 1e9)} of GPU time"
    return f"{of / 3600:,.2f} GPU-hours of {whole / 3600:,.2f}"


def _jobs_table(jobs: list[dict[str, Any]]) -> Table:
    table = Table()
    for at, name in enumerate(
        ("job", "newest capture", "began", "ranks", "step", "earlier", "change", "idle", "exposed", "straggler")
    ):
        table.add_column(name, justify="left" if at < 3 else "right", overflow="fold")
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
