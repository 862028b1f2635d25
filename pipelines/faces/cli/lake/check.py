"""`tracelake check`: verification that no file of the lake has changed since it was written."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pipelines.base.units import counted
from pipelines.faces.cli.console import new_table, out, print_json, progress
from pipelines.faces.cli.options import DEFAULT_LAKE, JsonOption, LakeOption

if TYPE_CHECKING:
    from pipelines.runs.check import Checked


def check(
    lake: LakeOption = DEFAULT_LAKE,
    repair: Annotated[
        bool,
        typer.Option("--repair", help="Recompute what can be recomputed; move the rest to .quarantine/ in the lake."),
    ] = False,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="First rebuild catalog.sqlite from the Parquet files alone.")
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
    from pipelines.lake.version import MARKER, restore_layout
    from pipelines.runs.check import Fault
    from pipelines.runs.store import open_store

    is_restored = repair and Path(lake).is_dir() and restore_layout(Path(lake))
    with progress(None, "reading") as advance:
        report = open_store(lake).check(repair, rebuild, lambda name: advance(1, name))
    if is_restored:
        fault = Fault(str(Path(lake) / MARKER), "is damaged or lost", repaired="rewritten from the catalog")
        report = replace(report, faults=[fault, *report.faults])
    unrepaired = [fault for fault in report.faults if fault.repaired is None]
    if json:
        counts = {"files": report.n_files, "not_recorded": report.n_not_recorded, "broken": len(unrepaired)}
        print_json({**counts, "faults": [asdict(fault) for fault in report.faults]})
    else:
        _show(report)
    if unrepaired:
        raise typer.Exit(1)


def _show(report: Checked) -> None:
    if report.faults:
        table = new_table("file", "why", "traces", "repaired")
        for fault in report.faults:
            keys = ", ".join(fault.keys[:3]) + (f" and {len(fault.keys) - 3} more" if len(fault.keys) > 3 else "")
            table.add_row(fault.path, fault.why, keys, fault.repaired or "")
        out.print(table)
    out.print(f"{counted(report.n_files, 'file')} read, {counted(len(report.faults), 'fault')} found")
    if not report.has_checksums:
        out.print("a DuckLake has no checksums: sizes and rows are those of its catalog, and every value could be read")
    elif report.n_not_recorded:
        out.print(
            f"{report.n_not_recorded:,} files have no checksums, because the catalog has been rebuilt since then: they are readable"
        )
