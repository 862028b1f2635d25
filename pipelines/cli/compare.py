"""`tracelake compare`: two captures or traces side by side."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from pipelines.cli.query import open_analyst
from pipelines.cli.shared import DEFAULT_LAKE, JsonOption, LakeOption, fail, human_us, out, print_json


def compare(
    control: Annotated[str, typer.Argument(help="A capture or trace: its id, or the beginning of it.")],
    test: Annotated[str, typer.Argument(help="What is compared with it.")],
    lake: LakeOption = DEFAULT_LAKE,
    rank: Annotated[str, typer.Option(help="Of captures: a rank, `first` (the lowest) or `all`.")] = "first",
    step: Annotated[str, typer.Option(help="A profiler step, `first` (of each side) or `all`.")] = "first",
    by_name: Annotated[bool, typer.Option("--by-name", help="Do not tell the shapes of one name apart.")] = False,
    limit: Annotated[int, typer.Option(help="Rows shown of each device; 0 for all.")] = 15,
    json: JsonOption = False,
) -> None:
    """What one capture or trace does more, less or longer than another: operators and kernels by name and shape.

    As HTA's trace diff: counts and summed durations, test less control; `change` is of counts.

    Example: `tracelake compare 3f2a 91bc --rank all --step all --by-name`
    """
    from pipelines.fleet.compare import TABLES, CompareError
    from pipelines.fleet.compare import compare as differences

    con = open_analyst(lake, [table for table in TABLES if table != "traces"])
    try:
        rows = differences(con, control, test, _choice(rank, "rank"), _choice(step, "step"), not by_name)
    except CompareError as error:
        raise fail(
            str(error), "`tracelake sql 'SELECT * FROM capture_ranks'` lists captures and their traces."
        ) from None
    if json:
        print_json([asdict(row) for row in rows])
        return
    for device in ("gpu", "cpu"):
        found = [row for row in rows if row.device == device]
        changes = Counter(row.change for row in found)
        total = human_us(sum(row.diff_ns for row in found) / 1e3)
        counts = ", ".join(f"{changes[kind]} {kind}" for kind in _CHANGES)
        out.print(f"[bold]{device}[/]: {counts}; {total} in all", highlight=False)
        out.print(_table(found[: limit or None]))


_CHANGES = ("added", "deleted", "increased", "decreased", "unchanged")


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
            row.name.replace("[", "\\["),
            (row.input_dims or "").replace("[", "\\["),
            f"{row.test_n:,}",
            f"{row.diff_n:+,}",
            *times,
            row.change,
        )
    return table
