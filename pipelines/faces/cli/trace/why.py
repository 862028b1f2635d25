"""`tracelake why`: the causes of a trace's length, and the saving of removing each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

import typer

from pipelines.base.errors import WrongValue
from pipelines.base.foreign_text import visible
from pipelines.faces.cli.console import err, fail, out, print_json, styled
from pipelines.faces.cli.fleet.opened_capture import is_capture_id, is_several
from pipelines.faces.cli.options import DEFAULT_LAKE, JsonOption, LakeOption, ProcessOption, lake_option
from pipelines.faces.cli.progress_steps import model_progress
from pipelines.faces.cli.trace import path_options
from pipelines.faces.cli.trace.opened_trace import opened, use_memory
from pipelines.faces.cli.trace.path_tables import print_caveats

if TYPE_CHECKING:
    from pipelines.critical_path.graph.windows import WindowRequest
    from pipelines.faces.capture_why import CaptureWhy
    from pipelines.faces.why import Cause, Why

_NAMES = 3  # printed for a cause
_WIDTH = 80
_RANKS = 8  # printed for a capture without a path through its ranks


def why_command(
    subjects: Annotated[
        list[str],
        typer.Argument(
            help="Trace files, folders of a capture's ranks or files of several processes, or ids of traces or captures.",
            metavar="TRACE|FOLDER",
        ),
    ],
    step: Annotated[
        str,
        typer.Option(
            metavar="N|all",
            help="Explain this profiler step (its number, or else its position, from 1), or each of several, instead of the whole trace.",
        ),
    ] = "",
    annotation: path_options.Annotation = "",
    instance: path_options.Instance = None,
    process: ProcessOption = None,
    without_profiler: Annotated[
        bool | None,
        typer.Option(
            "--without-profiler/--with-profiler",
            help="Show causes without the profiler's cost, or with it. Default: without it if it is more than a tenth.",
        ),
    ] = None,
    untraced: path_options.Untraced = "",
    lake: LakeOption = DEFAULT_LAKE,
    json: JsonOption = False,
) -> None:
    """Why a trace takes as long as it does: one sentence, then its causes, with what to do about each.

    The shares of all causes are 100 % of the window. What a cause saves is the window retimed without it, or with half of it.
    `tracelake TRACE` does the same.

    Example: `tracelake why rank0.json.gz --step 5`
    """
    window_options = _WindowOptions(step, annotation, instance, process, without_profiler, untraced)
    named_answers = [named for subject in subjects for named in _answers(subject, window_options, lake)]
    if json:
        documents = [
            named.answer.as_json(named.subject, window_options.options(named, lake)) for named in named_answers
        ]
        print_json(documents[0] if len(documents) == 1 else documents)
        return
    for index, named in enumerate(named_answers):
        if index:
            out.print()
        show(
            named.subject,
            named.answer,
            named=len(named_answers) > 1,
            options=window_options.options(named, lake),
        )


class _WindowOptions(NamedTuple):
    """Options that select a part of a trace."""

    step: str
    annotation: str
    instance: str | None
    process: str | None
    without_profiler: bool | None = None
    untraced: str = ""

    @property
    def of_a_trace(self) -> str:
        """Return the names of the passed options that apply only to a trace, as text, or "" without such options."""
        if any(self[:4]):
            return "--step, --annotation and --process"
        is_set = self.without_profiler is not None or bool(self.untraced)
        return "--without-profiler, --with-profiler and --untraced" if is_set else ""

    def options(self, named: _NamedAnswer, lake: Path | str) -> list[str]:
        """Return the options with which other commands select the same window (with --lake if `named` is an id)."""
        # With --step, the answer is about a trace, not a capture.
        step_window = cast("Why", named.answer).window["window_id"] if self.step else "full"
        window = self.annotation or step_window
        arguments = ["--annotation", window] if self.annotation or window != "full" else []
        arguments += ["--instance", self.instance] if self.instance is not None else []
        arguments += ["--process", named.process] if named.process else []
        return [*arguments, *lake_option([named.subject], lake)]


class _NamedAnswer(NamedTuple):
    """An answer, with the name of its trace or capture in commands."""

    subject: str
    answer: Why | CaptureWhy
    process: str | None = None


def _answers(subject: str, window_options: _WindowOptions, lake: Path | str) -> Sequence[_NamedAnswer]:
    if (not window_options.process and is_several(subject)) or is_capture_id(subject, lake):
        if window_options.of_a_trace:
            raise fail(
                f"{subject} is a capture: {window_options.of_a_trace} are for a trace",
                f"Give one of its {'processes: --process PID' if Path(subject).is_file() else 'files'}.",
            )
        return _of_capture(subject, lake)
    return [
        _NamedAnswer(subject, answer, window_options.process) for answer in _of_trace(subject, window_options, lake)
    ]


def _of_capture(subject: str, lake: Path | str) -> Sequence[_NamedAnswer]:
    """Return the answer for a capture, or the answers for its longest ranks if it has no path through its ranks."""
    from pipelines.faces.capture_why import TABLES as CAPTURE_TABLES
    from pipelines.faces.capture_why import capture_why
    from pipelines.faces.cli import caveats
    from pipelines.faces.cli.fleet.opened_capture import lake_of, processes_of
    from pipelines.faces.cli.refresh_tables import open_analyst
    from pipelines.faces.subject import process_of
    from pipelines.faces.why import TABLES, why
    from pipelines.fleet.path.answer import find_capture, why_no_path
    from pipelines.models.sqltext import quoted

    with lake_of([subject], lake) as (folder, id_prefix):
        with open_analyst(folder, ["captures", *CAPTURE_TABLES]) as con:
            if id_prefix:
                caveats.note(con, id_prefix)
            capture_id = find_capture(con, id_prefix)
            caveats.note_captures(con, capture_id)
            if answer := capture_why(con, capture_id, Path(subject).name):
                return [_NamedAnswer(subject, answer)]
            of_capture = f"capture_id = {quoted(capture_id)}"
            refused = why_no_path(con, capture_id)
            ranks = con.execute(
                "SELECT trace_id, coalesce('rank ' || r.rank, t.file), t.path FROM capture_ranks AS r "
                f"JOIN traces AS t USING (trace_id) WHERE r.{of_capture} AND coalesce(r.left_out_reason, 'no_rank') = 'no_rank'"
            ).fetchall()
        processes = processes_of(Path(subject))
        with open_analyst(folder, list(TABLES)) as con:
            answer_by_rank = [(rank, why(con, rank[0], title=rank[1])) for rank in ranks]
            answers = [
                _NamedAnswer(trace_id if id_prefix else path, answer, process_of(con, trace_id, processes))
                for (trace_id, _, path), answer in answer_by_rank
                if answer
            ]
            if answers:
                _print_left_out(
                    con, [(name, trace_id, "full") for (trace_id, name, _), answer in answer_by_rank if not answer]
                )
    answers.sort(key=lambda named: -named.answer.length)
    if not answers:
        raise fail(f"{subject} has no path through its ranks: {refused}", "None of its ranks has a path, either.")
    more = f"; these are the {_RANKS} longest of {len(answers)}" if len(answers) > _RANKS else ""
    caveats.print_caveat("rank by rank", f"{subject} has no path through its ranks: {refused}{more}")
    return answers[:_RANKS]


def _of_trace(subject: str, window_options: _WindowOptions, lake: Path | str) -> list[Why]:
    from pipelines.critical_path.graph.windows import explain_missing, request_profiler_cost, request_windows
    from pipelines.faces.subject import catalog_of
    from pipelines.faces.why import TABLES, why
    from pipelines.lake.read.one_trace import STORED, stored_tables
    from pipelines.models.run import run_models

    with opened(subject, lake, TABLES, process=window_options.process) as (con, trace_id):
        requests = _windows(con, trace_id, window_options)
        if (
            not window_options.annotation
            and window_options.without_profiler is None
            and not window_options.untraced
            and set(TABLES) <= stored_tables(con)
        ):
            for table in TABLES:
                con.execute(f"CREATE VIEW {table} AS FROM {STORED}.{table}")
        else:
            request_windows(con, requests)
            request_profiler_cost(
                con, requests, window_options.without_profiler, path_options.untraced_ns(window_options.untraced)
            )
            catalog = catalog_of(subject, lake)
            use_memory(con, trace_id)
            with model_progress(catalog, TABLES) as on_model:
                run_models(con, catalog, TABLES, on_model=on_model)
        name, without = Path(subject).name, window_options.without_profiler
        candidates = [
            why(con, request.trace_id, request.window_id, name, without_profiler=without) for request in requests
        ]
        answers = [replace(answer, untraced=window_options.untraced) for answer in candidates if answer]
        _check_profiler(subject, window_options, answers)
        if not answers:
            reason = _reason(con, trace_id, requests[0].window_id)
            if window_options.annotation and not reason:
                raise fail(str(explain_missing(con, requests[0])))
            raise fail(f"{subject} has no critical path: {_why_none(reason)}")
        _print_left_out(
            con,
            [
                (request.window_id, trace_id, request.window_id)
                for request, answer in zip(requests, candidates, strict=True)
                if not answer
            ],
        )
        return answers


def _print_left_out(con: Any, windows: Sequence[tuple[str, str, str]]) -> None:
    """Print which windows have no answer, and why. `windows`: the name, trace id and window id of each."""
    for name, trace_id, window_id in windows:
        reason = _why_none(_reason(con, trace_id, window_id))
        err.line("[yellow]left out:[/] {} has no critical path: {}", name, reason)


def _reason(con: Any, trace_id: str, window_id: str) -> str:
    """Return why a window has no critical path, or "" if its tables do not state it."""
    from pipelines.models.sqltext import quoted

    of_window = f"trace_id = {quoted(trace_id)} AND window_id = {quoted(window_id)}"
    query = f"SELECT detail FROM critical_path_caveats WHERE caveat = 'no_critical_path' AND {of_window}"
    return next((detail for (detail,) in con.execute(query).fetchall()), "")


def _why_none(reason: str) -> str:
    """Return why a trace has no critical path. `reason`: as returned by `_reason`."""
    from pipelines.faces.cli import caveats

    if any(finding.check == "unread_events" for finding in caveats.noted()):
        return (
            "none of its events is read as GPU work, or as an operator or annotation that takes time (see the caveat)"
        )
    return reason or "it has no GPU work, and no operator or annotation that takes time"


def _check_profiler(subject: str, window_options: _WindowOptions, answers: Sequence[Why]) -> None:
    """Exit if the user passed --untraced, but the cost of the profiler is unknown.

    If the user passed --without-profiler, but the causes include the profiler, print the reason.
    """
    from pipelines.base.datafiles import threshold

    unknown = any(answer.without_profiler_ns is None for answer in answers)
    why_not = (
        f"the profiler's cost for {subject} is unknown: PyTorch's profiler did not write it, it has no operators, "
        f"or its graph has more than {threshold('retimed_edges'):,} edges"
    )
    if window_options.untraced and unknown:
        raise fail(why_not, "Leave out --untraced.")
    if window_options.without_profiler and not all(answer.is_without_profiler for answer in answers):
        reason = why_not if unknown else "the profiler cost too little to rank causes without it"
        err.line("{}", reason)


def _windows(con: Any, trace_id: str, window_options: _WindowOptions) -> list[WindowRequest]:
    """Return the requested windows.

    Raise WindowNotFound if the trace does not have the step, ValueError if the options contradict each other.
    """
    from pipelines.critical_path.graph.windows import WindowNotFound, WindowRequest, parse_instance, usual_windows
    from pipelines.lake.read.one_trace import stored_windows

    step, annotation, instance, *_ = window_options
    first, last = parse_instance(instance, annotation)
    if annotation and step:
        raise WrongValue("--step and --annotation name two windows: give one of them")
    if annotation:
        # An id of `full` is the whole trace.
        name = annotation if instance is None and annotation != "full" else f"{annotation} {instance or first}"
        return [WindowRequest(trace_id, name, annotation=annotation, first=first, last=last)]
    if not step:
        return [WindowRequest(trace_id)]
    stored = [WindowRequest(trace_id, name, annotation=name) for name in stored_windows(con, trace_id)]
    whole_trace, *steps = stored or usual_windows(con, [trace_id])
    if step == "all" and steps:
        return [whole_trace, *steps]
    numbers = [request.window_id.partition("#")[2] for request in steps]
    if step in numbers:
        return [steps[numbers.index(step)]]
    if step.isdecimal() and 1 <= int(step) <= len(steps):
        number = numbers[int(step) - 1]
        err.print(f"there is no step {step}: this is step {number}, number {step} of those in the trace")
        return [steps[int(step) - 1]]
    steps_text = f"its steps are {', '.join(numbers)}" if steps else "it has no profiler steps"
    raise WindowNotFound(f"the trace has no step {step}: {steps_text}")


def show(subject: str, answer: Why | CaptureWhy, *, named: bool, options: Sequence[str] = ()) -> None:
    """Print the answer in at most 80 columns, with its heading if `named`.

    `subject`: the user's name of the trace. `options`: the options with which other commands select the same window.
    """
    from pipelines.faces.why import on_a_screen

    width = min(out.width, _WIDTH)
    if named:
        out.print(styled("[bold]{}[/]", visible(answer.heading)))
    print_caveats(caveat for caveat in answer.caveats if caveat["severity"] != "info")
    for line in _wrapped(visible(answer.sentence), width):
        out.line("[bold]{}[/]", line)
    main_causes, other_causes = on_a_screen(answer.causes)
    for cause in main_causes:
        out.print()
        _show_cause(subject, cause, answer, width, options)
    _show_fixes(subject, answer, width, options)
    if other_causes:
        titles = ", ".join(cause.title for cause in other_causes)
        out.print()
        _print_indented(f"{sum(cause.share for cause in other_causes):5.1f} %  ", titles, width)
    print_caveats(caveat for caveat in answer.caveats if caveat["severity"] == "info")


def _show_fixes(subject: str, answer: Why | CaptureWhy, width: int, options: Sequence[str]) -> None:
    """Print the proposed changes, largest saving first, each with the command that computes its saving."""
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
        out.line("[dim]{}[/]", " " * 9 + visible(command))


def _show_cause(subject: str, cause: Cause, answer: Why | CaptureWhy, width: int, options: Sequence[str]) -> None:
    _print_indented(f"{cause.share:5.1f} %  ", cause.description(answer.steps), width)
    if doubt := answer.caveat_for(cause):
        _print_indented(" " * 9, f"but {doubt}", width)
    for text in (cause.names(_NAMES), cause.advice):
        _print_indented(" " * 9, visible(text), width)
    # On one line, however long, so that the user can copy it.
    command = cause.command(subject, answer.options(options))
    out.line("[dim]{}[/]", " " * 9 + visible(command))


def _print_indented(first: str, text: str, width: int) -> None:
    """Print a text after `first`, with its other lines indented by the width of `first`."""
    for line in _wrapped(text, width - len(first)):
        out.line("{}{}", first, line)
        first = " " * len(first)


def _wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a text. A number stays on a line with its unit."""
    import textwrap

    together = re.sub(r"(?<=\d) (?=%|[mu]?s\b)", "\N{NO-BREAK SPACE}", text)
    lines = textwrap.wrap(together, width, break_on_hyphens=False) or [""]
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]
