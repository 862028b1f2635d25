"""`tracelake timeline`: all ranks of a capture as one trace."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pipelines.base import units
from pipelines.faces.cli.console import err, out, print_json, styled
from pipelines.faces.cli.fleet.opened_capture import keep_trace, opened_capture
from pipelines.faces.cli.options import DEFAULT_LAKE, CaptureArgument, JsonOption, LakeOption, ProcessOption, out_option


def timeline(
    capture: CaptureArgument,
    out_file: Annotated[Path, out_option("Write the trace to this file, compressed if the name ends in .gz.")] = Path(
        "timeline.json.gz"
    ),
    step: Annotated[int | None, typer.Option(help="Only this profiler step.")] = None,
    without_python: Annotated[bool, typer.Option("--without-python", help="Leave out Python frames.")] = False,
    ranks: Annotated[
        int,
        typer.Option(
            min=0, help="Draw at most this many ranks: those that others wait for most, and the median rank; 0 for all."
        ),
    ] = 64,
    process: ProcessOption = None,
    lake: LakeOption = DEFAULT_LAKE,
    json: JsonOption = False,
) -> None:
    """Write one trace for Perfetto with all ranks of a capture on one clock; arrows tie each collective together.

    An arrow leads through the kernels of a collective in the order in which they start: its end is the rank that the others
    waited for.

    Example: `tracelake timeline /fleet/job42/ --step 3 --out step3.json.gz`
    """
    from pipelines.faces.drawings.timeline import TABLES, write_timeline
    from pipelines.fleet.path.answer import find_capture

    with opened_capture(capture, lake, TABLES, process=process) as (con, id_prefix):
        keep_trace(con, out_file)
        name = find_capture(con, id_prefix)
        written = write_timeline(con, name, out_file, step=step, with_python=not without_python, most=ranks)
    if written.left_out:
        err.print(styled("skipped {:,} events without a time", written.left_out))
    if json:
        document = {"path": str(written.path), "ranks": written.ranks, "not_aligned": written.not_aligned}
        document |= {"shown": written.shown} if written.shown else {}
        print_json({**document, "error_us": written.error_us, "n_arrows": written.n_arrows})
        return
    clocks = "" if written.error_us is None else f"; error of each clock at most {units.time_us(written.error_us)}"
    tied = f"{units.counted(len(written.ranks), 'rank')}, {units.counted(written.n_arrows, 'collective')} tied"
    out.print(f"{tied}{clocks}")
    if written.shown:
        out.print(f"drawn: {written.shown}; `--ranks 0` draws all", soft_wrap=True)
    if written.not_aligned:
        listed = ", ".join(map(str, written.not_aligned))
        err.line(
            "[yellow]not aligned:[/] rank {} (table clock_offsets contains the reason); do not compare their times",
            listed,
        )
    out.line("open in https://ui.perfetto.dev: [bold]{}[/]", written.path)
