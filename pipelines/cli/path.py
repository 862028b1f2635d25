"""`tracelake breakdown`, `tracelake critical-path`, `tracelake overlay`: answers about one trace."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from pipelines import database
from pipelines.cli.shared import (
    DEFAULT_LAKE,
    JsonOption,
    LakeOption,
    fail,
    human_us,
    local,
    out,
    print_json,
    print_parts,
    progress,
    styled,
)
from pipelines.foreign_text import visible

TraceArgument = Annotated[
    str, typer.Argument(help="A trace file, or a trace id or unique prefix of one.", metavar="TRACE")
]
ProfileOption = Annotated[
    str, typer.Option(help="default (what we believe is right) or hta (HTA 0.6.1, edge for edge).")
]
AnnotationOption = Annotated[str, typer.Option(help="Only the time under this annotation, e.g. ProfilerStep#5.")]
InstanceOption = Annotated[
    str | None, typer.Option(help="Which instances of the annotation: N or N:M, counted from 0.")
]
DependenciesOption = Annotated[
    str,
    typer.Option(
        help="Operators on a thread wait for each other (serial) or for their data (needs an execution trace)."
    ),
]
ExecutionTraceOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        parser=local,
        help="The execution trace (PyTorch, Chakra), if it is not next to TRACE.",
    ),
]
_LONG = 1_000_000  # events
SetOption = Annotated[list[str] | None, typer.Option("--set", help="Set a switch of the profile, NAME=VALUE.")]


@contextmanager
def opened(trace: str, lake: Path, *, with_arguments: bool = False) -> Iterator[tuple[Any, str]]:
    """Opens a private DuckDB connection with tables `events`, `traces` and `findings` of one trace; also yields the
    trace's id.

    `with_arguments`: also include the text of all arguments, which no model reads.
    """
    import tempfile

    with tempfile.TemporaryDirectory() as folder, database.connect() as con:
        con.execute(f"SET temp_directory = '{folder}'")
        con.execute("SET memory_limit = '500MB'")
        con.execute("SET preserve_insertion_order = false")
        if Path(trace).is_file():
            yield con, _load(con, Path(trace), Path(folder), lean=not with_arguments)
        elif Path(trace).is_dir():
            raise fail(
                f"{trace} is a folder, not a trace",
                f"Give one of its files. The path through all ranks: tracelake capture-path {trace}",
            )
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
        what = (
            "is not a file, and no trace id starts with it,"
            if not matching
            else f"is a prefix of {len(matching)} trace ids"
        )
        known = ", ".join(matching or sorted(lake.known_traces())[:10]) or "none"
        raise fail(f"{trace!r} {what} in the lake {lake.root}", f"Trace ids: {known}")
    lake.create_views(con, ["events", "findings"], matching[0])
    return matching[0]


def breakdown(
    trace: Annotated[
        str | None, typer.Argument(help="A trace file, or an id or prefix of one; all traces by default.")
    ] = None,
    profile: ProfileOption = "default",
    settings: SetOption = None,
    lake: LakeOption = DEFAULT_LAKE,
    json: JsonOption = False,
) -> None:
    """How GPU time divides into compute, other work and idle, one row per trace and device.

    `--profile hta` counts HTA's rows by HTA's classes: waits are GPU work, the last profiler step is left
    out, and all devices are one.

    Example: `tracelake breakdown rank0.json.gz`
    """
    from pipelines.breakdown import as_document, rows_of
    from pipelines.cli.query import open_analyst

    overrides = _overrides(profile, settings)
    if trace is None and profile == "default":
        rows = rows_of(open_analyst(lake, ["temporal_breakdown"]))
    else:
        rows = [row for one in _asked(trace, lake) for row in _breakdown(one, lake, profile, overrides)]
    if json:
        print_json([{**row, "profile": profile, "temporal_breakdown": as_document(row)} for row in rows])
    else:
        out.print(breakdown_table(rows, profile))


def _overrides(profile: str, settings: list[str] | None) -> dict[tuple[str, str], str]:
    """Returns the switches that `breakdown --set` gives. Exits for a switch that changes nothing in a breakdown."""
    from pipelines.critical_path.switches import switch_overrides
    from pipelines.critical_path.windows import PROFILES

    if profile not in PROFILES:
        raise fail(f"no profile {profile!r}", f"There are: {', '.join(PROFILES)}")
    given = [(name, value) for name, _, value in (text.partition("=") for text in settings or [])]
    if given and (profile != "hta" or {name for name, _ in given} != {"drop_last_step"}):
        raise fail("--set affects a breakdown only with --profile hta", "Give --set drop_last_step=false there.")
    try:
        return switch_overrides(profile, given)
    except ValueError as error:
        raise fail(str(error)) from None


def _asked(trace: str | None, folder: Path) -> list[str]:
    """Yields the requested trace, or all traces of the lake, by file. Exits if there is no lake."""
    if trace is not None:
        return [trace]
    from pipelines.cli.query import open_analyst

    with open_analyst(folder, []) as con:
        return [
            trace_id for (trace_id,) in con.execute("SELECT trace_id FROM traces ORDER BY path, trace_id").fetchall()
        ]


def _breakdown(trace: str, lake: Path, profile: str, overrides: dict[tuple[str, str], str]) -> list[dict[str, Any]]:
    from pipelines.breakdown import trace_breakdown

    with opened(trace, lake) as (con, trace_id):
        return trace_breakdown(con, trace_id, profile, overrides)


def breakdown_table(rows: list[dict[str, Any]], profile: str = "default") -> Table:
    """Temporal breakdown for people: percent of the span, times in readable units."""
    counted = "" if profile == "default" else f", as profile {profile} counts it"
    table = Table(title=f"temporal breakdown of the GPU{counted}", title_justify="left")
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
        str, typer.Argument(help="A trace file, a trace id or unique prefix of one, or a saved path.", metavar="TRACE")
    ],
    annotation: AnnotationOption = "",
    instance: InstanceOption = None,
    profile: ProfileOption = "default",
    edges: Annotated[
        Path | None,
        typer.Option(metavar="FILE", parser=local, help="Write the edges to this Parquet file, one row per edge."),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            parser=local,
            help="Save the path and its graph to this file, which you can pass instead of TRACE.",
        ),
    ] = None,
    alternatives: Annotated[
        int, typer.Option(help="Also show this many next longest paths that differ in a kernel or operator.", min=0)
    ] = 0,
    dependencies: DependenciesOption = "serial",
    execution_trace: ExecutionTraceOption = None,
    settings: SetOption = None,
    lake: LakeOption = DEFAULT_LAKE,
    json: JsonOption = False,
) -> None:
    """The longest chain of dependent work in a trace, and what bounds it.

    Example: `tracelake critical-path rank0.json.gz --annotation ProfilerStep --instance 0:1 --profile hta`
    """
    from pipelines.critical_path.answer import critical_path as compute
    from pipelines.critical_path.dependencies import NothingJoined
    from pipelines.critical_path.path_json import as_parts, json_parts
    from pipelines.critical_path.saved import looks_saved
    from pipelines.critical_path.windows import WindowNotFound
    from pipelines.models.catalog import load_catalog

    asked = AskedPath(profile, annotation, instance, dependencies, execution_trace, settings)
    if looks_saved(Path(trace)):
        if edges or save or alternatives or not asked.is_usual:
            raise fail(
                f"{trace} is a saved path: its window, profile and switches cannot be changed", "Give the trace."
            )
        title, saved = _restored(Path(trace))
        return _show(title, saved, as_parts(saved.as_json()) if json else None)
    with opened(trace, lake, with_arguments=asked.by_data) as (con, trace_id):
        request, overrides = asked.of(con, trace_id)
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
                    with_path=False,
                    on_model=lambda name: advance(1, f"computing {name}"),
                    at_once=_at_once(con, trace_id),
                )
        except (WindowNotFound, NothingJoined, OSError) as error:
            raise fail(str(error)) from None
        _show(Path(trace).name, answer, json_parts(con, load_catalog(), answer) if json else None)


def _at_once(con: Any, trace_id: str) -> int:
    """How many models run beside each other, each on one core; a long trace has one after another on all cores.

    On two cores, a model of few rows costs a fifth more CPU time and is no faster. Two models of a long trace at once
    would need too much memory.
    """
    from pipelines.sqltext import quoted

    found = con.execute(f"SELECT n_events FROM traces WHERE trace_id = {quoted(trace_id)}").fetchall()
    if not found or found[0][0] >= _LONG:
        return 1
    con.execute("SET threads = 1")
    return 2


class AskedPath:
    """The options that say which path is meant: its window, profile, switches and dependencies.

    Exits with an error if an option is unusable, before any file is read.
    """

    def __init__(
        self,
        profile: str,
        annotation: str,
        instance: str | None,
        dependencies: str,
        execution_trace: Path | None,
        settings: list[str] | None,
    ) -> None:
        from pipelines.critical_path.dependencies import MODES, SWITCH
        from pipelines.critical_path.switches import switch_overrides
        from pipelines.critical_path.windows import PROFILES, parse_instance

        if profile not in PROFILES:
            raise fail(f"no profile {profile!r}", f"There are: {', '.join(PROFILES)}")
        if dependencies not in MODES:
            raise fail(f"unknown --dependencies {dependencies!r}", f"There are: {', '.join(MODES)}")
        self.by_data = dependencies == "data"
        if execution_trace and not self.by_data:
            raise fail("--execution-trace needs --dependencies data")
        named = [(name, value) for name, _, value in (given.partition("=") for given in settings or [])]
        try:
            self.first, self.last = parse_instance(instance, annotation)
            self.overrides = switch_overrides(profile, named)
        except ValueError as error:
            raise fail(str(error)) from None
        if self.by_data:
            self.overrides[profile, SWITCH] = dependencies
        self.profile, self.annotation, self.execution_trace = profile, annotation, execution_trace
        self.is_usual = not (annotation or instance or self.overrides or profile != "default")

    def of(self, con: Any, trace_id: str) -> tuple[Any, dict[tuple[str, str], str]]:
        """Returns the window request and switch overrides for a trace in `con`; joins its execution trace if one is
        needed.
        """
        from pipelines.critical_path.windows import WindowRequest

        if self.by_data:
            _join_execution(con, trace_id, self.execution_trace)
        window = "asked" if self.annotation else "full"
        return WindowRequest(trace_id, window, self.profile, self.annotation, self.first, self.last), self.overrides


def _join_execution(con: Any, trace_id: str, given: Path | None) -> None:
    """Read the given execution trace, or the one next to the trace, and join it to the operators."""
    from pipelines.execution import load_execution
    from pipelines.execution.beside import NoExecutionTrace, execution_trace_beside
    from pipelines.paths import text_path
    from pipelines.sqltext import quoted
    from pipelines.traces import TraceRejected

    path, rank = con.execute(f"SELECT path, rank FROM traces WHERE trace_id = {quoted(trace_id)}").fetchone()
    try:
        file = given or execution_trace_beside(text_path(path), rank)
        with progress(None, f"reading {file.name}") as advance:
            load_execution(con, file, trace_id, on_bytes=advance)
    except NoExecutionTrace as error:
        raise fail(
            str(error), "Give it: --execution-trace FILE (torch.profiler.ExecutionTraceObserver records one)"
        ) from None
    except (TraceRejected, OSError) as error:
        raise fail(str(error)) from None


def _show(title: str, answer: Any, parts: Iterable[str] | None) -> None:
    """Print the answer, for programs if the parts of its JSON are given; exits with 1 where there is no path."""
    if parts is not None:
        print_parts(parts)
    elif answer.success:
        out.print(path_table(title, answer))
        print_caveats(answer)
        if answer.alternatives:
            out.print(alternatives_table(answer))
    if not answer.success:
        raise fail(_pathless(title, answer))


def _pathless(title: str, answer: Any) -> str:
    return f"{title} has no critical path: {answer.reason}"


def print_caveats(answer: Any) -> None:
    """What to know before reading the numbers above, most severe first; empty if there is nothing to say."""
    for caveat in answer.caveats:
        colour = {"error": "red", "warning": "yellow"}.get(caveat["severity"], "dim")
        out.print(styled(f"[{colour}]{{}}[/]: {{}}", caveat["severity"], caveat["detail"]), soft_wrap=True)


def _restored(file: Path) -> tuple[str, Any]:
    from pipelines.critical_path.saved import NotASavedPath, restore_path

    try:
        saved = restore_path(file)
    except (NotASavedPath, OSError) as error:
        raise fail(str(error)) from None
    return saved.title, saved.answer


def path_table(title: str, answer: Any) -> Table:
    """The critical path by boundedness, for people."""
    covered = f", {100 * answer.length_us / answer.window_us:.1f} % of the window" if answer.window_us else ""
    heading = f"critical path of {visible(title)}: {human_us(answer.length_us)}{covered}; {answer.nodes:,} nodes, {answer.edges:,} edges"
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
        f"data dependencies: {said['joined']:,} of {said['operators']:,} operators ({100 * said['share']:.1f} %) joined to "
        f"{said['execution_trace']} by {said['method']}. Optimistic: one thread runs one operator at a time."
    )


def alternatives_table(answer: Any) -> Table:
    """The next longest paths, for people: how much shorter they are, and which kernels and operators differ."""
    table = Table(title="the next longest paths", title_justify="left")
    table.add_column("shorter by", justify="right")
    table.add_column("with", overflow="fold")
    table.add_column("instead of", overflow="fold")
    for other in answer.alternatives:
        table.add_row(human_us(other["shorter_by_us"]), _most_of(other["entered"]), _most_of(other["left"]))
    return table


def _most_of(events: list[dict[str, Any]], shown: int = 3) -> Text:
    named = ((event["name"] or "(no name)", human_us(event["duration_us"])) for event in events[:shown])
    lines = [styled("{} {}", name[:60], time) for name, time in named]
    if len(events) > shown:
        more = sum(event["duration_us"] for event in events[shown:])
        lines.append(styled("and {} more, {}", len(events) - shown, human_us(more)))
    return Text("\n").join(lines)


def overlay(
    trace: TraceArgument,
    out_dir: Annotated[
        Path, typer.Option("--out", metavar="DIR", parser=local, help="Folder for the new trace.")
    ] = Path("."),
    all_events: Annotated[bool, typer.Option(help="Keep all events and mark the critical ones.")] = False,
    all_edges: Annotated[
        bool, typer.Option(help="Draw every edge of the graph, not just those of the path; needs --all-events.")
    ] = False,
    profile: ProfileOption = "default",
    annotation: AnnotationOption = "",
    instance: InstanceOption = None,
    dependencies: DependenciesOption = "serial",
    execution_trace: ExecutionTraceOption = None,
    settings: SetOption = None,
    lake: LakeOption = DEFAULT_LAKE,
    json: JsonOption = False,
) -> None:
    """Write a trace for Perfetto (ui.perfetto.dev) that shows the critical path as its own track, with arrows.

    Example: `tracelake overlay rank0.json.gz --out /tmp`
    """
    from pipelines.critical_path.answer import critical_path as compute
    from pipelines.critical_path.dependencies import NothingJoined
    from pipelines.critical_path.overlay import write_overlay
    from pipelines.critical_path.windows import WindowNotFound
    from pipelines.models.catalog import load_catalog

    if all_edges and not all_events:
        raise fail("--all-edges draws edges between events that the overlay leaves out", "Add --all-events.")
    asked = AskedPath(profile, annotation, instance, dependencies, execution_trace, settings)
    with opened(trace, lake, with_arguments=True) as (con, trace_id):
        request, overrides = asked.of(con, trace_id)
        window = request.window_id
        try:
            answer = compute(con, load_catalog(), request, overrides=overrides, with_edges=all_edges)
        except (WindowNotFound, NothingJoined) as error:
            raise fail(str(error)) from None
        if not answer.success:
            raise fail(_pathless(Path(trace).name, answer))
        source = Path(trace) if Path(trace).is_file() else None
        path = write_overlay(
            con, trace_id, source, out_dir, window_id=window, only_critical=not all_events, all_edges=all_edges
        )
    print_json({"path": str(path)}) if json else out.print(
        styled("open in https://ui.perfetto.dev: [bold]{}[/]", path), soft_wrap=True
    )
