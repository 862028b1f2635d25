"""`tracelake compare`: two captures or traces side by side, from files, from a lake, or one of each."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.base import database
from pipelines.faces.cli import caveats
from pipelines.faces.cli.console import err, fail, out, print_json
from pipelines.faces.cli.fleet.compared_sides import open_side
from pipelines.faces.cli.fleet.opened_capture import processes_of
from pipelines.faces.cli.options import DEFAULT_LAKE, JsonOption, LakeOption, lake_option, local, out_option

if TYPE_CHECKING:
    from pipelines.fleet.trends.comparison import Comparison, Trace


class Format(StrEnum):
    """Output format of a comparison."""

    text = "text"
    markdown = "markdown"


def compare(
    control: Annotated[
        str, typer.Argument(help="A trace file, the folder of a capture, or an id or a trace's file name in the lake.")
    ],
    test: Annotated[str, typer.Argument(help="Trace or capture to compare with the control.")] = "",
    baseline: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Use this baseline of the lake as the control; pass only the test."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="Compare by operator, category, module, shape (operators and their shapes), kernel, or cause (of all time, as in `why`). Default: operator if both sides have operators, else kernel.",
        ),
    ] = None,
    step: Annotated[
        list[str] | None,
        typer.Option(
            metavar="STEP",
            help="Compare one profiler step, `first` (of each side) or `all` (whole traces). Pass it twice to set the control's, then the test's. Default: all steps that both sides have, without warm-up.",
        ),
    ] = None,
    rank: Annotated[
        str, typer.Option(help="For captures: compare one rank, `first` (the lowest) or `all`, rank by rank.")
    ] = "all",
    limit: Annotated[int, typer.Option(help="Rows to show; 0 for all.", min=0)] = 15,
    fail_on: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Exit with 3 if the test's mean step or its worst step has more GPU time, or is longer, than the control's by more than this, e.g. 5%; for CI.",
        ),
    ] = None,
    process: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PID",
            help="Read only this process of a file with several (Nsight Systems, rocprofv3, merged ranks). Pass it twice to set the control's, then the test's.",
        ),
    ] = None,
    to: Annotated[Path | None, out_option("Write a page with pictures.")] = None,
    format: Annotated[
        Format, typer.Option(help="Output format; markdown suits a comment on a pull request.")
    ] = Format.text,
    lake: LakeOption = DEFAULT_LAKE,
    json: JsonOption = False,
) -> None:
    """What one capture or trace does more, less or slower than another, by operator, category, module, shape or kernel.

    GPU time of an operator is that of the work that it launched itself, also by replays of graphs; kernels of different
    vendors meet there. Two captures cannot distinguish a regression from noise: `tracelake regressions` tests the newest captures
    of a job against its history.

    Example: `tracelake compare h100.json.gz mi300.json.gz --by category`
    """
    from pipelines.faces.cli.fleet.compared_rows import as_json, lines
    from pipelines.fleet.trends.compared_windows import choose
    from pipelines.fleet.trends.comparison import BY, NOT_IN_DIGEST, compare_pairs, usual_by
    from pipelines.fleet.trends.comparison_verdict import doubts

    control, test = _sides(control, test, baseline, lake)
    if by is not None and by not in BY:
        raise fail(f"unknown --by {by!r}; choose one of {', '.join(BY)}")
    steps = [_choice(text, "step") for text in step or []]
    if len(steps) > len((control, test)):
        raise fail(
            "--step is given more than twice", "Pass it once, or once for the control and then once for the test."
        )
    ranks = _choice(rank, "rank")
    limit_percent = None if fail_on is None else _percent(fail_on)
    processes = _processes(process or [], control, test)
    with database.connect() as con:
        sides = [open_side(con, side, lake, ranks, pid) for side, pid in zip((control, test), processes, strict=True)]
        if by in NOT_IN_DIGEST and any(trace.is_digest for traces in sides for trace in traces):
            raise fail(
                f"--by {by}: only a digest of one of the traces is kept, without its {by}s",
                f"A digest has {', '.join(name for name in BY if name not in NOT_IN_DIGEST)}.",
            )
        chosen = choose(sides[0], sides[1], (steps[0], steps[-1]) if steps else None)
        comparison = compare_pairs(con, chosen.pairs, by or usual_by(sides))
        causes = compare_pairs(con, chosen.pairs, "cause") if format is Format.markdown else None
    notes = [*doubts(chosen.pairs, *sides), *chosen.left_out]
    if to:
        _write(to, comparison, (control, test), sides, [*caveats.lines(), *notes])
    if json:
        print_json(as_json(comparison, (control, test), sides, notes))
    elif causes:
        options = [word for text in step or [] for word in ("--step", text)]
        options += ["--rank", rank] if rank != "all" else []
        options += [word for pid in process or [] for word in ("--process", pid)]
        commands = _where_to_look(comparison.by, (control, test), options, lake, processes[1])
        _print_markdown(comparison, causes, (control, test), notes, limit, limit_percent, commands)
    else:
        for line in lines(comparison, (control, test), sides, notes, limit, min(out.width, 80)):
            out.print(line, soft_wrap=True)
    if to and not json and not causes:
        out.line("open in a browser: [bold]{}[/]", to)
    if limit_percent is not None:
        _judge(comparison, limit_percent, chosen.left_out)


def _sides(control: str, test: str, baseline: str | None, lake: Path | str) -> tuple[str, str]:
    """Return control and test: both arguments, or the baseline and the single argument."""
    if (baseline is None) != bool(test):
        raise fail(
            "compare needs a control and a test, or --baseline NAME and a test",
            "Pass two traces, or one with --baseline.",
        )
    if baseline is None:
        return control, test
    from pipelines.lake.baselines import baseline as baseline_of

    return baseline_of(local(lake, "baselines are kept in the folder of a lake"), baseline), control


def _where_to_look(
    by: str, names: tuple[str, str], options: Sequence[str], lake: Path | str, process: str | None
) -> list[str]:
    """Return commands that show more. `options` select the compared windows. `process` is the test's process, or None."""
    other = "kernel" if by != "kernel" else "operator"
    of_process = ["--process", process] if process else []
    return [
        shlex.join(["tracelake", "compare", *names, "--by", other, *options, *lake_option(names, lake)]),
        shlex.join(["tracelake", "why", names[1], *of_process, *lake_option(names[1:], lake)]),
    ]


def _print_markdown(
    comparison: Comparison,
    causes: Comparison,
    names: tuple[str, str],
    notes: Sequence[str],
    limit: int,
    limit_percent: float | None,
    commands: Sequence[str],
) -> None:
    from pipelines.faces.cli.fleet.compared_markdown import markdown
    from pipelines.fleet.trends.comparison_verdict import judge

    judged = "" if limit_percent is None else judge(comparison, limit_percent).sentence
    limits = caveats.lines()
    caveats.begin()  # not to print them again, because they are in the comment
    typer.echo(markdown(comparison, causes, names, [*limits, *notes], limit, judged, commands))


def _write(
    to: Path, comparison: Comparison, names: tuple[str, str], sides: Sequence[Sequence[Trace]], notes: Sequence[str]
) -> None:
    from pipelines.faces.report.comparison import page

    paths = [Path(trace.path) for traces in sides for trace in traces]
    if to.exists() and any(path.exists() and path.samefile(to) for path in paths):
        raise fail(f"{to} is one of the traces", "Choose another name for --out.")
    to.write_text(page(comparison, names, sides, notes), encoding="utf-8")


def _processes(named: list[str], *sides: str) -> list[str | None]:
    """Return the process of each side, or None for all of its processes.

    A single process applies to the sides that have several processes, or to both if neither does.
    """
    if len(named) > len(sides):
        raise fail(
            "--process is given more than twice", "Pass it once, or once for the control and then once for the test."
        )
    if len(named) != 1:
        return [*named] or [None, None]
    several = [bool(processes_of(Path(side))) for side in sides]
    return [named[0] if is_several or not any(several) else None for is_several in several]


def _choice(text: str, option: str) -> int | str:
    if text in ("first", "all"):
        return text
    if not text.isdecimal():
        raise fail(f"--{option} {text!r} is neither a number nor `first` nor `all`")
    return int(text)


def _percent(text: str) -> float:
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = math.nan
    if not 0 <= percent < math.inf:
        raise fail(f"--fail-on {text!r} is not a percentage such as 5%")
    return percent


def _judge(comparison: Comparison, limit_percent: float, left_out: Sequence[str]) -> None:
    """Print whether every step stays within `limit_percent`. Exit with 3 if not, with 1 if there is nothing to judge."""
    from pipelines.fleet.trends.comparison_verdict import judge

    judged = judge(comparison, limit_percent)
    if not judged.is_judged:
        raise fail(judged.sentence)
    for reason in left_out:
        err.line("[dim]not judged:[/] {}", reason)
    if not judged.is_fine:
        err.line("[red]slower:[/] {}", judged.sentence)
        raise typer.Exit(3)
    err.line("[green]fine:[/] {}", judged.sentence)
