"""`tracelake stragglers`: the rank that the others wait for."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from pipelines.base import units
from pipelines.faces.cli.console import fail, new_table, out, print_json, styled
from pipelines.faces.cli.fleet.opened_capture import opened_capture
from pipelines.faces.cli.options import (
    DEFAULT_LAKE,
    CaptureArgument,
    JsonOption,
    LakeOption,
    ProcessOption,
    out_option,
    path_option,
)

if TYPE_CHECKING:
    from pipelines.fleet.stragglers import Row, Stragglers

_SHOWN = 16


def stragglers(
    capture: CaptureArgument,
    svg: Annotated[Path | None, out_option("Draw a rank-by-step heat map as an SVG.")] = None,
    metric: Annotated[
        str, typer.Option(help="Draw this metric: caused_wait, wait, marginal, compute or step.")
    ] = "caused_wait",
    roles: Annotated[
        Path | None,
        path_option(
            "Read groups of ranks from this CSV file; for trace files only. Columns: rank, role, group (and job).",
            "FILE.csv",
        ),
    ] = None,
    process: ProcessOption = None,
    lake: LakeOption = DEFAULT_LAKE,
    json: JsonOption = False,
) -> None:
    """Which rank the others wait for, and what it costs: by rank, group of ranks and step.

    The rank with the longest collectives is the victim; the one with the shortest is the culprit.

    Example: `tracelake stragglers /fleet/job42/ --out heat.svg`
    """
    from pipelines.fleet.heat_map import METRICS, rank_step_heat_map
    from pipelines.fleet.path.answer import find_capture
    from pipelines.fleet.stragglers import TABLES, stragglers_of

    if f"{metric}_ns" not in METRICS:
        raise fail(f"no metric {metric!r}", f"There are: {', '.join(name.removesuffix('_ns') for name in METRICS)}")
    with opened_capture(capture, lake, TABLES, roles, process=process) as (con, id_prefix):
        result = stragglers_of(con, find_capture(con, id_prefix))
    if json:
        print_json({**asdict(result), "stragglers": result.stragglers})
    else:
        _print(result)
    if svg:
        cells, which = result.drawn()
        title = f"{result.job or 'capture ' + result.capture_id}: {which or f'{result.n_ranks} ranks'}"
        svg.write_text(rank_step_heat_map(title, cells, f"{metric}_ns", frozenset(result.stragglers)), encoding="utf-8")
        if not json:
            if which:
                out.print(f"drawn: {which}; table rank_steps has all", soft_wrap=True)
            out.line("open in a browser: [bold]{}[/]", svg)


def _print(result: Stragglers) -> None:
    from pipelines.fleet.collectives.evidence import evidence_in_words

    world = "" if result.world_size is None else f" of {result.world_size}"
    out.print(styled("[bold]{}[/]: {}{} ranks", result.job or result.capture_id, result.n_ranks, world))
    if result.ranks:
        out.print(_ranks(result))
        if result.groups:
            out.print(_groups(result.groups))
        out.print(_verdict(result), soft_wrap=True)
        if result.matched_by:
            out.print(evidence_in_words(list(result.matched_by)), soft_wrap=True)
    else:
        out.print("no collective could be matched on all ranks, so who waits for whom is unknown", style="yellow")
    for row in result.quality:
        colour = "yellow" if row["severity"] == "warning" else "dim"
        out.line(f"[{colour}]{{}}:[/] {{}}", row["check_name"], row["detail"])


def _verdict(result: Stragglers) -> Text:
    if result.agreement is None:
        return styled("[yellow]clocks are not aligned, so the culprits are uncertain and no straggler is named[/]")
    agreed = f"durations and clocks name the same culprit in {100 * result.agreement:.0f} % of the collectives"
    if result.culprit_uncertain:
        return styled("[yellow]culprits uncertain:[/] {}", agreed)
    if result.undetermined:
        agreed = f"{agreed}; {result.undetermined}"
    return styled("[bold]{}[/]; {}" if result.stragglers else "{}; {}", result.named, agreed)


def _ranks(result: Stragglers) -> Table:
    headings = (">rank", ">waits", ">causes waiting", ">share", ">goes back to it", ">late", ">gain if fixed")
    table = new_table(*headings, ">of the span", ">last", ">clock")
    for row in result.ranks[:_SHOWN]:
        style = "bold red" if row["is_straggler"] else ""
        last = f"{row['n_last']} of {row['n_collectives']}"
        table.add_row(str(row["rank"]), *_waits(row), last, _clock(row), style=style)
    if len(result.ranks) > _SHOWN:
        table.add_row(f"{len(result.ranks) - _SHOWN} more", style="dim")
    return table


def _waits(row: Row) -> list[str]:
    share, root = row["caused_percent"], row["root_percent"]
    return [
        units.time(row["wait_ns"]),
        units.time(row["caused_wait_ns"]),
        "" if share is None else f"{share:.1f} %",
        "" if root is None else f"{root:.1f} %",
        *(_time(row[name]) for name in ("late_ns", "marginal_ns")),
        "" if row["marginal_percent"] is None else f"{row['marginal_percent']:.1f} %",
    ]


def _clock(row: Row) -> str:
    """Return the offset of the rank's clock with its error, in us. A digest has no clocks."""
    if row["offset_ns"] is None:
        return "not kept" if row["clock_refused"] is None else "not aligned"
    return f"{row['offset_ns'] / 1000:+,.1f} ± {row['error_ns'] / 1000:.1f} us"


def _groups(groups: list[Row]) -> Table:
    table = new_table("role", "group", ">ranks", ">wait", ">cause waiting", ">share", ">worst rank")
    top_groups = _worst_of_each_role(groups)
    for row in top_groups:
        caused = "" if row["caused_percent"] is None else f"{row['caused_percent']:.1f} %"
        waits = [_time(row["wait_ns"]), _time(row["caused_wait_ns"])]
        table.add_row(
            row["role"],
            row["group_name"],
            str(row["n_ranks"]),
            *waits,
            caused,
            "" if row["worst_rank"] is None else str(row["worst_rank"]),
        )
    if len(groups) > len(top_groups):
        table.add_row(f"{len(groups) - len(top_groups)} more", style="dim")
    return table


def _worst_of_each_role(groups: list[Row]) -> list[Row]:
    """Return all groups if they are few, else equally many of each role.

    A large job has hundreds of pairs of stages.
    """
    if len(groups) <= _SHOWN:
        return groups
    by_role: dict[str, list[Row]] = {}
    for row in groups:
        by_role.setdefault(row["role"], []).append(row)
    return [row for rows in by_role.values() for row in rows[: max(_SHOWN // len(by_role), 1)]]


def _time(ns: int | None) -> str:
    return "unknown" if ns is None else units.time(ns)
