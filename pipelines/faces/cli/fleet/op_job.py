"""`tracelake op-job`: how long a job's steps would take without stragglers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from pipelines.base import units
from pipelines.faces.cli.console import fail, new_table, out, print_json, styled
from pipelines.faces.cli.options import JsonOption, local, out_option, path_option

if TYPE_CHECKING:
    from pipelines.fleet.op_job import WhatIf

_SCOPES = {"stage": "stages", "dp_rank": "dp ranks", "optype": "op types"}
_SHOWN = 12


def op_job(
    file: Annotated[
        Path, typer.Argument(help="Op-level trace of a job (Parquet).", metavar="FILE.parquet", parser=local)
    ],
    meta: Annotated[
        Path | None,
        path_option("Its sizes (YAML); by default X.yaml or meta-X.yaml next to trace-X.parquet.", "FILE.yaml"),
    ] = None,
    svg: Annotated[Path | None, out_option("Draw the scores (stages by dp ranks) as an SVG.")] = None,
    json: JsonOption = False,
) -> None:
    """How long a pipeline-parallel job's steps would take if no rank, stage or kind of op were slower than the others.

    A slowdown is what one part causes while everything else is ideal. Slowdowns do not add up, and the ideal of an op
    is taken over all stages: a stage that is longer by design counts as straggling, unless its own stage is its ideal.

    Example: `tracelake op-job trace-ST.parquet --out heat.svg`
    """
    from pipelines.fleet.op_job import read_job, what_if
    from pipelines.fleet.op_job.picture import score_heat_map

    if not file.is_file():
        raise fail(f"{file}: there is no such file", "Give the Parquet file of an op-level job trace.")
    result = what_if(read_job(file, meta))
    if json:
        print_json(_answer(result))
    else:
        _print(result)
    if svg:
        svg.write_text(score_heat_map(result), encoding="utf-8")
        if not json:
            out.line("open in a browser: [bold]{}[/]", svg)


def _answer(result: WhatIf) -> dict:
    from pipelines.fleet.op_job.result_rows import excess_rows, job_row, part_rows, score_rows, step_rows

    return {
        "job": job_row(result),
        "ideal_seconds": result.ideals,
        "parts": part_rows(result),
        "alone": {scope: excess_rows(result, scope) for scope in _SCOPES},
        "steps": step_rows(result),
        "rank_scores": score_rows(result),
    }


def _print(result: WhatIf) -> None:
    meta, lost = result.job.meta, result.gpu_seconds
    shape = f"{meta.pp} stages, {meta.dp} dp ranks, {meta.world_size} GPUs, {len(result.job.steps)} steps"
    out.print(styled("[bold]{}[/]: {}", meta.name, shape))
    means = [float(steps.mean()) for steps in (result.base, result.now, result.ideal)]
    out.print("mean step: {:.4f} s recorded, {:.4f} s without launch gaps, {:.4f} s ideal".format(*means))
    by_stage = result.parts[0].slowdown_stage_ideal or 0
    slowdown = styled("slowdown [bold]{:.4f}[/] ({:.4f} with one ideal per stage)", result.slowdown, by_stage)
    out.print(slowdown.append(f", by launch gaps {result.launch_slowdown:.4f}"))
    out.print(
        f"lost: {lost['straggler']:.2f} GPU-s to stragglers, {lost['launch']:.2f} to launch gaps, of {lost['total']:.1f}"
    )
    if result.scores is None:
        out.print("Too small to say which part is to blame.")
        return
    for scope, name in (("last_stage", "last stage"), ("worst_ranks", "worst ranks")):
        for key, part in result.of(scope).items():
            removed = "an unknown part" if part.explained is None else units.share(part.explained)
            out.print(f"{name} ({key}): making only these ideal removes {removed} of the loss")
    for scope, title in _SCOPES.items():
        out.print(_table(result, scope, title))
    out.print("Parts overlap: shares do not add up to 100 %, and the residual may be negative.", style="dim")


def _table(result: WhatIf, scope: str, title: str) -> Table:
    """Return a table of the parts of a scope, slowest first, and the residual."""
    from pipelines.fleet.op_job.result_rows import excess_rows

    shares = {row["key"]: row["share"] for row in excess_rows(result, scope)}
    parts = sorted(result.of(scope).items(), key=lambda item: -item[1].slowdown)
    headings = ("", ">slowdown", ">with one ideal per stage", ">alone, share of the job's loss")
    table = new_table(*headings, title=title)
    for key, part in parts[:_SHOWN]:
        table.add_row(key, f"{part.slowdown:.4f}", f"{part.slowdown_stage_ideal:.4f}", units.share(shares[key]))
    if hidden := parts[_SHOWN:]:
        table.add_row(f"{len(hidden)} more", "", "", units.share(sum(shares[key] for key, _ in hidden)))
    table.add_row("residual", "", "", units.share(shares["residual"]), style="dim")
    return table
