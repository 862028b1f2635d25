"""`tracelake why`: what a trace's time goes to, and what it would save without it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer

from pipelines.base.errors import WrongValue
from pipelines.base.foreign_text import visible
from pipelines.faces.cli.console import (
    DEFAULT_LAKE,
    AnyLakeOption,
    JsonOption,
    err,
    fail,
    is_store,
    out,
    print_json,
    progress,
    styled,
)
from pipelines.faces.cli.fleet.opened_capture import is_several
from pipelines.faces.cli.progress_steps import in_words, steps_for
from pipelines.faces.cli.trace.asked_path import AnnotationOption, InstanceOption, UntracedOption, untraced_ns
from pipelines.faces.cli.trace.opened_trace import ProcessOption, opened, use_memory
from pipelines.faces.cli.trace.path_tables import print_caveats

if TYPE_CHECKING:
    from pipelines.critical_path.graph.windows import WindowRequest
    from pipelines.faces.capture_why import CaptureWhy
    from pipelines.faces.why import Cause, Why

_NAMES = 3  # of a cause
_WIDTH = 80
_RANKS = 8  # of a capture without a path through them


def why_command(
    subjects: Annotated[
        list[str],
        typer.Argument(
            help="Trace files, folders of a capture's ranks or files of several processes, or ids of traces or captures.",
            metavar="TRACE|FOLDER",
        ),
    ],
    step: Annotated[
        str, typer.Option(metavar="N|all", help="This profiler step, or each of them, instead of the whole trace.")
    ] = "",
    annotation: AnnotationOption = "",
    instance: InstanceOption = None,
    process: ProcessOption = None,
    without_profiler: Annotated[
        bool | None,
        typer.Option(
            "--without-profiler/--with-profiler",
            help="Causes without what the profiler cost, or with it; by default without it where that is more than a tenth.",
        ),
    ] = None,
    untraced: UntracedOption = "",
    lake: AnyLakeOption = DEFAULT_LAKE,
    json: JsonOption = False,
) -> None:
    """Why a trace takes as long as it does: one sentence, then its causes, with what to do about each.

    The shares of all causes are 100 % of the window. What a cause saves is the window retimed without it (gone), or with half
    of it. `tracelake TRACE` does the same.

    Example: `tracelake why rank0.json.gz --step 5`
    """
    asked = _Asked(step, annotation, instance, process, without_profiler, untraced)
    found = [one for subject in subjects for one in _answers(subject, asked, lake)]
    if json:
        documents = [one.answer.as_json(one.subject, asked.options(one.answer, one.process)) for one in found]
        print_json(documents[0] if len(documents) == 1 else documents)
        return
    for place, one in enumerate(found):
        if place:
            out.print()
        show(one.subject, one.answer, named=len(found) > 1, options=asked.options(one.answer, one.process))


class _Asked(NamedTuple):
    """The options that say what of a trace is meant."""

    step: str
    annotation: str
    instance: str | None
    process: str | None
    without_profiler: bool | None = None
    untraced: str = ""

    @property
    def of_a_trace(self) -> str:
        """The options that have no meaning for a capture, if some of them are given."""
        if any(self[:4]):
            return "--step, --annotation and --process"
        is_given = self.without_profiler is not None or bool(self.untraced)
        return "--without-profiler, --with-profiler and --untraced" if is_given else ""

    def options(self, answer: Why | CaptureWhy, process: str | None) -> list[str]:
        """What another command has to be told to speak of the same window."""
        of_step = cast("Why", answer).window["window_id"] if self.step else "full"  # a capture is asked without steps
        window = self.annotation or of_step
        of_window = [] if window == "full" else ["--annotation", window]
        of_window += ["--instance", self.instance] if self.instance is not None else []
        return of_window + (["--process", process] if process else [])


class _Told(NamedTuple):
    """An answer, with what its trace or capture is called in commands."""

    subject: str
    answer: Why | CaptureWhy
    process: str | None = None


def _answers(subject: str, asked: _Asked, lake: Path | str) -> Sequence[_Told]:
    if (not asked.process and is_several(subject)) or (not Path(subject).exists() and _is_capture(subject, lake)):
        if asked.of_a_trace:
            raise fail(
                f"{subject} is a capture: {asked.of_a_trace} are for a trace",
                f"Give one of its {'processes: --process PID' if Path(subject).is_file() else 'files'}.",
            )
        return _of_capture(subject, lake)
    return [_Told(subject, answer, asked.process) for answer in _of_trace(subject, asked, lake)]


def _is_capture(beginning: str, lake: Path | str) -> bool:
    """Whether a capture of the lake has an id that begins so, and no trace."""
    from pipelines.faces.cli.up_to_date import open_analyst
    from pipelines.lake import Lake
    from pipelines.models.sqltext import quoted

    if not set(beginning) <= set("0123456789abcdef"):
        return False
    if is_store(lake):
        with open_analyst(lake, []) as con:
            query = "SELECT {0} FROM {1} WHERE starts_with({0}, {2}) LIMIT 1"
            of = [con.execute(query.format(key, table, quoted(beginning))).fetchall()
                  for key, table in (("trace_id", "traces"), ("capture_id", "captures"))]  # fmt: skip
            return not of[0] and bool(of[1])
    there = Lake(lake)
    if not there.exists or any(trace_id.startswith(beginning) for trace_id in there.known_traces()):
        return False

    with open_analyst(lake, ["captures"]) as con:
        found = con.execute(f"SELECT 1 FROM captures WHERE starts_with(capture_id, {quoted(beginning)}) LIMIT 1")
        return bool(found.fetchall())


def _of_capture(subject: str, lake: Path | str) -> Sequence[_Told]:
    """The answer for a capture; where no path leads through its ranks, that of each rank alone, the longest first."""
    from pipelines.faces.capture_why import TABLES as CAPTURE_TABLES
    from pipelines.faces.capture_why import capture_why
    from pipelines.faces.cli import caveats
    from pipelines.faces.cli.fleet.opened_capture import lake_of, processes_of
    from pipelines.faces.cli.up_to_date import open_analyst
    from pipelines.faces.why import TABLES, why
    from pipelines.fleet.path.answer import find_capture
    from pipelines.models.sqltext import quoted

    with lake_of([subject], lake) as (folder, beginning):
        with open_analyst(folder, ["captures", "capture_ranks", *CAPTURE_TABLES]) as con:
            if beginning:
                caveats.note(con, beginning)
            capture_id = find_capture(con, beginning)
            if answer := capture_why(con, capture_id, Path(subject).name):
                return [_Told(subject, answer)]
            of = f"capture_id = {quoted(capture_id)}"
            refused = con.execute(f"SELECT max(refused_reason) FROM capture_paths WHERE {of}").fetchall()[0][0]
            ranks = con.execute(
                "SELECT trace_id, coalesce('rank ' || r.rank, t.file), t.path FROM capture_ranks AS r "
                f"JOIN traces AS t USING (trace_id) WHERE r.{of} AND coalesce(r.left_out_reason, 'no_rank') = 'no_rank'"
            ).fetchall()
        processes = processes_of(Path(subject))
        with open_analyst(folder, list(TABLES)) as con:
            found = [
                _Told(trace_id if beginning else path, answer, _process_of(con, trace_id, processes))
                for trace_id, name, path in ranks
                if (answer := why(con, trace_id, title=name))
            ]
    found.sort(key=lambda one: -one.answer.length)
    if not found:
        raise fail(f"{subject} has no path through its ranks: {refused}", "None of its ranks has a path, either.")
    more = f", the {_RANKS} longest of {len(found)}" if len(found) > _RANKS else ""
    told = styled("[yellow]rank by rank{}:[/] {} has no path through its ranks: {}", more, subject, refused)
    err.print(told, soft_wrap=True)
    return found[:_RANKS]


def _process_of(con: Any, trace_id: str, processes: Sequence[str]) -> str | None:
    """Which of the processes of a file a trace is of; None for a file with one."""
    from pipelines.models.sqltext import quoted

    if not processes:
        return None
    of = f"WHERE trace_id = {quoted(trace_id)}"
    label = f"SELECT metadata ->> '$.distributedInfo.label' FROM traces {of}"  # of a rank of a merged file
    own = con.execute(f"SELECT DISTINCT pid FROM events {of} UNION {label}").fetchall()
    return next((process for process in processes if (process,) in own), None)


def _of_trace(subject: str, asked: _Asked, lake: Path | str) -> list[Why]:
    from pipelines.critical_path.graph.windows import explain_missing, request_profiler_cost, request_windows
    from pipelines.faces.subject import catalog_of
    from pipelines.faces.why import TABLES, why
    from pipelines.lake.read.one_trace import STORED, stored_tables
    from pipelines.models.run import run_models

    with opened(subject, lake, TABLES, process=asked.process) as (con, trace_id):
        requests = _windows(con, trace_id, asked)
        if (
            not asked.annotation
            and asked.without_profiler is None
            and not asked.untraced
            and set(TABLES) <= stored_tables(con)
        ):
            for table in TABLES:
                con.execute(f"CREATE VIEW {table} AS FROM {STORED}.{table}")
        else:
            request_windows(con, requests)
            request_profiler_cost(con, requests, asked.without_profiler, untraced_ns(asked.untraced))
            catalog = catalog_of(subject, lake)
            use_memory(con, trace_id)
            with progress(steps_for(catalog, TABLES), "computing") as advance:
                run_models(con, catalog, TABLES, on_model=lambda name: advance(1, in_words(catalog, name)))
        name, without = Path(subject).name, asked.without_profiler
        answers = [why(con, one.trace_id, one.window_id, name, without_profiler=without) for one in requests]
        found = [replace(one, untraced=asked.untraced) for one in answers if one]
        _check_profiler(subject, asked, found)
        if not found:
            reason = con.execute("SELECT detail FROM critical_path_caveats ORDER BY severity").fetchall()
            if asked.annotation and not reason:
                raise fail(str(explain_missing(con, requests[0])))
            raise fail(
                f"{subject} has no critical path: {reason[0][0] if reason else 'it has no GPU work, and no operator or annotation that takes time'}"
            )
        return found


def _check_profiler(subject: str, asked: _Asked, answers: Sequence[Why]) -> None:
    """Refuse to calibrate what is not known; say why causes are not without the profiler although that is asked."""
    unknown = any(one.without_profiler_ns is None for one in answers)
    why_not = f"what a profiler cost {subject} is not known: PyTorch's did not write it, or it has no operators"
    if asked.untraced and unknown:
        raise fail(why_not, "Leave out --untraced.")
    if asked.without_profiler and not all(one.is_without_profiler for one in answers):
        told = why_not if unknown else "the profiler cost too little to rank causes without it"
        err.print(styled("{}", told), soft_wrap=True)


def _windows(con: Any, trace_id: str, asked: _Asked) -> list[WindowRequest]:
    """The windows that are asked for. Raises WindowNotFound for a step that the trace does not have, ValueError for options
    that do not go together.
    """
    from pipelines.critical_path.graph.windows import WindowNotFound, WindowRequest, parse_instance, usual_windows

    step, annotation, instance, *_ = asked
    first, last = parse_instance(instance, annotation)
    if annotation and step:
        raise WrongValue("--step and --annotation name two windows: give one of them")
    if annotation:
        name = annotation if instance is None else f"{annotation} {instance}"
        return [WindowRequest(trace_id, name, annotation=annotation, first=first, last=last)]
    if not step:
        return [WindowRequest(trace_id)]
    whole, *steps = usual_windows(con, [trace_id])
    if step == "all" and steps:
        return [whole, *steps]
    numbers = [one.window_id.partition("#")[2] for one in steps]
    if step in numbers:
        return [steps[numbers.index(step)]]
    if step.isdecimal() and 1 <= int(step) <= len(steps):
        number = numbers[int(step) - 1]
        err.print(f"there is no step {step}: this is step {number}, number {step} of those that there are")
        return [steps[int(step) - 1]]
    there = f"its steps are {', '.join(numbers)}" if steps else "it has no profiler steps"
    raise WindowNotFound(f"the trace has no step {step}: {there}")


def show(subject: str, answer: Why | CaptureWhy, *, named: bool, options: Sequence[str] = ()) -> None:
    """Print the answer for people, in at most 80 columns; `subject` is what they called the trace, `options` are
    those that other commands need to speak of the same window.
    """
    from pipelines.faces.why import on_a_screen

    width = min(out.width, _WIDTH)
    if named:
        out.print(styled("[bold]{}[/]", visible(answer.heading)))
    print_caveats(one for one in answer.caveats if one["severity"] != "info")
    for line in _wrapped(visible(answer.sentence), width):
        out.print(styled("[bold]{}[/]", line), soft_wrap=True)
    shown, rest = on_a_screen(answer.causes)
    for cause in shown:
        out.print()
        _show_cause(subject, cause, answer, width, options)
    _show_fixes(subject, answer, width, options)
    if rest:
        told = ", ".join(one.title for one in rest)
        out.print()
        _print_indented(f"{sum(one.share for one in rest):5.1f} %  ", told, width)
    print_caveats(one for one in answer.caveats if one["severity"] == "info")


def _show_fixes(subject: str, answer: Why | CaptureWhy, width: int, options: Sequence[str]) -> None:
    """Print what to change, largest saving first, each with the command that gives its number."""
    from pipelines.faces.what_helps import SHOWN, change_of, same_stretch, saving_of

    if not answer.fixes:
        return
    out.print()
    out.print("What would help, each by itself:")
    for row in answer.fixes[:SHOWN]:
        _print_indented(
            f"{-row['saves_percent']:5.1f} %  ", visible(f"{saving_of(row, answer.steps)}: {change_of(row)}"), width
        )
        for line in (same_stretch(row, answer.fixes), row["caveat"]):
            if line:
                _print_indented(" " * 9, visible(line), width)
        command = answer.fix_command(row, subject, options)
        out.print(styled("[dim]{}[/]", " " * 9 + visible(command)), soft_wrap=True)


def _show_cause(subject: str, cause: Cause, answer: Why | CaptureWhy, width: int, options: Sequence[str]) -> None:
    _print_indented(f"{cause.share:5.1f} %  ", cause.told(answer.steps), width)
    if doubt := answer.doubt_of(cause):
        _print_indented(" " * 9, f"but {doubt}", width)
    for text in (cause.names(_NAMES), cause.advice):
        _print_indented(" " * 9, visible(text), width)
    # In one line, however long: it is there to be copied.
    command = cause.command(subject, answer.options(options))
    out.print(styled("[dim]{}[/]", " " * 9 + visible(command)), soft_wrap=True)


def _print_indented(first: str, text: str, width: int) -> None:
    """Print a text after its first words, and its other lines below its beginning."""
    for line in _wrapped(text, width - len(first)):
        out.print(styled("{}{}", first, line), soft_wrap=True)
        first = " " * len(first)


def _wrapped(text: str, width: int) -> list[str]:
    """Returns a text's lines. A number stays with its unit."""
    import textwrap

    together = re.sub(r"(?<=\d) (?=%|[mu]?s\b)", "\N{NO-BREAK SPACE}", text)
    lines = textwrap.wrap(together, width, break_on_hyphens=False) or [""]
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
