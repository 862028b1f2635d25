"""`tracelake forget`: remove one trace from the lake."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Annotated

import typer

from pipelines.faces.cli.console import fail, out, print_json, progress
from pipelines.faces.cli.options import DEFAULT_LAKE, JsonOption, LakeOption


def forget(
    trace: Annotated[str, typer.Argument(help="The trace's id, or a unique prefix of it.")],
    lake: LakeOption = DEFAULT_LAKE,
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
    from pipelines.runs.store import open_store

    store = open_store(lake)
    with progress(None, "forgetting") as advance:
        forgotten = store.forget(trace, for_good, lambda text: advance(1, f"forgetting: {text}"))
        if store.has_captures_to_update():
            advance(1, "forgetting: recomputing its captures")
            _compute_captures(store.address)
    if json:
        print_json(asdict(forgotten))
        return
    again = (
        "its content will not be ingested again" if forgotten.for_good else "ingesting its file again brings it back"
    )
    out.print(
        f"trace {forgotten.trace_id} ({forgotten.path or 'path unknown'}) was removed, {forgotten.n_rows:,} rows; {again}"
    )


def _compute_captures(address: str) -> None:
    from pipelines.engines.in_process import InProcess
    from pipelines.engines.run import materialize_on
    from pipelines.models.catalog import load_catalog

    run = materialize_on(InProcess(), address, load_catalog().of_captures)
    if run.failed:
        raise fail(f"the trace was removed, but its captures were not recomputed: {run.failed[0].error}", f"Run `tracelake materialize --lake {shlex.quote(address)}`.")  # fmt: skip
