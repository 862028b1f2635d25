"""The command line: `tracelake`. One file per group of commands; this one puts them together."""

from __future__ import annotations

from typing import Annotated

import typer

from pipelines import __version__
from pipelines.cli import (
    capture_path,
    check,
    compare,
    demo,
    flame,
    flight_recorder,
    forget,
    ingest,
    path,
    query,
    regressions,
    report,
    retention,
    schedule,
    status,
    straggler,
    stragglers,
    whatif,
)
from pipelines.cli.commands import OLD_COMMANDS, Command, Commands

app = typer.Typer(
    name="tracelake",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"tracelake {__version__}")
        raise typer.Exit


_COMMANDS = {
    "ingest": ingest.ingest,
    "sql": query.sql,
    "tables": query.tables,
    "compare": compare.compare,
    "breakdown": path.breakdown,
    "critical-path": path.critical_path,
    "overlay": path.overlay,
    "what-if": whatif.what_if,
    "capture-path": capture_path.capture_path,
    "stragglers": stragglers.stragglers,
    "op-job": straggler.op_job,
    "report": report.report,
    "gantt": schedule.gantt,
    "flight-recorder": flight_recorder.flight_recorder,
    "flame": flame.flame,
    "materialize": query.materialize,
    "regressions": regressions.regressions,
    "retention": retention.retention,
    "status": status.status,
    "check": check.check,
    "forget": forget.forget,
    "demo": demo.demo,
    "ui": demo.ui,
}


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """A columnar lakehouse for PyTorch/Kineto GPU traces: query everything in SQL."""


for _name, _function in _COMMANDS.items():
    app.command(_name, cls=Command)(_function)
for _old, _name in OLD_COMMANDS.items():
    app.command(_old, cls=Command, hidden=True)(_COMMANDS[_name])


if __name__ == "__main__":
    app()
