"""`tracelake check`: a check whether every file of the lake is as it was written."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from pipelines.faces.cli.console import fail, new_table, out, print_json, progress
from pipelines.faces.cli.options import DEFAULT_LAKE, JsonOption, LakeOption, is_store

_OF_DUCKLAKE = (
    "Restore the file from a copy of the bucket, or remove its traces with `tracelake forget` and ingest them again; `tracelake "
    "materialize` computes what is missing or out of date."
)


def check(
    lake: LakeOption = DEFAULT_LAKE,
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
    Of a DuckLake sizes and rows are compared with its catalog, and files are read through; nothing is repaired.

    Example: `tracelake check --lake /data/lake --json`
    """
    from pipelines.lake import Lake
    from pipelines.runs.check import check as check_lake

    if is_store(lake) and (repair or rebuild):
        raise fail(
            "--repair and --rebuild are for a lake in a folder: a DuckLake's catalog is its database", _OF_DUCKLAKE
        )
    if not is_store(lake) and not lake.is_dir():
        raise fail(f"there is no lake in {lake}", "Name its folder with --lake or TRACELAKE_LAKE.")
    if rebuild:
        from pipelines.lake.commit.catalog_file import rebuild as make_again

        make_again(Lake(lake).root)
    with progress(None, "reading") as advance:
        if is_store(lake):
            from pipelines.runs.store.ducklake.file_check import check as check_store
            from pipelines.runs.store.ducklake.store import DuckLakeStore

            report = check_store(DuckLakeStore(lake), lambda name: advance(1, name))
        else:
            report = check_lake(Lake(lake), repair, lambda name: advance(1, name))
    unrepaired = [fault for fault in report.faults if fault.repaired is None]
    if json:
        counts = {"files": report.n_files, "not_recorded": report.n_not_recorded, "broken": len(unrepaired)}
        print_json({**counts, "faults": [asdict(fault) for fault in report.faults]})
    else:
        _show(report, is_store(lake))
    if unrepaired:
        raise typer.Exit(1)


def _show(report, is_ducklake: bool) -> None:
    if report.faults:
        table = new_table("file", "why", "traces", "repaired")
        for fault in report.faults:
            keys = ", ".join(fault.keys[:3]) + (f" and {len(fault.keys) - 3} more" if len(fault.keys) > 3 else "")
            table.add_row(fault.path, fault.why, keys, fault.repaired or "")
        out.print(table)
    out.print(f"{report.n_files:,} files read, {len(report.faults):,} faults found")
    if is_ducklake:
        out.print("a DuckLake has no checksums: sizes and rows are those of its catalog, and every value could be read")
    elif report.n_not_recorded:
        out.print(
            f"{report.n_not_recorded:,} files have no checksums, because the catalog was made again since: they are readable"
        )
