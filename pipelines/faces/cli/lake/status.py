"""`tracelake status`: the health of the lake."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from pipelines.base.units import counted
from pipelines.faces.cli.console import err, out, print_json
from pipelines.faces.cli.options import DEFAULT_LAKE, JsonOption, LakeOption, local

if TYPE_CHECKING:
    from pipelines.lake.status import Status

Inbox = Annotated[
    Path | None,
    typer.Option(metavar="FOLDER", envvar="TRACELAKE_INBOX", parser=local, help="The watched folder, to look for waiting files."),
]  # fmt: skip


def status(
    context: typer.Context,
    lake: LakeOption = DEFAULT_LAKE,
    inbox: Inbox = None,
    max_lag: Annotated[float, typer.Option(help="How many minutes a file may wait in the watched folder.", min=0)] = 60,
    max_backlog: Annotated[
        int | None, typer.Option(help="How many files may wait; any number by default.", min=0)
    ] = None,
    max_rejected: Annotated[
        int | None,
        typer.Option(
            help="How many files may be rejected in the last day; any number by default, with a warning.", min=0
        ),
    ] = None,
    max_failed: Annotated[
        int, typer.Option(help="How many jobs' newest runs, plus models on traces, may have failed.", min=0)
    ] = 0,
    max_idle: Annotated[
        float | None,
        typer.Option(help="How many minutes may pass since the last commit; any number by default.", min=0),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Treat warnings as errors.")] = False,
    min_free: Annotated[float, typer.Option(help="Percent of the disk that must be free.", min=0, max=100)] = 5,
    json: JsonOption = False,
) -> None:
    """Report the lake's health: last commit, waiting files, rejected files, failed runs, disk. For cron and probes.

    Exits with 1 if something is wrong, and says what on stderr. Writes nothing and reads no events.

    Example: `tracelake status --lake /data/lake --inbox /fleet/traces --max-lag 30`
    """
    from pipelines.lake.status import Limits
    from pipelines.runs.store import open_store

    idle = None if max_idle is None else max_idle * 60
    max_rejected = 0 if strict and max_rejected is None else max_rejected
    limits = Limits(max_lag * 60, max_backlog, max_rejected, max_failed, idle, min_free)
    store = open_store(lake)
    source = context.get_parameter_source("inbox")
    if store.lake is None and source is not None and source.name == "ENVIRONMENT":
        inbox = None  # the variable is for Dagster's sensor; only an inbox that the user names is an error
    report = store.status(inbox, limits)
    if json:
        print_json(report.as_json())
    else:
        table = Table(show_header=False)
        for name, value in _lines(report):
            table.add_row(name, value)
        out.print(table)
    for sentence in report.warnings:
        err.line("[yellow]warning:[/] {}", sentence)
    for sentence in report.wrong:
        err.line("[bold red]wrong:[/] {}", sentence)
    if report.wrong:
        raise typer.Exit(1)


def _lines(report: Status) -> list[tuple[str, str]]:
    lines = [("lake", report.lake), ("last commit", report.last_commit or "none")]
    if report.batches is not None and report.traces is not None:
        lines.append(("batches", f"{report.batches:,} with {counted(report.traces, 'trace')}"))
    if report.rejected_last_day is not None:
        lines.append(("rejected in the last day", f"{report.rejected_last_day:,}"))
    if report.is_on_disk:
        lines.append(("newest runs that failed", ", ".join(report.failed_runs) or "none"))
    lines.append(("models that failed", ", ".join(report.failed_models) or "none"))
    if report.published is not None:
        lines.append(("analyst.duckdb", report.published))
    if report.lake_bytes is not None and report.free_bytes is not None:
        sizes = f"{report.lake_bytes / 1e9:,.2f} GB, of that .dagster {(report.dagster_bytes or 0) / 1e9:,.2f} GB"
        lines.append(("disk", f"{sizes}; free {report.free_bytes / 1e9:,.1f} GB ({report.free_percent:g} %)"))
    if report.inbox:
        lag = "" if report.lag_seconds is None else f", the oldest for {report.lag_seconds:,.0f} s"
        lines += [("watched folder", report.inbox), ("waiting files", f"{report.backlog}{lag}")]
    return lines + [("skipped", f"{path} {why}") for path, why in report.passed_over.items()]
