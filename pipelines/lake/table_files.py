"""The files of a table according to the catalog."""

from __future__ import annotations

from pathlib import Path

from pipelines.lake.commit.manifest import shown
from pipelines.lake.names import table_file


def table_files(root: Path, table: str) -> list[Path]:
    """Return the visible files of a table, oldest batch first, whether or not a marker commits them.

    Files of batches that retention or a merge hides are not visible.
    """
    return list(table_names(root, table).values())


def table_names(root: Path, table: str) -> dict[str, Path]:
    """Return the files that `table_files` returns, by batch_id."""
    entries_by_id = shown(root).items()
    return {name: table_file(root, table, entry.batch) for name, entry in entries_by_id if table in entry.kind.places}
