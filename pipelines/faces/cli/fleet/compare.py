"""`tracelake compare`: two captures or traces side by side, from files, from a lake, or one of each."""

from __future__ import annotations

import math
from collections import Counter
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from pipelines.base import database
from pipelines.faces.cli.console import (
    DEFAULT_LAKE,
    JsonOption,
    LakeOption,
    err,
    fail,
    human_us,
    local,
    out,
    print_json,
    styled,
)
from pipelines.faces.cli.fleet.opened_capture import opened_capture
from pipelines.faces.cli.trace.opened_trace import opened
from pipelines.faces.cli.up_to_date import open_analyst

_TABLES = ("profiler_steps", "ops_by_shape")


def compare(
    control: Annotated[str, typer.Argument(help="A trace file, the folder of a capture, or an id in the lake.")],
    test: Annotated[str, typer.Argument(help="What to compare with it.")],
    lake: LakeOption = DEFAULT_LAKE,
    rank: Annotated[str, typer.Option(help="For captures: a rank, `first` (the lowest) or `all`.")] = "first",
    step: Annotated[str, typer.Option(help="A profiler step, `first` (of each side) or `all`.")] = "first",
    by_name: Annotated[bool, typer.Option("--by-name", help="Compare by name only, not by shape.")] = False,
    limit: Annotated[int, typer.Option(help="Rows to show per device; 0 for all.")] = 15,
    fail_on: Annotated[
        str | None,
        typer.Option(
            metavar="PERCENT",
            help="Exit with 3 if the test's GPU time is more than this above the control's, e.g. 5%; for CI.",
        ),
    ] = None,
    process: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PID",
            help="Of files with several processes (Nsight Systems, rocpd): this one; twice: the control's, then the test's.",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """What one capture or trace does more, less or slower than another: operators and kernels by name and shape.

    Like HTA's trace diff: counts and summed durations, test minus control; `change` refers to counts. Two captures do not
    tell a regression from noise: `tracelake regressions` tests the newest captures of a job against its history.

    Example: `tracelake compare before.json.gz after.json.gz --step all`
    """

    from pipelines.fleet.trends.comparison import compare_sides

    ranks, steps = _choice(rank, "rank"), _choice(step, "step")
    most = None if fail_on is None else _percent(fail_on)
    processes = _processes(process or [], control, test)
    with database.connect() as con:
        sides = [
            _side(con, given, lake, ranks, steps, which)
            for given, which in zip((control, test), processes, strict=True)
        ]
        rows = compare_sides(con, *sides, by_shape=not by_name)
    if json:
        print_json([asdict(row) for row in rows])
    else:
        _print(rows, limit)
    if most is not None:
        _judge(rows, most)


def _print(rows: list[Any], limit: int) -> None:
    for device in ("gpu", "cpu"):
        found = [row for row in rows if row.device == device]
        changes = Counter(row.change for row in found)
        total = human_us(sum(row.diff_ns for row in found) / 1e3)
        counts = ", ".join(f"{changes[kind]} {kind}" for kind in _CHANGES)
        out.print(styled("[bold]{}[/]: {}; {} in all", device, counts, total))
        out.print(_table(found[: limit or None]))


def _processes(named: list[str], *sides: str) -> list[str | None]:
    """Returns the process of each side. One that is named once is that of every file with several."""
    if len(named) > len(sides):
        raise fail("--process was given more than twice", "Give it once, or for the control and then for the test.")
    if len(named) != 1:
        return [*named] or [None, None]
    several = [_holds_several(Path(side)) for side in sides]
    return [named[0] if is_one or not any(several) else None for is_one in several]


def _holds_several(path: Path) -> bool:
    from pipelines.readers.inputs.find import events_input
    from pipelines.readers.kineto import TraceRejected

    try:
        return path.is_file() and bool((parts := events_input(path).parts) and parts(path))
    except TraceRejected:  # reading it tells why
        return False


def _side(
    con: Any, given: str, lake: Path, ranks: int | str, steps: int | str, process: str | None
) -> dict[str, int | None]:
    """Returns the traces of a side with the step of each; afterward their rows of ops_by_shape are in `con`."""
    from pipelines.fleet.path.answer import NoCapture, find_capture
    from pipelines.fleet.trends.comparison import CompareError, side_of
    from pipelines.models.catalog import load_catalog
    from pipelines.models.sqltext import row

    is_file = _exists(given)
    if process and not Path(given).is_file():
        raise fail(f"--process is for files that hold several, and {given} is none", "Leave it out.")
    lists = "`tracelake sql 'SELECT * FROM capture_ranks'` lists captures and their traces."
    with ExitStack() as stack:
        try:
            if not is_file:
                own, name = open_analyst(lake, ["capture_ranks", *_TABLES]), given
            elif Path(given).is_file():
                own, name = stack.enter_context(opened(given, lake, process=process))
                _compute(own, name)
            else:
                own, _ = stack.enter_context(opened_capture([given], lake, ("captures", "capture_ranks", *_TABLES)))
                name = find_capture(own, "")
            side = side_of(own, name, ranks, steps)
        except (CompareError, NoCapture) as error:
            told = f"{given}: {error}" if is_file else str(error)
            raise fail(told, "Give a trace file, or the folder of one capture." if is_file else lists) from None
        columns = ", ".join(column.name for column in load_catalog().models["ops_by_shape"].columns)
        rows = own.sql(f"SELECT {columns} FROM ops_by_shape WHERE trace_id IN {row(side)}").to_arrow_table()
    con.register("given", rows)
    con.execute("CREATE TABLE IF NOT EXISTS ops_by_shape AS SELECT * FROM given LIMIT 0")
    # Both sides may be the same trace.
    con.execute(
        "INSERT INTO ops_by_shape SELECT * FROM given WHERE trace_id NOT IN (SELECT trace_id FROM ops_by_shape)"
    )
    con.unregister("given")
    return side


def _exists(given: str) -> bool:
    """Returns whether it is a file, folder or glob rather than an id. Exits if it can only be a file and does not
    exist.
    """
    from pipelines.readers.ingest import expand

    path = local(given)
    if path.exists() or any(found.exists() for found in expand([given])):
        return True
    if set(given) <= set("0123456789abcdef"):
        return False
    raise fail(f"{given}: no such file, and no id starts with it (ids are hexadecimal)")


def _compute(con: Any, trace_id: str) -> None:
    """Creates the tables of a trace that was read, without a lake."""
    from pipelines.critical_path.graph.windows import WindowRequest, request_windows
    from pipelines.models.catalog import load_catalog
    from pipelines.models.run import run_models

    request_windows(con, [WindowRequest(trace_id)])
    run_models(con, load_catalog(), _TABLES)
    con.execute(
        "CREATE TABLE capture_ranks (capture_id VARCHAR, rank BIGINT, trace_id VARCHAR, left_out_reason VARCHAR)"
    )


_CHANGES = ("added", "deleted", "increased", "decreased", "unchanged")


def _percent(text: str) -> float:
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        percent = math.nan
    if not 0 <= percent < math.inf:
        raise fail(f"--fail-on {text!r} is not a percentage such as 5%")
    return percent


def _judge(rows: list[Any], most: float) -> None:
    """Say how much the summed GPU time grew. Exits with 3 if it is more than `most` percent; 1 if there is none."""
    control, test = (
        sum(getattr(row, side) for row in rows if row.device == "gpu") for side in ("control_ns", "test_ns")
    )
    if not control:
        raise fail("--fail-on compares GPU time, and the control has none in what is compared")
    grown = 100 * (test - control) / control
    times = f"{human_us(control / 1e3)} to {human_us(test / 1e3)}, {grown:+.1f} %"
    if grown > most:
        err.print(styled("[red]slower:[/] GPU time went from {}, more than {:g} %", times, most), soft_wrap=True)
        raise typer.Exit(3)
    err.print(styled("[green]fine:[/] GPU time went from {}, at most {:g} % allowed", times, most), soft_wrap=True)


def _choice(text: str, option: str) -> int | str:
    if text in ("first", "all"):
        return text
    if not text.isdigit():
        raise fail(f"--{option} {text!r} is neither a number nor `first` nor `all`")
    return int(text)


def _table(rows: list) -> Table:
    table = Table()
    for name in ("name", "shape"):
        table.add_column(name, overflow="ellipsis", no_wrap=True, max_width=48)
    for name in ("n", "Δn", "time", "Δtime"):
        table.add_column(name, justify="right")
    table.add_column("change")
    for row in rows:
        times = human_us(row.test_ns / 1e3), human_us(row.diff_ns / 1e3)
        table.add_row(
            row.name,
            row.input_dims or "",
            f"{row.test_n:,}",
            f"{row.diff_n:+,}",
            *times,
            row.change,
        )
    return table
