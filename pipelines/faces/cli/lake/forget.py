"""`tracelake forget`: remove one trace from the lake."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from pipelines.faces.cli.console import (
    DEFAULT_LAKE,
    AnyLakeOption,
    JsonOption,
    fail,
    is_store,
    out,
    print_json,
    progress,
)


def forget(
    trace: Annotated[str, typer.Argument(help="The trace's id, or a unique prefix of it.")],
    lake: AnyLakeOption = DEFAULT_LAKE,
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

    if not is_store(lake) and not lake.is_dir():
        raise fail(f"there is no lake in {lake}", "Name its folder with --lake or TRACELAKE_LAKE.")
    with progress(None, "forgetting") as advance:
        if is_store(lake):
            forgotten = _from_store(lake, trace, for_good, advance)
        else:
            forgotten = forget_trace(
                Lake(lake), trace, for_good, on_step=lambda text: advance(1, f"forgetting: {text}")
            )
    if json:
        print_json(asdict(forgotten))
        return
    again = (
        "its content will not be ingested again" if forgotten.for_good else "ingesting its file again brings it back"
    )
    out.print(
        f"trace {forgotten.trace_id} ({forgotten.path or 'path unknown'}) is gone, {forgotten.n_rows:,} rows; {again}"
    )


def _from_store(address: str, trace: str, for_good: bool, advance: Any) -> Any:
    from pipelines.engines.in_process import InProcess
    from pipelines.engines.run import materialize_on
    from pipelines.models.catalog import load_catalog
    from pipelines.runs.store.ducklake.forgetting import forget as forget_trace
    from pipelines.runs.store.ducklake.forgetting import has_captures
    from pipelines.runs.store.ducklake.store import DuckLakeStore

    store = DuckLakeStore(address)
    forgotten = forget_trace(store, trace, for_good)
    if has_captures(store):
        advance(1, "forgetting: computing its captures again")
        run = materialize_on(InProcess(), address, load_catalog().of_captures)
        if run.failed:
            raise fail(f"the trace is gone, but its captures were not computed again: {run.failed[0].error}", "Run `tracelake materialize`.")  # fmt: skip
    return forgotten
