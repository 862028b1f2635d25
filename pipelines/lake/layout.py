"""Names in a lake (names.py), and which files of a table there are, by the catalog."""

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
    """Returns the files of a table that are in place and not hidden, oldest batch first, committed by a mark or not."""
    return list(table_names(root, table).values())


def table_names(root: Path, table: str) -> dict[str, Path]:
    """Returns what `table_files` returns, by batch_id."""
    found = shown(root).items()
    return {name: table_file(root, table, entry.batch) for name, entry in found if table in entry.kind.places}
