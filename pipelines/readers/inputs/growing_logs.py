"""Sizes at which growing files were ingested. Only a file that has grown since then replaces its earlier rows."""

from __future__ import annotations

from pipelines.base import database
from pipelines.lake.lake import Lake, committed_rows
from pipelines.lake.names import KEYS


def not_longer(known: dict[str, int], read: dict[str, int]) -> set[str]:
    """Return the keys of the sets of which the lake has at least what was read: another process read a longer log."""
    return {key for key, n_bytes in known.items() if n_bytes >= read.get(key, 0)}


def known_bytes(table: str, lake: Lake) -> dict[str, int]:
    """Return the decompressed size of each set, bytes, by its key in the commit marker table `table`."""
    files = lake.committed_files(table)
    if not files:
        return {}
    with database.scratch() as con:
        rows = database.rows_of(con, committed_rows(table, files))
    return {row[KEYS[table]]: row["unpacked_bytes"] for row in rows}
