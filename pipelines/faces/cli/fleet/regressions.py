"""`tracelake regressions`: a test whether a job's newest captures are worse than the earlier ones."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.table import Table

from pipelines.faces.cli.console import err, fail, new_table, out, print_json, styled
from pipelines.faces.cli.options import DEFAULT_LAKE, JobOption, JsonOption, LakeOption
from pipelines.faces.cli.refresh_tables import open_analyst


def regressions(
    lake: LakeOption = DEFAULT_LAKE,
    job: JobOption = None,
    new: Annotated[int, typer.Option(help="How many of the newest captures to test.", min=2)] = 5,
    json: JsonOption = False,
) -> None:
    """Test the newest captures of each job against the earlier ones, with an exact test that allows for noise.

    REGRESSION: beyond the noise and significant; SUSPECT: one of the two; INSUFFICIENT: too few captures. Exits with 1
    where there is a regression.

    Example: `tracelake regressions --job nightly --json`
    """
    from pipelines.fleet.trends.history import TABLES, newest_incomplete, without_job
    from pipelines.fleet.trends.history import regressions as find

    con = open_analyst(lake, list(TABLES))
    results = find(con, job, new)
    if job is not None and not results:
        refuse_unknown(con, job)
    if json:
        print_json(
            [
                {**{k: v for k, v in asdict(result).items() if k != "verdict"}, **asdict(result.verdict)}
                for result in results
            ]
        )
    else:
        out.print(_table(results) if results else "no job has a complete capture")
        for status, reason in dict.fromkeys((result.verdict.status, result.verdict.reason) for result in results):
            out.print(f"{status}: {reason}", soft_wrap=True)
        if job is None and (unnamed := without_job(con)):
            have = "capture has no job and is" if unnamed == 1 else "captures have no job and are"
            err.print(styled("[dim]{:,} {} not compared; ingest with --job[/]", unnamed, have))
    for name, n in newest_incomplete(con, job).items():
        which = (
            "newest capture lacks ranks or is truncated, and is"
            if n == 1
            else f"newest {n:,} captures lack ranks or are truncated, and are"
        )
        err.print(styled("[yellow]{}: its {} not compared[/]", name, which), soft_wrap=True)
    if any(result.verdict.status == "REGRESSION" for result in results):
        raise typer.Exit(1)


def refuse_unknown(con: Any, job: str) -> None:
    """Exit if no trace belongs to this job, because an empty answer would imply that the job exists."""
    from pipelines.base.close_names import meant

    jobs = [name for (name,) in con.execute("SELECT DISTINCT job FROM traces WHERE job IS NOT NULL").fetchall()]
    if job not in jobs:
        raise fail(f"no job {job!r} in the lake: {meant(job, sorted(jobs)[:50]) if jobs else 'no trace has one'}")


def _table(results: list) -> Table:
    headings = ("~job", "~hardware", "~ranks", "~metric", ">base", ">new", ">effect", ">floor", ">p", ">n", "status")
    table = new_table(*headings)
    colours = {"REGRESSION": "bold red", "SUSPECT": "yellow", "INSUFFICIENT": "dim", "OK": "green"}
    for row in results:
        v = row.verdict
        sizes = (_number(v.base_median), _number(v.new_median), _percent(v.effect), _percent(v.floor))
        p = "" if v.p_value is None else f"{v.p_value:.2g}"
        table.add_row(
            *(row.job, row.hardware or "", str(row.n_ranks), row.metric),
            *(*sizes, p, f"{v.n_base}+{v.n_new}", styled(f"[{colours[v.status]}]{{}}[/]", v.status)),
        )
    return table


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:+.1f} %"
