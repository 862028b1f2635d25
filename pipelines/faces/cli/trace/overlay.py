"""`tracelake overlay`: a trace for Perfetto with its critical path."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.faces.cli.console import (
    DEFAULT_LAKE,
    AnyLakeOption,
    JsonOption,
    err,
    fail,
    local,
    out,
    print_json,
    styled,
)
from pipelines.faces.cli.trace.asked_path import (
    AnnotationOption,
    AskedPath,
    DependenciesOption,
    ExecutionTraceOption,
    InstanceOption,
    ProfileOption,
    SetOption,
)
from pipelines.faces.cli.trace.opened_trace import ProcessOption, TraceArgument, opened
from pipelines.faces.cli.trace.path import pathless


def overlay(
    trace: TraceArgument,
    out_dir: Annotated[
        Path, typer.Option("--out", metavar="DIR", parser=local, help="Folder for the new trace.")
    ] = Path("."),
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
    profile: ProfileOption = "default",
    annotation: AnnotationOption = "",
    instance: InstanceOption = None,
    dependencies: DependenciesOption = "serial",
    execution_trace: ExecutionTraceOption = None,
    settings: SetOption = None,
    process: ProcessOption = None,
    lake: AnyLakeOption = DEFAULT_LAKE,
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
    path_options = AskedPath(profile, annotation, instance, dependencies, execution_trace, settings)
    tables = (*PATH_TABLES, *(COUNTED if counters else ()))
    with opened(trace, lake, tables, with_arguments=True, process=process) as (con, trace_id):
        request, overrides = path_options.of(con, trace_id)
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
        err.print(styled("left out: {:,} events of the trace's own arrows, which lack a slice at one end", left_out[0]))
    out.print(styled("open in https://ui.perfetto.dev: [bold]{}[/]", path), soft_wrap=True)
