"""Which files are settled: read in their present state, and found in `traces`, in `rejects`, or known by content.

The catalog has one row per file that ingestion finished. They only save time: without them files are read once more, and
known content is skipped.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.lake.commit.catalog_file import rows_of, writing
from pipelines.lake.lake import Lake


@dataclass(frozen=True)
class Outcome:
    """The outcome for a file in a state: `status` as in ingest's report, `part` for a file of a folder ingested as a
    whole.
    """

    state: str
    status: str
    trace_id: str | None = None


def state_of(path: Path) -> str:
    """Returns size and modification time, which identify one version of a file's content. Raises OSError."""
    stat = path.stat()
    return f"{stat.st_size}:{stat.st_mtime_ns}"


def states_of(paths: Iterable[Path]) -> dict[Path, str]:
    """Returns the existing files, each with its state, by absolute path."""
    found = {}
    for path in paths:
        try:
            found[path.absolute()] = state_of(path)
        except (OSError, ValueError):  # gone, unreadable or not a valid path: nothing is known about its content
            continue
    return found


def settle(lake: Lake, outcomes: Mapping[Path, Outcome]) -> None:
    """Record the outcome of files. Raises OSError if the lake cannot be written."""
    rows = [(os.fsencode(path), o.state, o.status, o.trace_id) for path, o in outcomes.items()]
    if rows:
        with writing(lake.root) as catalog:
            catalog.begin()
            catalog.con.executemany("INSERT OR REPLACE INTO settled VALUES (?, ?, ?, ?)", rows)


def settled(lake: Lake) -> dict[Path, Outcome]:
    """Returns every file that was settled. Raises OSError if the lake cannot be read."""
    rows = rows_of(lake.root, "SELECT path, state, status, trace_id FROM settled")
    return {Path(os.fsdecode(path)): Outcome(*rest) for path, *rest in rows}


def forget_missing(lake: Lake) -> int:
    """Drop the rows of files that no longer exist; returns how many. Raises OSError if the lake cannot be written."""
    gone = [(os.fsencode(path),) for path in settled(lake) if not os.path.lexists(path)]
    if gone:
        with writing(lake.root) as catalog:
            catalog.begin()
            catalog.con.executemany("DELETE FROM settled WHERE path = ?", gone)
    return len(gone)
