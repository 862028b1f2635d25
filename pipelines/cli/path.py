"""`tracelake breakdown`, `tracelake critical-path`, `tracelake overlay`: answers about one trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from pipelines.cli.shared import DEFAULT_LAKE, JsonOption, LakeOption, fail, human_us, local, out, print_json, progress

TraceArgument = Annotated[
    str, typer.Argument(help="A trace file, a trace id or its unique beginning.", metavar="TRACE")
]
ProfileOption = Annotated[str, typer.Option(help="default (what we believe is right) or hta (HTA 0.6.1 to the edge).")]
AnnotationOption = Annotated[str, typer.Option(help="Only the time under this annotation, e.g. ProfilerStep#5.")]
InstanceOption = Annotated[str | None, typer.Option(help="Which instances of the annotation: N or N:M, from 0.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="Set a switch of the profile, NAME=VALUE.")]


@contextmanager
def opened(trace: str, lake: Path, *, with_arguments: bool = False) -> Iterator[tuple[Any, str]]:
    """A private DuckDB connection with tables `events`, `traces` and `findings` of one trace, and the trace's id.

    `with_arguments`: the text of all arguments is there, too, which no model reads.
    """
    import tempfile

    import duckdb

    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as con:
        con.execute(f"SET temp_directory = '{folder}'")
        con.execute("SET memory_limit = '500MB'")
        con.execute("SET preserve_insertion_order = false")
        if Path(trace).is_file():
            yield con, _load(con, Path(trace), Path(folder), lean=not with_arguments)
        else:
            yield con, _find(con, trace, lake)


def _load(con: Any, path: Path, folder: Path, lean: bool) -> str:
    from pipelines.ingest import load_trace
    from pipelines.traces import TraceRejected

    try:
        with progress(path.stat().st_size, f"reading {path.name}") as advance:
            return load_trace(con, path, on_bytes=advance, folder=folder, lean=lean).trace_id
    except TraceRejected as rejection:
        raise fail(str(rejection)) from None


def _find(con: Any, trace: str, folder: Path) -> str:
    from pipelines.lake import Lake

    lake = Lake(folder)
    matching = sorted(t for t in lake.known_traces() if t.startswith(trace))
    if len(matching) != 1:
        what = "is no file and begins no trace id" if not matching else f"begins {len(matching)} trace ids"
        known = ", ".join(matching or sorted(lake.known_traces())[:10]) or "none"
        raise fail(f"{trace!r} {what} in the lake {lake.root}", f"Trace ids: {known}")
    lake.create_views(con, ["events", "findings"], matching[0])
    return matching[0]


def breakdown(
    trace: Annotated[str | None, typer.Argument(help="A trace file, id or beginning of an id; all without it.")] = None,
    lake: LakeOption = DEFAULT_LAKE,
    json: JsonOption = False,
) -> None:
    """How the GPU's time divides into computing, other work and nothing, a row a trace and device.

    Example: `tracelake breakdown rank0.json.gz`
    """
    from pipelines.cli.query import open_analyst
    from pipelines.critical_path.windows import WindowRequest, request_windows
    from pipelines.models.catalog import load_catalog
    from pipelines.models.run import run_models

    query = (
        "SELECT t.rank, t.path, b.* FROM temporal_breakdown b JOIN traces t USING (trace_id) ORDER BY t.path, b.device"
    )
    if trace is None:
        rows = _rows(open_analyst(lake, ["temporal_breakdown"]), query)
    else:
        with opened(trace, lake) as (con, trace_id):
            request_windows(con, [WindowRequest(trace_id)])
            run_models(con, load_catalog(), ["temporal_breakdown"])
            rows = _rows(con, query)
    if json:
        print_json(rows)
    else:
        out.print(breakdown_table(rows))


def _rows(con: Any, query: str) -> list[dict[str, Any]]:
    cursor = con.execute(query)
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def breakdown_table(rows: list[dict[str, Any]]) -> Table:
    """Temporal breakdown for people: percent of the span, times in readable units."""
    table = Table(title="temporal breakdown of the GPU", title_justify="left")
    for name in ("trace", "rank", "device", "span", "compute %", "non-compute %", "idle %", "communication", "exposed"):
        table.add_column(name, justify="left" if name == "trace" else "right", overflow="fold")
    for row in rows:
        table.add_row(
            Path(row["path"]).name,
            "" if row["rank"] is None else str(row["rank"]),
            "no GPU work" if row["device"] is None else str(row["device"]),
            human_us(row["span_ns"] / 1000),
            *(f"{row[name]:.2f}" for name in ("compute_percent", "non_compute_percent", "idle_percent")),
            human_us(row["communication_ns"] / 1000),
            human_us(row["exposed_communication_ns"] / 1000),
        )
    return table


def critical_path(
    trace: Annotated[
        str, typer.Argument(help="A trace file, a trace id or its unique beginning, or a saved path.", metavar="TRACE")
    ],
    annotation: AnnotationOption = "",
    instance: InstanceOption = None,
    profile: ProfileOption = "default",
    edges: Annotated[
        Path | None, typer.Option(metavar="FILE", parser=local, help="Write one row an edge to this Parquet file.")
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=local,
            help="Write the path and its graph to this file, to be given instead of TRACE.",
        ),
    ] = None,
    alternatives: Annotated[
        int, typer.Option(help="How many of the next longest paths to show that differ in a kernel or operator.", min=0)
    ] = 0,
    dependencies: Annotated[
        str,
        typer.Option(
            help="Operators of a thread wait for each other (serial) or for their data, by an execution trace."
        ),
    ] = "serial",
    execution_trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=local,
            help="The execution trace (PyTorch, Chakra) where it does not lie beside TRACE.",
        ),
    ] = None,
    settings: SetOption = None,
    lake: LakeOption = DEFAULT_LAKE,
    json: JsonOption = False,
) -> None:
    """The longest chain of dependent work in a trace, and what it is bound by.

    Example: `tracelake critical-path rank0.json.gz --annotation ProfilerStep --instance 0:1 --profile hta`
    """
    from pipelines.critical_path.answer import critical_path as compute
    from pipelines.critical_path.dependencies import MODES, SWITCH, NothingJoined
    from pipelines.critical_path.saved import looks_saved
    from pipelines.critical_path.switches import switch_overrides
    from pipelines.critical_path.windows import PROFILES, WindowNotFound, WindowRequest, parse_instance
    from pipelines.models.catalog import load_catalog

    if profile not in PROFILES:
        raise fail(f"no profile {profile!r}", f"There are: {', '.join(PROFILES)}")
    if dependencies not in MODES:
        raise fail(f"no dependencies {dependencies!r}", f"There are: {', '.join(MODES)}")
    by_data = dependencies == "data"
    if execution_trace and not by_data:
        raise fail("--execution-trace goes with --dependencies data")
    if looks_saved(Path(trace)):
        if annotation or instance or edges or save or alternatives or settings or by_data or profile != "default":
            raise fail(
                f"{trace} is a saved path: its window, profile and switches are what they were", "Give the trace."
            )
        return _show(*_restored(Path(trace)), json=json)
    try:
        first, last = parse_instance(instance, annotation)
        overrides = switch_overrides(
            profile, ((name, value) for name, _, value in (s.partition("=") for s in settings or []))
        )
    except ValueError as error:
        raise fail(str(error)) from None
    with opened(trace, lake, with_arguments=by_data) as (con, trace_id):
        if by_data:
            _join_execution(con, trace_id, execution_trace)
            overrides[profile, SWITCH] = dependencies
        request = WindowRequest(trace_id, "full" if not annotation else "asked", profile, annotation, first, last)
        try:
            with progress(None, "computing") as advance:
                answer = compute(
                    con,
                    load_catalog(),
                    request,
                    overrides=overrides,
                    edges_file=edges,
                    save_to=save,
                    alternatives=alternatives,
                    with_path=json,
                    on_model=lambda name: advance(1, f"computing {name}"),
                )
        except (WindowNotFound, NothingJoined, OSError) as error:
            raise fail(str(error)) from None
    _show(Path(trace).name, answer, json=json)


def _join_execution(con: Any, trace_id: str, given: Path | None) -> None:
    """Read the execution trace that was given, or that lies beside the trace, and join it to the operators."""
    from pipelines.execution import load_execution
    from pipelines.execution.beside import NoExecutionTrace, execution_trace_beside
    from pipelines.sqltext import quoted
    from pipelines.traces import TraceRejected

    path, rank = con.execute(f"SELECT path, rank FROM traces WHERE trace_id = {quoted(trace_id)}").fetchone()
    try:
        file = given or execution_trace_beside(Path(path), rank)
        with progress(None, f"reading {file.name}") as advance:
            load_execution(con, file, trace_id, on_bytes=advance)
    except NoExecutionTrace as error:
        raise fail(
            str(error), "Give it: --execution-trace FILE (torch.profiler.ExecutionTraceObserver records one)"
        ) from None
    except (TraceRejected, OSError) as error:
        raise fail(str(error)) from None


def _show(title: str, answer: Any, *, json: bool) -> None:
    if json:
        print_json(answer.as_json())
    else:
        out.print(path_table(title, answer))
        if answer.alternatives:
            out.print(alternatives_table(answer))
    if not answer.success:
        raise typer.Exit(1)


def _restored(file: Path) -> tuple[str, Any]:
    from pipelines.critical_path.saved import NotASavedPath, restore_path

    try:
        saved = restore_path(file)
    except (NotASavedPath, OSError) as error:
        raise fail(str(error)) from None
    return saved.title, saved.answer


def path_table(title: str, answer: Any) -> Table:
    """The critical path by boundedness, for people."""
    if not answer.success:
        return Table(
            title=f"{title}: no critical path (the graph is empty, refused or has a cycle)", title_justify="left"
        )
    covered = f", {100 * answer.length_us / answer.window_us:.1f} % of the window" if answer.window_us else ""
    heading = f"critical path of {title}: {human_us(answer.length_us)}{covered}; {answer.nodes:,} nodes, {answer.edges:,} edges"
    table = Table(
        title=heading, title_justify="left", min_width=len(heading), caption=_by_data(answer), caption_justify="left"
    )
    table.add_column("bound by")
    table.add_column("percent", justify="right")
    table.add_column("time", justify="right")
    for bound_by, percent in answer.summary.items():
        if percent:
            table.add_row(bound_by or "(none)", f"{percent:.2f}", human_us(answer.length_us * percent / 100))
    return table


def _by_data(answer: Any) -> str | None:
    said = answer.dependencies
    if said["mode"] == "serial":
        return None
    return (
        f"dependencies by data: {said['joined']:,} of {said['operators']:,} operators ({100 * said['share']:.1f} %) joined to "
        f"{escape(said['execution_trace'])} by {said['method']}. Optimistic: one thread runs one operator at a time."
    )


def alternatives_table(answer: Any) -> Table:
    """The paths next in length, for people: how much shorter they are, and what the kernels and operators are instead."""
    table = Table(title="the longest paths beside it", title_justify="left")
    table.add_column("shorter by", justify="right")
    table.add_column("with", overflow="fold")
    table.add_column("instead of", overflow="fold")
    for other in answer.alternatives:
        table.add_row(human_us(other["shorter_by_us"]), _most_of(other["entered"]), _most_of(other["left"]))
    return table


def _most_of(events: list[dict[str, Any]], shown: int = 3) -> str:
    lines = [
        f"{escape((event['name'] or '(no name)')[:60])} {human_us(event['duration_us'])}" for event in events[:shown]
    ]
    more = sum(event["duration_us"] for event in events[shown:])
    return "\n".join([*lines, *([f"and {len(events) - shown} more, {human_us(more)}"] if len(events) > shown else [])])


def overlay(
    trace: TraceArgument,
    out_dir: Annotated[Path, typer.Option(metavar="DIR", parser=local, help="Folder for the new trace.")] = Path("."),
    all_events: Annotated[bool, typer.Option(help="Keep all events and mark the critical ones.")] = False,
    all_edges: Annotated[bool, typer.Option(help="Draw every edge of the graph, not only those of the path.")] = False,
    profile: ProfileOption = "default",
    annotation: AnnotationOption = "",
    instance: InstanceOption = None,
    lake: LakeOption = DEFAULT_LAKE,
    json: JsonOption = False,
) -> None:
    """Write a trace for Perfetto (ui.perfetto.dev) in which the critical path is a track of its own, with arrows.

    Example: `tracelake overlay rank0.json.gz --out-dir /tmp`
    """
    from pipelines.critical_path.answer import critical_path as compute
    from pipelines.critical_path.overlay import write_overlay
    from pipelines.critical_path.windows import WindowNotFound, WindowRequest, parse_instance
    from pipelines.models.catalog import load_catalog

    with opened(trace, lake, with_arguments=True) as (con, trace_id):
        window = "full" if not annotation else "asked"
        try:
            first, last = parse_instance(instance, annotation)
            compute(
                con,
                load_catalog(),
                WindowRequest(trace_id, window, profile, annotation, first, last),
                with_edges=all_edges,
            )
        except (WindowNotFound, ValueError) as error:
            raise fail(str(error)) from None
        source = Path(trace) if Path(trace).is_file() else None
        path = write_overlay(
            con, trace_id, source, out_dir, window_id=window, only_critical=not all_events, all_edges=all_edges
        )
    print_json({"path": str(path)}) if json else out.print(f"open in https://ui.perfetto.dev: [bold]{path}[/]")
