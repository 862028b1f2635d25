"""Traces whose file ends early: every answer about them is about the part that was read, and says so on stderr."""

from __future__ import annotations

from typing import Any

from pipelines.faces.cli.console import err, styled

_SHOWN = 5


def tell_early_ends(con: Any) -> None:
    """Say which of the traces in `con` (tables `traces` and `findings`) are of a file that ends early."""
    found = con.execute("SELECT file FROM traces WHERE status = 'partial' ORDER BY file, trace_id").fetchall()
    for (file,) in found[:_SHOWN]:
        told = "ends early: all numbers are of the part before that, not of the whole run"
        err.print(styled("[yellow]caveat:[/] {} {}", file, told), soft_wrap=True)
    if len(found) > _SHOWN:
        err.print(styled("[yellow]caveat:[/] so do {:,} other files", len(found) - _SHOWN), soft_wrap=True)
