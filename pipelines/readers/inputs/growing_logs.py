"""Inputs whose files grow: how much of each the lake has, so that only a longer one replaces what was read of it."""

from __future__ import annotations

from pipelines.base import database
from pipelines.lake.lake import Lake, committed_rows
from pipelines.lake.names import KEYS


def known_bytes(table: str, lake: Lake) -> dict[str, int]:
    """Returns how many unpacked bytes were last read of each set, by its key in the commit mark `table`."""
    files = lake.committed_files(table)
    if not files:
        return {}
    with database.scratch() as con:
        rows = database.rows_of(con, committed_rows(table, files))
    return {row[KEYS[table]]: row["unpacked_bytes"] for row in rows}
