"""`tracelake retention`: remove old batches from the lake."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer

from pipelines.faces.cli.console import fail, new_table, out, print_json
from pipelines.faces.cli.options import DEFAULT_LAKE, JsonOption, LakeOption


def retention(
    keep_days: Annotated[int, typer.Option(help="Keep batches ingested in the last DAYS days.", min=1)],
    lake: LakeOption = DEFAULT_LAKE,
    dry_run: Annotated[bool, typer.Option(help="Only say what would be done.")] = False,
    grace_hours: Annotated[
        float, typer.Option(help="How long hidden batches keep their files, for readers that have them open.", min=0)
    ] = 24.0,
    json: JsonOption = False,
) -> None:
    """Remove old batches of traces from the lake: hide them now, delete their files after a grace period.

    Run it once a day: each run also deletes what earlier ones have hidden. Removed content is not ingested again;
    `.retired/` in the lake lists it; `tracelake check --rebuild` after deleting a batch's file there allows it.

    Example: `tracelake retention --keep-days 90 --dry-run`
    """
    from pipelines.lake import Lake
    from pipelines.lake.retain.retention import retire

    grace, nothing = timedelta(hours=grace_hours), f"nothing is older than {keep_days} days"
    headings = ("batch", "ingested", "state", ">traces", ">files", ">MB")
    if isinstance(lake, str):
        from pipelines.runs.store import open_store

        batches, headings = open_store(lake).expire(keep_days, grace, dry_run), headings[:4]
    elif not lake.is_dir():
        raise fail(f"there is no lake in {lake}", "Name its folder with --lake or TRACELAKE_LAKE.")
    else:
        batches, nothing = retire(Lake(lake), keep_days, grace, dry_run), f"{nothing}, nothing is waiting to be deleted"
    if json:
        print_json([asdict(batch) for batch in batches])
        return
    table = new_table(*headings, title="would be" if dry_run else None)
    for batch in batches:
        files = () if isinstance(lake, str) else (f"{batch.n_files:,}", f"{batch.n_bytes / 1e6:,.1f}")
        table.add_row(batch.batch_id, batch.day, batch.state, f"{len(batch.traces):,}", *files)
    out.print(table if batches else nothing)
