"""The command line: `tracelake`. One file a command group; this one puts them together."""

from __future__ import annotations

import typer

from pipelines.cli import (
    capture_path,
    compare,
    demo,
    flame,
    flight_recorder,
    ingest,
    path,
    query,
    regressions,
    report,
    retention,
    schedule,
    straggler,
    stragglers,
    whatif,
)

app = typer.Typer(
    name="tracelake",
    help="A columnar lakehouse for PyTorch/Kineto GPU traces: every question is SQL.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)

app.command("ingest")(ingest.ingest)
app.command("sql")(query.sql)
app.command("tables")(query.tables)
app.command("compare")(compare.compare)
app.command("breakdown")(path.breakdown)
app.command("critical-path")(path.critical_path)
app.command("overlay")(path.overlay)
app.command("what-if")(whatif.what_if)
app.command("capture-path")(capture_path.capture_path)
app.command("stragglers")(stragglers.stragglers)
app.command("straggler-what-if")(straggler.straggler_what_if)
app.command("report")(report.report)
app.command("gantt")(schedule.gantt)
app.command("flight-recorder")(flight_recorder.flight_recorder)
app.command("flame")(flame.flame)
app.command("materialize")(query.materialize)
app.command("regressions")(regressions.regressions)
app.command("retention")(retention.retention)
app.command("demo")(demo.demo)
app.command("ui")(demo.ui)


if __name__ == "__main__":
    app()
