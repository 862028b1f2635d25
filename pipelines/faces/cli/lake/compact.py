"""`tracelake compact`: merge the small batches of past days."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.faces.cli.console import new_table, out, print_damaged, print_json
from pipelines.faces.cli.options import DEFAULT_LAKE, JsonOption, LakeOption

if TYPE_CHECKING:
    from pipelines.runs.store import Store


def compact(
    lake: LakeOption = DEFAULT_LAKE,
    older_than: Annotated[
        int,
        typer.Option(
            help="Merge days that began at least this many days before today; 0: today's batches, too.",
            min=0,
            max=36_500,
        ),
    ] = 1,
    smaller_than: Annotated[
        float, typer.Option(help="Merge batches smaller than this many MB, until they are that large.", min=0.001)
    ] = 2048.0,
    dry_run: Annotated[bool, typer.Option(help="Only print what would be merged.")] = False,
    grace_hours: Annotated[
        float,
        typer.Option(
            help="How long merged batches keep their old files, for readers that have them open.", min=0, max=876_000
        ),
    ] = 24.0,
    json: JsonOption = False,
) -> None:
    """Merge the small batches of each past day into few large ones: fewer files, quicker queries and publishing.

    No answer changes, and nothing is computed again. Run it once a day: each run also deletes the files of batches that
    earlier runs have merged, or `retention` has hidden, after the grace period. A DuckLake merges files of all days,
    and files of killed writers are deleted.

    Example: `tracelake compact --dry-run`
    """
    from pipelines.lake.retain.compaction import compact as merge_batches
    from pipelines.runs.store import open_store

    store, grace = open_store(lake), timedelta(hours=grace_hours)
    if store.lake is None:
        _merge_files(store, grace, dry_run, json)
        return
    store.need_folder()
    result = merge_batches(store.lake, older_than, int(smaller_than * 1e6), grace, dry_run)
    print_damaged((merge.state for merge in result.merges), lake)
    if json:
        print_json(
            {
                "merges": [asdict(merge) for merge in result.merges],
                "removed": [asdict(batch) for batch in result.removed],
            }
        )
        return
    headings = ("day", "state", "into", ">batches", ">traces", ">files", ">then", ">MB", ">then")
    table = new_table(*headings, title="would be" if dry_run else None)
    for batch in result.merges:
        files = f"{batch.n_files:,}", "" if batch.n_files_after is None else f"{batch.n_files_after:,}"
        size = _mb(batch.n_bytes), _mb(batch.n_bytes_after)
        table.add_row(
            batch.day, batch.state, batch.into or "", f"{len(batch.batches):,}", f"{batch.n_traces:,}", *files, *size
        )
    out.print(table if result.merges else "there is nothing to merge")
    if result.removed:
        n_files, n_bytes = (
            sum(batch.n_files for batch in result.removed),
            sum(batch.n_bytes for batch in result.removed),
        )
        out.print(
            f"deleted {n_files:,} files ({_mb(n_bytes)} MB) of {len(result.removed):,} batches merged or hidden earlier"
        )


def _merge_files(store: Store, grace: timedelta, dry_run: bool, json: bool) -> None:
    """Merge the small files of a DuckLake, and print the number of files by table."""
    compacted = store.compact(dry_run, grace)
    swept = [] if dry_run else store.sweep()
    if json:
        print_json({"tables": [asdict(entry) for entry in compacted], "swept": [str(entry) for entry in swept]})
        return
    table = new_table("table", ">files", ">then", title="would be" if dry_run else None)
    for entry in compacted:
        table.add_row(entry.what, f"{entry.files_before:,}", f"{entry.files_after:,}")
    out.print(table if compacted else "there is nothing to merge")
    if swept:
        out.print(f"deleted {len(swept):,} files that killed writers left")


def _mb(n_bytes: int | None) -> str:
    return "" if n_bytes is None else f"{n_bytes / 1e6:,.1f}"
