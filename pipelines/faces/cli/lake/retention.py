"""`tracelake retention`: remove old batches from the lake."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from enum import StrEnum
from typing import Annotated

import typer
from rich.table import Table

from pipelines.faces.cli.console import fail, out, print_damaged, print_json, progress
from pipelines.faces.cli.options import DEFAULT_LAKE, JsonOption, LakeOption

_MOST_DAYS = 36_500


class Keep(StrEnum):
    """The part of old batches that is kept."""

    digest = "digest"


def retention(
    keep_days: Annotated[
        int | None, typer.Option(help="Keep batches ingested in the last DAYS days.", min=1, max=_MOST_DAYS)
    ] = None,
    keep: Annotated[
        Keep | None, typer.Option(help="Instead of removing old batches, keep this of them; with --older-than.")
    ] = None,
    older_than: Annotated[
        str, typer.Option(metavar="DAYS", help="With --keep: of batches ingested more than this ago, e.g. 14d.")
    ] = "",
    lake: LakeOption = DEFAULT_LAKE,
    dry_run: Annotated[bool, typer.Option(help="Only print what would be done.")] = False,
    grace_hours: Annotated[
        float,
        typer.Option(
            help="How long hidden batches keep their files, for readers that have them open.", min=0, max=876_000
        ),
    ] = 24.0,
    json: JsonOption = False,
) -> None:
    """Remove old batches of traces from the lake, or all but a digest: hide them now, delete their files after a grace period.

    A digest (--keep digest --older-than 14d) has the lengths of steps, GPU time by class, causes, the best fixes, the largest
    operators and kernels, and the waiting of each rank: `why`, `compare`, `fleet`, `regressions` and `jobs` answer from it.

    Run it once a day: each run also deletes what earlier ones have hidden. Removed content is not ingested again;
    `.retired/` in the lake lists it; `tracelake check --rebuild` after deleting a batch's file there allows it.

    Example: `tracelake retention --keep-days 90 --dry-run`
    """
    from pipelines.runs.store import open_store

    store, grace = open_store(lake), timedelta(hours=grace_hours)
    options = (keep_days is not None, keep is not None, bool(older_than))
    if options not in ((True, False, False), (False, True, True)):
        raise fail(
            "retention needs either --keep-days DAYS or --keep digest --older-than DAYS",
            "For example: tracelake retention --keep digest --older-than 14d",
        )
    store.need_folder()
    keep_days = keep_days or _days(older_than)
    with progress(None, "removing old batches") as advance:
        batches = store.expire(
            keep_days, grace, dry_run, to_digests=keep is not None, on_step=lambda step: advance(1, step)
        )
    print_damaged((batch.state for batch in batches), lake)
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


def _days(text: str) -> int:
    days = text.removesuffix("d")
    if not days.isdecimal() or not 1 <= int(days) <= _MOST_DAYS:
        raise fail(f"--older-than {text!r} is not a number of days from 1 to {_MOST_DAYS:,}", "For example: 14d")
    return int(days)
