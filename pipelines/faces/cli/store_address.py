"""A store that is not a folder, for commands that read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pipelines.faces.cli.console import err, styled


def connection(address: str, locked: bool) -> Callable[[Any], Any]:
    """How LockedLake connects to a DuckLake. Its tables are as they were committed: nothing is computed first."""
    from pipelines.runs.store import open_store

    return lambda settings: open_store(address).connect(settings, locked=locked)


def tell_outdated(con: Any, tables: Iterable[str]) -> None:
    """Say on stderr which of these tables of a DuckLake are not as the models of today would compute them."""
    from pipelines.runs.store.ducklake.outdated_tables import outdated

    for told in outdated(con, tables):
        err.print(styled("[yellow]out of date:[/] {}", told), soft_wrap=True)
