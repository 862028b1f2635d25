"""A store that is no folder, for commands that read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def connection(address: str, locked: bool) -> Callable[[Any], Any]:
    """How LockedLake connects to a DuckLake. Its tables are as they were committed: nothing is computed first."""
    from pipelines.store import open_store

    return lambda settings: open_store(address).connect(settings, locked=locked)
