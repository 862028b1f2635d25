"""`tracelake overlay`: a trace for Perfetto with its critical path."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.faces.cli.console import err, fail, out, print_json, styled
from pipelines.faces.cli.options import DEFAULT_LAKE, JsonOption, LakeOption, ProcessOption, TraceArgument, path_option
from pipelines.faces.cli.trace import path_options
from pipelines.faces.cli.trace.opened_trace import opened
from pipelines.faces.cli.trace.path import pathless


def overlay(
    trace: TraceArgument,
    out_dir: Annotated[Path, path_option("Folder for the new trace.", "DIR", "--out")] = Path("."),
    all_events: Annotated[
        bool,
        typer.Option(
            "--all-events/--only-critical",
            help="Keep all events and mark the critical ones, or keep only the path's, annotations and Python frames.",
        ),
    ] = True,
    all_edges: Annotated[
        bool, typer.Option(help="Draw every edge of the graph, not just those of the path; not with --only-critical.")
    ] = False,
    counters: Annotated[
        bool, typer.Option(help="Draw queue lengths, memory, and the bandwidth of collectives and copies as counters.")
    ] = True,
    profile: path_options.Profile = "default",
    annotation: path_options.Annotation = "",
    instance: path_options.Instance = None,
    dependencies: path_options.Dependencies = "serial",
    execution_trace: path_options.ExecutionTrace = None,
    settings: path_options.Settings = None,
    process: ProcessOption = None,
    lake: LakeOption = DEFAULT_LAKE,
    json: JsonOption = False,
) -> None:
    """Write a trace for Perfetto (ui.perfetto.dev) that shows the critical path as its own track, with arrows.

    The trace's own arrows are kept if there is a slice at both ends.

    Example: `tracelake overlay rank0.json.gz --out /tmp`
    """
    from pipelines.critical_path.answer.answer import critical_path as compute
    from pipelines.critical_path.graph.stored_window import PATH_TABLES, used
    from pipelines.faces.drawings.counter_tracks import TABLES as COUNTED
    from pipelines.faces.drawings.overlay import write_overlay
    from pipelines.models.catalog import load_catalog
    from pipelines.models.run import run_models

    if all_edges and not all_events:
        raise fail("--all-edges draws edges between events that the overlay leaves out", "Leave out --only-critical.")
    requested = path_options.RequestedPath(profile, annotation, instance, dependencies, execution_trace, settings)
    tables = (*PATH_TABLES, *(COUNTED if counters else ()))
    with opened(trace, lake, tables, with_arguments=True, process=process) as (con, trace_id):
        request, overrides = requested.request_for(con, trace_id)
        window = request.window_id
        answer = compute(con, load_catalog(), request, overrides=overrides, with_edges=all_edges)
        if not answer.success:
            raise fail(pathless(Path(trace).name, answer))
        if counters:
            run_models(con, load_catalog(), COUNTED, used(con))
        left_out: list[int] = []
        source = Path(trace) if Path(trace).is_file() else None
        path = write_overlay(
            con,
            trace_id,
            source,
            out_dir,
            window_id=window,
            only_critical=not all_events,
            all_edges=all_edges,
            on_left_out=left_out.append,
        )
    if json:
        print_json({"path": str(path), "left_out_arrow_ends": left_out[0]})
        return
    if left_out[0]:
        err.print(styled("skipped {:,} events of the trace's own arrows that have no slice at one end", left_out[0]))
    out.line("open in https://ui.perfetto.dev: [bold]{}[/]", path)
