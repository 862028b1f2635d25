"""`tracelake breakdown`: how the GPU time of traces divides."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from pipelines.base import units
from pipelines.faces.cli import caveats
from pipelines.faces.cli.console import fail, new_table, out, print_json, styled
from pipelines.faces.cli.options import DEFAULT_LAKE, JsonOption, LakeOption, ProcessOption
from pipelines.faces.cli.trace import path_options
from pipelines.faces.cli.trace.opened_trace import opened


def breakdown(
    trace: Annotated[
        str | None, typer.Argument(help="A trace file, or an id or prefix of one; all traces by default.")
    ] = None,
    profile: path_options.Profile = "default",
    settings: path_options.Settings = None,
    process: ProcessOption = None,
    lake: LakeOption = DEFAULT_LAKE,
    json: JsonOption = False,
) -> None:
    """How GPU time divides into compute, other work and idle, one row per trace and device.

    `--profile hta` counts HTA's rows by HTA's classes: waits are GPU work, the last profiler step is left
    out, and all devices are one.

    Example: `tracelake breakdown rank0.json.gz`
    """
    from pipelines.critical_path.breakdown import as_document, rows_of
    from pipelines.faces.cli.refresh_tables import open_analyst

    overrides = _overrides(profile, settings)
    if trace is None and process:
        raise fail("--process needs a file", "Give TRACE.")
    if trace is None and profile == "default":
        con = open_analyst(lake, ["temporal_breakdown"])
        caveats.note(con)
        rows = rows_of(con)
    else:
        rows = [
            row
            for requested in _requested_traces(trace, lake)
            for row in _breakdown(requested, lake, profile, overrides, process)
        ]
    if json:
        print_json([{**row, "profile": profile, "temporal_breakdown": as_document(row)} for row in rows])
    else:
        out.print(breakdown_table(rows, profile))
        for row in rows:
            if profile == "default" and row["n_earlier"]:
                out.print(earlier_note(row), soft_wrap=True)


def _overrides(profile: str, settings: list[str] | None) -> dict[tuple[str, str], str]:
    """Return the switches of `breakdown --set`. Exit if a switch does not affect a breakdown."""
    from pipelines.critical_path.graph.switches import switch_overrides

    switches = path_options.switches_of(profile, settings)
    if switches and (profile != "hta" or {name for name, _ in switches} != {"drop_last_step"}):
        raise fail("--set affects a breakdown only with --profile hta", "Give --set drop_last_step=false there.")
    return switch_overrides(profile, switches)


def _requested_traces(trace: str | None, folder: Path | str) -> list[str]:
    """Return the requested trace, or the ids of all traces in the lake, ordered by file. Exit if there is no lake."""
    if trace is not None:
        return [trace]
    from pipelines.faces.cli.refresh_tables import open_analyst

    with open_analyst(folder, []) as con:
        return [
            trace_id for (trace_id,) in con.execute("SELECT trace_id FROM traces ORDER BY path, trace_id").fetchall()
        ]


def _breakdown(
    trace: str, lake: Path | str, profile: str, overrides: dict[tuple[str, str], str], process: str | None
) -> list[dict[str, Any]]:
    from pipelines.critical_path.breakdown import trace_breakdown

    with opened(trace, lake, ["temporal_breakdown"], process=process) as (con, trace_id):
        return trace_breakdown(con, trace_id, profile, overrides)


def earlier_note(row: dict[str, Any]) -> Text:
    """Return a note on the GPU work of a row that was launched before the trace began: its time and count."""
    gpu, device = units.time(row["earlier_ns"]), row["device"]
    return styled(
        "[yellow]note:[/] {}, device {}: {} of its GPU time ({:,} activities) were launched before the trace began",
        *(Path(row["path"]).name, device, gpu, row["n_earlier"]),
    )


def breakdown_table(rows: list[dict[str, Any]], profile: str = "default") -> Table:
    """Return the temporal breakdown as a table: percent of the span, times in readable units."""
    counted = "" if profile == "default" else f", as profile {profile} counts it"
    headings = ("rank", "device", "span", "compute %", "non-compute %", "idle %", "communication", "exposed")
    title = f"temporal breakdown of the GPU{counted}"
    table = new_table("~trace", *(f">~{heading}" for heading in headings), title=title)
    for row in rows:
        table.add_row(
            Path(row["path"]).name,
            "" if row["rank"] is None else str(row["rank"]),
            "no GPU work" if row["device"] is None else str(row["device"]),
            *_measured(row),
        )
    return table


def _measured(row: dict[str, Any]) -> list[str]:
    if row["span_ns"] is None:
        return ["not measured"]
    return [
        units.time(row["span_ns"]),
        *(f"{row[name]:.2f}" for name in ("compute_percent", "non_compute_percent", "idle_percent")),
        units.time(row["communication_ns"]),
        units.time(row["exposed_communication_ns"]),
    ]
