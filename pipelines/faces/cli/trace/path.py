"""`tracelake critical-path`: the longest chain of dependent work in a trace."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from pipelines.faces.cli import caveats
from pipelines.faces.cli.console import fail, out, print_parts
from pipelines.faces.cli.options import DEFAULT_LAKE, JsonOption, LakeOption, ProcessOption, new_file, path_option
from pipelines.faces.cli.progress_steps import model_progress
from pipelines.faces.cli.trace import path_options
from pipelines.faces.cli.trace.opened_trace import opened, use_memory
from pipelines.faces.cli.trace.path_tables import alternatives_table, owners_table, path_table, print_caveats


def critical_path(
    trace: Annotated[
        str,
        typer.Argument(
            help="A trace file, or of a trace in the lake its file name, id or a unique prefix of it; or a saved path.",
            metavar="TRACE",
        ),
    ],
    annotation: path_options.Annotation = "",
    instance: path_options.Instance = None,
    profile: path_options.Profile = "default",
    edges: Annotated[
        Path | None, path_option("Write the edges to this Parquet file, one row per edge.", parser=new_file)
    ] = None,
    save: Annotated[
        Path | None, path_option("Save the path and its graph to this file, which you can pass instead of TRACE.")
    ] = None,
    alternatives: Annotated[
        int, typer.Option(help="Also show this many next longest paths that differ in a kernel or operator.", min=0)
    ] = 0,
    top: Annotated[int, typer.Option(help="Name this many owners of the most time on the path.", min=0)] = 10,
    dependencies: path_options.Dependencies = "serial",
    execution_trace: path_options.ExecutionTrace = None,
    settings: path_options.Settings = None,
    process: ProcessOption = None,
    lake: LakeOption = DEFAULT_LAKE,
    json: JsonOption = False,
) -> None:
    """The longest chain of dependent work in a trace, and what bounds it.

    Example: `tracelake critical-path rank0.json.gz --annotation ProfilerStep --instance 0:1 --profile hta`
    """
    from pipelines.critical_path.answer.answer import critical_path as compute
    from pipelines.critical_path.answer.path_names import largest_owners
    from pipelines.critical_path.answer.saved_path import looks_saved, restore_path
    from pipelines.critical_path.graph.stored_window import GRAPH_TABLES, PATH_TABLES
    from pipelines.models.catalog import load_catalog

    requested = path_options.RequestedPath(profile, annotation, instance, dependencies, execution_trace, settings)
    if looks_saved(Path(trace)):
        if edges or save or alternatives or process or not requested.is_usual:
            raise fail(
                f"{trace} is a saved path: its window, profile and switches cannot be changed", "Give the trace."
            )
        saved = restore_path(Path(trace), ("path",))
        caveats.note_saved(saved.meta)
        answer = saved.answer
        if json:
            from pipelines.critical_path.answer.path_json import as_parts

            answer = replace(answer, caveats=caveats.in_words(answer.caveats))
            return _show_json(saved.title, answer, as_parts(answer.as_json()))
        from pipelines.faces.notebook.saved_tables import path_tables

        with path_tables(saved) as con:
            return _show(saved.title, answer, largest_owners(con, load_catalog(), top))
    tables = (*PATH_TABLES, *(("longest_path",) if edges else ()), *(GRAPH_TABLES if save else ()))
    with opened(trace, lake, tables, with_arguments=requested.by_data, process=process) as (con, trace_id):
        request, overrides = requested.request_for(con, trace_id)
        catalog = load_catalog()
        with model_progress(catalog, ("critical_path_summary", "critical_path_caveats")) as on_model:
            answer = compute(
                con,
                load_catalog(),
                request,
                overrides=overrides,
                edges_file=edges,
                save_to=save,
                alternatives=alternatives,
                with_path=False,
                with_graph=False,
                on_model=on_model,
                at_once=use_memory(con, trace_id),
            )
        title = Path(trace).name + requested.named_window
        if json:
            from pipelines.critical_path.answer.path_json import json_parts

            answer = replace(answer, caveats=caveats.in_words(answer.caveats))
            return _show_json(title, answer, json_parts(con, load_catalog(), answer))
        _show(title, answer, largest_owners(con, load_catalog(), top))


def _show_json(title: str, answer: Any, parts: Iterable[str]) -> None:
    """Print the answer as JSON. Exit with 1 if there is no path."""
    print_parts(parts)
    if not answer.success:
        raise fail(pathless(title, answer))


def _show(title: str, answer: Any, owners: list[dict[str, Any]]) -> None:
    """Print the answer as tables, after the caveats that are more than information. Exit with 1 if there is no path."""
    if not answer.success:
        raise fail(pathless(title, answer))
    print_caveats(caveat for caveat in answer.caveats if caveat["severity"] != "info")
    if owners:
        out.print(owners_table(title, answer, owners))
    out.print(path_table("" if owners else title, answer))
    print_caveats(caveat for caveat in answer.caveats if caveat["severity"] == "info")
    if answer.alternatives:
        out.print(alternatives_table(answer))


def pathless(title: str, answer: Any) -> str:
    """Return the error message for a trace without a critical path."""
    return f"{title} has no critical path: {answer.reason}"
