"""`tracelake what-if`: a trace's critical path if something in it were faster or slower."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from pipelines.base import units
from pipelines.base.errors import WrongValue
from pipelines.base.foreign_text import visible
from pipelines.base.kernel_names import short_name, short_names
from pipelines.critical_path.whatif.scenario import GROUPS, SHORT
from pipelines.faces import words
from pipelines.faces.advice import REPLAY_INPUTS
from pipelines.faces.cli import caveats
from pipelines.faces.cli.console import err, fail, json_text, new_table, out, print_json, print_parts, styled
from pipelines.faces.cli.fleet.opened_capture import is_capture_id, is_several
from pipelines.faces.cli.narrow_tables import Kind, fitted_table
from pipelines.faces.cli.options import DEFAULT_LAKE, JsonOption, LakeOption, ProcessOption, path_option
from pipelines.faces.cli.progress_steps import model_progress
from pipelines.faces.cli.trace import path_options
from pipelines.faces.cli.trace.graph_inputs import AnnotationsOption, CaptureOption, opened_with_graphs
from pipelines.faces.cli.trace.opened_trace import opened
from pipelines.faces.cli.trace.path_tables import tell_inferred

if TYPE_CHECKING:
    from pipelines.critical_path.whatif.before_after import Comparison
    from pipelines.critical_path.whatif.owners import Owners
    from pipelines.critical_path.whatif.scenario import Scenario
    from pipelines.critical_path.whatif.sensitivity import Family
    from pipelines.critical_path.whatif.window import Window

_SHOWN = 15
_NAME = 60
_CLASSES = {"CPU": "operators and calls", "HOST": "host outside operators", "GAP": "delay"}
"""Display names of the classes that are not GPU work."""


def what_if(
    trace: Annotated[
        str,
        typer.Argument(
            help="A trace file, the folder of a capture, an id of either or unique prefix of one, the file name of a trace in the lake, "
            "or a saved path.",
            metavar="TRACE",
        ),
    ],
    scale: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN=FACTOR",
            help="Multiply the time of what PATTERN names (* and ? match any text and character). An operator, annotation, Python "
            "function or call: with all inside it, GPU work that it launches too; self:NAME: its own host time. GPU work: gpu:NAME (launched in "
            "it), kernel:NAME, op:aten::mm, module:Linear_*, layer:3 (of graph replays), stream:7, class:COMMUNICATION. cause:NAME: as in "
            "why. eager: operators, launches and short Python between them. edge:KERNEL_LAUNCH_DELAY, rank:3, rank:3:NAME (in a folder), or "
            f"{', '.join(dict.fromkeys([*SHORT, *GROUPS]))}.",
        ),
    ] = None,
    remove: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Delete it, with all inside it and the waits for it; wait:NAME, wait:*: calls inside NAME, or all, no longer wait for the GPU.",
        ),
    ] = None,
    ahead: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATTERN",
            help="Overlap it with the rest: the window takes as long as without it, or as long as it takes itself, whichever is longer.",
        ),
    ] = None,
    perfect_overlap: Annotated[
        bool, typer.Option("--perfect-overlap", help="Hide communication behind as much computation as there is.")
    ] = False,
    scenario: Annotated[
        Path | None,
        path_option("Scenarios from a TOML file: name, scale, remove, ahead, perfect_overlap.", "FILE.toml"),
    ] = None,
    sensitivity: Annotated[
        bool,
        typer.Option(
            "--sensitivity",
            help="Rank kernels, operators, gaps and waits by what the window gains if they take 10, 50 or 100 % less time.",
        ),
    ] = False,
    redraw: Annotated[
        Path | None, path_option("Write the trace with every event at its new time, for Perfetto.", "DIR")
    ] = None,
    without_profiler: Annotated[
        bool,
        typer.Option(
            "--without-profiler",
            help="First subtract the profiler's own cost, as `why` does if it is more than a tenth of the window.",
        ),
    ] = False,
    untraced: path_options.Untraced = "",
    annotation: path_options.Annotation = "",
    instance: path_options.Instance = None,
    profile: path_options.Profile = "default",
    dependencies: path_options.Dependencies = "serial",
    execution_trace: path_options.ExecutionTrace = None,
    settings: path_options.Settings = None,
    capture: CaptureOption = None,
    annotations: AnnotationsOption = None,
    process: ProcessOption = None,
    lake: LakeOption = DEFAULT_LAKE,
    json: JsonOption = False,
) -> None:
    """The critical path if something were faster, slower, removed or overlapped with the rest, compared with the actual path.

    A name includes everything inside it: --remove 'enumerate(DataLoader)*' deletes its host time, its calls and their waits, and the
    GPU work that it launches. The order of the rest stays: each piece begins when the last of what it waited for has ended, on its
    stream, its thread or another one. A saved path (`critical-path --save`) is answered from its
    file, without the trace. The folder of a capture, or a file of several processes, is answered for all its ranks together: each waits for the others in its
    collectives, and `rank:2:NAME` names something on one of them.

    Example: `tracelake what-if rank0.json.gz --scale 'kernel:*gemm*=0.5' --remove wait:aten::item`
    """
    from pipelines.critical_path.answer.saved_path import looks_saved
    from pipelines.critical_path.causes.of_window import causes_of
    from pipelines.critical_path.whatif.before_after import what_if as compare
    from pipelines.critical_path.whatif.owners import unselected
    from pipelines.critical_path.whatif.scenario import of_options
    from pipelines.critical_path.whatif.sensitivity import rank_families
    from pipelines.critical_path.whatif.targets import names_causes, owner_kinds
    from pipelines.faces.subject import catalog_of

    requested = path_options.RequestedPath(profile, annotation, instance, dependencies, execution_trace, settings)
    scenarios = _scenarios(scenario, of_options(scale or [], remove or [], perfect_overlap, ahead or []))
    _check(scenarios, sensitivity, redraw)
    _check_saved(trace, requested, redraw)
    if Path(trace).is_dir() or (not process and is_several(trace)) or is_capture_id(trace, lake):
        of_a_rank = sensitivity or redraw or process or without_profiler or untraced or capture or annotations
        if of_a_rank or not requested.is_usual:
            source = "a file of several processes" if Path(trace).is_file() else "a folder"
            source = source if Path(trace).exists() else "the id of a capture"
            rank = "one of its processes (--process PID)" if Path(trace).is_file() else "the trace of one rank"
            raise fail(
                f"{source} is answered for all ranks of the capture together",
                f"For --sensitivity, --redraw or path options, pass {rank}.",
            )
        from pipelines.faces.cli.fleet.whatif_capture import capture_what_if

        return capture_what_if(trace, lake, scenarios, json)
    by_owner = sorted({kind for variant in scenarios for kind in owner_kinds(variant)})
    with _window(trace, lake, requested, redraw is not None, process) as (con, window):
        if by_owner and not looks_saved(Path(trace)):
            window = replace(window, owners=_owners(trace, lake, capture, annotations, process))
        if any(map(names_causes, scenarios)) and con is not None:
            window = replace(window, causes=causes_of(con, catalog_of(trace, lake), window))
        recorded = window
        if without_profiler or untraced:
            window = _without_profiler(con, trace, lake, window, path_options.untraced_ns(untraced))
        unknown_percents = _unknown_percent(window, by_owner)
        families = rank_families(window, with_cpu=True) if sensitivity else []
        all_caveats = _caveats_of_all(window) if sensitivity else []
        answers = compare(window, scenarios)  # a generator, because each answer contains arrays of the graph's size
        if redraw and con is not None:
            from pipelines.faces.drawings.redraw import write_redrawn

            answers = [next(answers)]
            # Without the profiler, the weights are smaller than the recorded times.
            path = replace(answers[0].after, window=recorded)
            drawn = write_redrawn(con, path, Path(trace) if Path(trace).is_file() else None, redraw)
            # on stderr, because stdout has only the answer
            err.line("open in https://ui.perfetto.dev: [bold]{}[/]", drawn)
        if sensitivity and json:
            ranked = [family.as_json() for family in families]
            return print_json({"families": ranked, "inferred_waits": window.n_inferred, "caveats": all_caveats})
        if json:
            return _print_as_json(answers, scenarios, unknown_percents)
        tables = [table for answer in answers for table in comparison_tables(trace, answer)]
    for caveat in all_caveats:
        out.print(styled("[yellow]caveat:[/] {}", caveat["detail"]))
    for table in [sensitivity_table(families)] if sensitivity else tables:
        out.print(table)
    for kind, percent in unknown_percents.items():
        if percent:
            where = f"of the trace's GPU time {unselected(kind)}. What would identify it: {REPLAY_INPUTS}"
            out.print(styled("[yellow]caveat[/]: {:.1f} % {}", percent, where))
    tell_inferred(window.n_inferred)


@contextmanager
def _window(
    trace: str, lake: Path | str, requested: path_options.RequestedPath, with_arguments: bool, process: str | None
) -> Iterator[tuple[Any, Window]]:
    """Yield the connection that contains the trace, or None for a saved path, and the window."""
    from pipelines.critical_path.answer.saved_path import looks_saved, restore_path
    from pipelines.critical_path.whatif.window import WINDOW_TABLES, load, of_saved
    from pipelines.models.catalog import load_catalog

    if looks_saved(Path(trace)):
        saved = restore_path(Path(trace), ("edges", "events"))
        caveats.note_saved(saved.meta)
        yield None, of_saved(saved)
        return
    with opened(trace, lake, WINDOW_TABLES, with_arguments=with_arguments, process=process) as (con, trace_id):
        request, overrides = requested.request_for(con, trace_id)
        catalog = load_catalog()
        with model_progress(catalog, ("_edges",)) as on_model:
            window = load(con, catalog, request, overrides=overrides, on_model=on_model)
        yield con, window


def _without_profiler(con: Any, trace: str, lake: Path | str, window: Window, untraced: int | None) -> Window:
    from pipelines.critical_path.causes.of_window import without_profiler_of
    from pipelines.faces.subject import catalog_of

    if con is None:
        raise WrongValue(f"{trace} is a saved path, which does not record the profiler's cost. Pass the trace.")
    return without_profiler_of(con, catalog_of(trace, lake), window, untraced)


def _owners(trace: str, lake: Path | str, capture: str | None, annotations: Path | None, process: str | None) -> Owners:
    """Return the operators, modules and layers that the GPU work of the trace belongs to.

    The trace is re-read with all arguments, which the path does not need.
    """
    from pipelines.critical_path.whatif.owners import owners_of
    from pipelines.faces.subject import catalog_of

    with opened_with_graphs(trace, lake, capture, annotations, process) as (con, trace_id, _):
        return owners_of(con, catalog_of(trace, lake), trace_id)


def _check_saved(trace: str, requested: path_options.RequestedPath, redraw: Path | None) -> None:
    """Raise WrongValue if the trace is a saved path that cannot answer the options."""
    from pipelines.critical_path.answer.saved_path import looks_saved

    if not looks_saved(Path(trace)):
        return
    if not requested.is_usual:
        raise WrongValue(
            f"{trace} is a saved path: its window, profile and switches cannot be changed. Give the trace."
        )
    if redraw:
        raise WrongValue(
            f"--redraw draws the whole trace, and the saved path {trace} contains only its graph. Pass the trace."
        )


def _scenarios(file: Path | None, options: Scenario) -> list[Scenario]:
    """Return the scenarios of the file, each with the options added, or only the options without a file.

    Raise ScenarioError if the file is invalid.
    """
    from pipelines.critical_path.whatif.scenario import read_scenarios

    if file is None:
        return [options] if options else []
    return [read.with_more(options) for read in read_scenarios(file)]


def _check(scenarios: list[Scenario], sensitivity: bool, redraw: Path | None) -> None:
    """Raise WrongValue if the options contradict each other or change nothing."""
    if sensitivity and (scenarios or redraw):
        raise WrongValue("--sensitivity ranks the unchanged trace: use it without a scenario and without --redraw")
    if not sensitivity and not scenarios:
        raise WrongValue(
            "nothing to change: give --scale, --remove, --ahead, --perfect-overlap, --scenario or --sensitivity"
        )
    if redraw and len(scenarios) != 1:
        raise WrongValue(f"--redraw draws one scenario, and there are {len(scenarios)}")


def _caveats_of_all(window: Window) -> list[dict[str, Any]]:
    """Return the window's caveats.

    They are about unrecorded waits, long gaps on the path where events may be missing, and overlapping streams.
    """
    from pipelines.critical_path.whatif.before_after import Path as LongestPath
    from pipelines.critical_path.whatif.before_after import Weights
    from pipelines.critical_path.whatif.shared_gpu import overlapping_streams
    from pipelines.critical_path.whatif.trace_gaps import unseen_waits

    path = LongestPath.under(window, Weights(window.graph.weight, window.duration))
    changed = window.kind >= 0  # all edges that belong to a family
    return [*unseen_waits(window), *path.idle_gaps, *overlapping_streams(window, changed)]


def _unknown_percent(window: Window, kinds: list[str]) -> dict[str, float]:
    """Return by kind (operators, modules or layers) the percent of GPU time in graph replays that no target can select."""
    if window.owners is None:
        return {}
    return {kind: window.owners.unknown_percent[kind] for kind in kinds}


def _print_as_json(
    answers: Iterable[Comparison], scenarios: list[Scenario], unknown_percents: dict[str, float]
) -> None:
    """Print one object for a single scenario, or a list of objects with names. Print nothing if a scenario fails.

    A temporary file buffers the output, because the objects of a hundred scenarios may name millions of events.
    """
    with TemporaryFile("w+") as spool:
        for n, answer in enumerate(answers):
            document = answer.as_json() | {
                f"replays_without_{kind}_percent": percent for kind, percent in unknown_percents.items()
            }
            named = document if len(scenarios) == 1 else {"name": answer.scenario.name, **document}
            spool.write(f"{', ' if n else ''}{json_text(named)}")
        spool.seek(0)
        read = iter(partial(spool.read, 1 << 20), "")
        print_parts(read if len(scenarios) == 1 else chain("[", read, "]"))


def comparison_tables(trace: str, answer: Comparison) -> list[Any]:
    """Return the caveats of the gain, the path before and after by boundedness, and the events that entered and left it."""
    before, after = answer.before, answer.after
    gain = f" ({100 * (after.length_us / before.length_us - 1):+.1f} %)" if before.length_us else ""
    scenario_name = f", {answer.scenario.name}" if answer.scenario.name else ""
    window = "the trace" if before.window.window_id == "full" else "the window"
    heading = f"{visible(Path(trace).name + scenario_name)}: {window} takes {units.time_us(after.length_us)} instead of {units.time_us(before.length_us)}{gain}"
    headings = ("bound by", ">before %", ">after %", ">before", ">after")
    ahead = f"what is done ahead takes longer than this path of {units.time_us(after.path_us)}"
    caption = ahead if after.length_us > after.path_us else None
    table = new_table(*headings, title=heading, min_width=len(heading), caption=caption)
    old, new = before.summary, after.summary
    for label in dict.fromkeys([*old, *new]):
        percents = [side.get(label) or 0.0 for side in (old, new)]
        if any(percents):
            lengths = (before.path_us, after.path_us)
            times = (units.time_us(length * percent / 100) for length, percent in zip(lengths, percents, strict=True))
            table.add_row(words.in_words(label or "(none)"), *(f"{percent:.2f}" for percent in percents), *times)
    moved = ((answer.entered, "entered the path"), (answer.left, "left the path"))
    caveat_lines = [styled("[yellow]caveat:[/] {}", caveat["detail"]) for caveat in answer.caveats]
    return [*caveat_lines, table, *(_events_table(events, title) for events, title in moved if events)]


def _events_table(events: list[dict[str, Any]], title: str) -> Table:
    suffix = f", the {_SHOWN} longest" if len(events) > _SHOWN else ""
    heading = f"{title}: {len(events):,} event{'' if len(events) == 1 else 's'}{suffix}"
    table = new_table(">event", ">time", title=heading)
    table.add_column("name", no_wrap=True)
    for event in events[:_SHOWN]:
        table.add_row(str(event["event_id"]), units.time_us(event["time_us"]), short_name(event["name"], _NAME))
    return table


def sensitivity_table(families: list[Family]) -> Table:
    """Return a table of kernels, operators and gaps by how much shorter the path would be."""
    from pipelines.critical_path.whatif.sensitivity import CUTS, GAP

    kernels = [family for family in families if family.change_us[100]]
    title = "how much less time the window takes if these take less"
    if len(kernels) > _SHOWN:
        title += f" (the first {_SHOWN} of {len(kernels)}; --json has all)"
    waits = sorted((f for f in families if f.only_waits and f.on_path_us), key=lambda f: -f.on_path_us)
    of_waits = f"{', '.join(f.name for f in waits)}: {units.time_us(sum(f.on_path_us for f in waits))} on the path, no saving: only waits for the GPU"
    names = [words.in_words(f.name) if f.kernel_class == GAP else f.name for f in kernels[:_SHOWN]]
    rows = [
        (
            _CLASSES.get(family.kernel_class) or words.in_words(family.kernel_class),
            name,
            f"{family.events:,}",
            units.time_us(family.on_path_us),
            *(units.time_us(family.change_us[cut]) for cut in CUTS),
        )
        for family, name in zip(kernels, short_names(names, _NAME), strict=False)
    ]
    headings = ("~class", "~name", ">~events", ">~on path", *(f">~-{cut} %" for cut in CUTS))
    kinds = [Kind.PROSE, Kind.NAME, *[Kind.WHOLE] * (len(headings) - 2)]
    options = {"title": title, "min_width": len(title), "caption": of_waits if waits else None}
    return fitted_table(headings, rows, kinds, out.width, **options)
