"""`tracelake gantt`: a picture of a schedule's run.

Also the comparison of engines that `tracelake demo` runs and prints.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pipelines.base import units
from pipelines.faces.cli.console import fail, new_table, out
from pipelines.faces.cli.options import DEFAULT_LAKE, LakeOption, out_option


def gantt(
    run: Annotated[str, typer.Argument(help="A run's id or its unique beginning: SELECT run_id FROM schedule_runs.")],
    out_file: Annotated[Path, out_option("The SVG to write.")] = Path("schedule.svg"),
    iterations: Annotated[
        int, typer.Option(help="How many iterations to draw, from the middle of the run.", min=1)
    ] = 8,
    lake: LakeOption = DEFAULT_LAKE,
) -> None:
    """Draw a run of a schedule: one lane per stream, one box per task, hatched while the stream is idle.

    Example: `tracelake gantt 3f2a --out schedule.svg`
    """
    from pipelines.faces.cli.refresh_tables import open_analyst
    from pipelines.faces.schedule_picture import picture_of_run
    from pipelines.models.sqltext import quoted

    con = open_analyst(lake, [])
    matches = con.execute(f"SELECT run_id FROM schedule_runs WHERE starts_with(run_id, {quoted(run)})").fetchall()
    if len(matches) != 1:
        run_ids = ", ".join(row[0] for row in con.execute("SELECT run_id FROM schedule_runs").fetchall()[:10]) or "none"
        raise fail(f"{run!r} matches {len(matches)} runs in the lake {lake}", f"Runs: {run_ids}")
    out_file.write_text(picture_of_run(con, matches[0][0], iterations), encoding="utf-8")
    out.line("open in a browser: [bold]{}[/]", out_file)


def run_simulated(lake: Any, plan: str) -> None:
    """Compare all engines on the simulated device, without torch or a GPU, and ingest the runs."""
    from pipelines.readers.ingest import ingest

    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pipelines.schedule.run", "--plan", plan, "--compare", "--rounds", "1"]
        command += ["--device", "simulated", "--iterations", "40", "--out", folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise fail(f"schedule {plan}: {(done.stderr or done.stdout).strip()[-500:]}", lines=True)
        ingest([folder], lake)


def compared_table(con: Any) -> Table:
    """Return a table of the latest run of each plan and engine, slowest first, with its verdict or its speed-up."""
    from pipelines.models.questions import rows_of_question

    title = "schedules: one plan, three engines"
    table = new_table("plan", "engine", "device", "period", "ideal", "set by", "efficiency", "~verdict", title=title)
    for row in rows_of_question(con, "schedule-runs"):
        table.add_row(
            *(row[name] for name in ("plan", "engine", "device")),
            *("" if row[name] is None else units.time(row[name]) for name in ("period_ns", "ideal_ns")),
            row["bound_by"] or "",
            "" if row["efficiency"] is None else f"{100 * row['efficiency']:.1f} %",
            row["verdict"] or ("" if row["speedup"] is None else f"{row['speedup']:.2f} times as fast as a serial run"),
        )
    return table
