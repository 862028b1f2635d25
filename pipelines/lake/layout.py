"""Names in a lake (names.py), and the files of a table, as the catalog lists them."""

from __future__ import annotations

from pathlib import Path

from pipelines.lake.commit.manifest import shown
from pipelines.lake.names import (
    ANALYST,
    ANALYST_TEMP,
    CAPTURE_MARK,
    CAPTURE_RANKS,
    CAPTURE_TABLES,
    DUMP_MARK,
    GROWING,
    JOB_MARK,
    KEYS,
    MARK,
    OVERLAYS,
    PAGES,
    QUARANTINE,
    RECORDING_MARK,
    REJECTS,
    RETIRED,
    RUN_MARK,
    STAGING,
    VERSION_KEY,
    Batch,
    batch_files,
    batch_of,
    file_names,
    mark_of,
    table_file,
    table_of,
    tables_of,
)

__all__ = [
    "ANALYST",
    "ANALYST_TEMP",
    "CAPTURE_MARK",
    "CAPTURE_RANKS",
    "CAPTURE_TABLES",
    "DUMP_MARK",
    "GROWING",
    "JOB_MARK",
    "KEYS",
    "MARK",
    "OVERLAYS",
    "PAGES",
    "QUARANTINE",
    "RECORDING_MARK",
    "REJECTS",
    "RETIRED",
    "RUN_MARK",
    "STAGING",
    "VERSION_KEY",
    "Batch",
    "batch_files",
    "batch_of",
    "file_names",
    "mark_of",
    "table_file",
    "table_files",
    "table_names",
    "table_of",
    "tables_of",
]


def table_files(root: Path, table: str) -> list[Path]:
    """Return the visible files of a table, oldest batch first, whether or not a marker commits them.

    Files of batches that retention or a merge hides are not visible.
    """
    return list(table_names(root, table).values())


def table_names(root: Path, table: str) -> dict[str, Path]:
    """Return the files that `table_files` returns, by batch_id."""
    entries_by_id = shown(root).items()
    return {name: table_file(root, table, entry.batch) for name, entry in entries_by_id if table in entry.kind.places}
