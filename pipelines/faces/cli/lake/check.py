"""`tracelake check`: whether every file of the lake is as it was written."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from pipelines.faces.cli.console import DEFAULT_LAKE, JsonOption, fail, folder_option, out, print_json, progress

_OF_DUCKLAKE = (
    "its bucket and its database keep its files; `tracelake materialize` computes what is "
    "missing or out of date, `tracelake compact` removes what killed writers left"
)


def check(
    lake: Annotated[Path, folder_option(_OF_DUCKLAKE)] = DEFAULT_LAKE,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Recompute what can be recomputed; move the rest to .quarantine/ in the lake."),
    ] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="First make catalog.sqlite again from the Parquet files alone.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Read every file of the lake and compare it with the size and checksum recorded when it was written.

    Exits with 1 while anything is damaged. Queries notice missing files and wrong sizes by themselves;
    this finds every changed bit. What --repair removes gets rows in `rejects` and can be ingested again.
    After --rebuild files have no checksums: they are read through. A damaged catalog is made again without it.

    Example: `tracelake check --lake /data/lake --json`
    """
    from pipelines.lake import Lake
    from pipelines.runs.check import check as check_lake

    if not lake.is_dir():
        raise fail(f"there is no lake in {lake}", "Name its folder with --lake or TRACELAKE_LAKE.")
    if rebuild:
        from pipelines.lake.commit.catalog_file import rebuild as make_again

        make_again(Lake(lake).root)
    with progress(None, "reading") as advance:
        found = check_lake(Lake(lake), repair, lambda name: advance(1, name))
    left = [fault for fault in found.faults if fault.repaired is None]
    if json:
        counts = {"files": found.n_files, "not_recorded": found.n_not_recorded, "broken": len(left)}
        print_json({**counts, "faults": [asdict(fault) for fault in found.faults]})
    else:
        _show(found)
    if left:
        raise typer.Exit(1)


def _show(found) -> None:
    if found.faults:
        table = Table("file", "why", "traces", "repaired")
        for fault in found.faults:
            keys = ", ".join(fault.keys[:3]) + (f" and {len(fault.keys) - 3} more" if len(fault.keys) > 3 else "")
            table.add_row(fault.path, fault.why, keys, fault.repaired or "")
        out.print(table)
    out.print(f"{found.n_files:,} files read, {len(found.faults):,} faults found")
    if found.n_not_recorded:
        out.print(
            f"{found.n_not_recorded:,} files have no checksums, because the catalog was made again since: they are readable"
        )
