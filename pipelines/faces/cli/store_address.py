"""DuckLake stores, for commands that only read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pipelines.faces.cli.console import err


def connection(address: str, locked: bool) -> Callable[[Any], Any]:
    """Return the function with which LockedLake connects to a DuckLake. Its tables are not recomputed first."""
    from pipelines.runs.store import open_store

    return lambda settings: open_store(address).connect(settings, locked=locked)


def tell_outdated(con: Any, tables: Iterable[str]) -> None:
    """Print on stderr which of these tables of a DuckLake are outdated: the current models would compute other rows."""
    from pipelines.runs.store.ducklake.outdated_tables import outdated

    for message in outdated(con, tables):
        err.line("[yellow]out of date:[/] {}", message)
