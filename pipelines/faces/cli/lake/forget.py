"""`tracelake forget`: remove one trace from the lake."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pipelines.faces.cli.console import DEFAULT_LAKE, JsonOption, fail, folder_option, out, print_json, progress

_OF_DUCKLAKE = "`tracelake retention` removes its traces by age"


def forget(
    trace: Annotated[str, typer.Argument(help="The trace's id, or a unique prefix of it.")],
    lake: Annotated[Path, folder_option(_OF_DUCKLAKE)] = DEFAULT_LAKE,
    for_good: Annotated[
        bool, typer.Option("--for-good", help="Never ingest its content again, from whatever file.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Remove one trace from every table; its capture is recomputed.

    It is hidden at once; the next run completes one that was killed. Ingesting its file again brings it back,
    unless --for-good.

    Example: `tracelake forget 3f2a91 --lake /data/lake`
    """
    from pipelines.lake import Lake
    from pipelines.runs.forget import forget as forget_trace

    if not lake.is_dir():
        raise fail(f"there is no lake in {lake}", "Name its folder with --lake or TRACELAKE_LAKE.")
    with progress(None, "forgetting") as advance:
        gone = forget_trace(Lake(lake), trace, for_good, on_step=lambda text: advance(1, f"forgetting: {text}"))
    if json:
        print_json(asdict(gone))
        return
    again = "its content will not be ingested again" if gone.for_good else "ingesting its file again brings it back"
    out.print(f"trace {gone.trace_id} ({gone.path or 'path unknown'}) is gone, {gone.n_rows:,} rows; {again}")
