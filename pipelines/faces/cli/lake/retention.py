"""`tracelake retention`: remove old batches from the lake."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

import typer
from rich.table import Table

from pipelines.faces.cli.console import out, print_json
from pipelines.faces.cli.options import DEFAULT_LAKE, JsonOption, LakeOption


def retention(
    keep_days: Annotated[int, typer.Option(help="Keep batches ingested in the last DAYS days.", min=1, max=36_500)],
    lake: LakeOption = DEFAULT_LAKE,
    dry_run: Annotated[bool, typer.Option(help="Only say what would be done.")] = False,
    grace_hours: Annotated[
        float,
        typer.Option(
            help="How long hidden batches keep their files, for readers that have them open.", min=0, max=876_000
        ),
    ] = 24.0,
    json: JsonOption = False,
) -> None:
    """Remove old batches of traces from the lake: hide them now, delete their files after a grace period.

    Run it once a day: each run also deletes what earlier ones have hidden. Removed content is not ingested again;
    `.retired/` in the lake lists it; `tracelake check --rebuild` after deleting a batch's file there allows it.

    Example: `tracelake retention --keep-days 90 --dry-run`
    """
    from pipelines.runs.store import open_store

    store = open_store(lake)
    store.need_folder()
    batches = store.expire(keep_days, timedelta(hours=grace_hours), dry_run)
    if json:
        print_json([{name: value for name, value in asdict(batch).items() if value is not None} for batch in batches])
        return
    table = Table(title="would be" if dry_run else None, title_justify="left")
    for name in ("batch", "ingested", "state"):
        table.add_column(name)
    for name in ("traces", "files", "MB") if store.lake else ("traces",):
        table.add_column(name, justify="right")
    for batch in batches:
        size = () if batch.n_bytes is None else (f"{batch.n_files:,}", f"{batch.n_bytes / 1e6:,.1f}")
        table.add_row(batch.batch_id, batch.day, batch.state, f"{len(batch.traces):,}", *size)
    hidden = ", nothing is waiting to be deleted" if store.lake else ""
    out.print(table if batches else f"nothing is older than {keep_days} {'day' if keep_days == 1 else 'days'}{hidden}")
