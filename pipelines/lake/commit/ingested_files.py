"""Settled files, which ingestion has read in their present state and need not read again.

Such a file is in `traces`, in `rejects`, or has known content. The catalog has one row per settled file. The rows only
save time. Without them, ingestion reads the files again and skips known content.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.lake.commit.catalog_file import rows_of, writing
from pipelines.lake.lake import Lake

_BETWEEN = "\n"  # separator of the ids in a row


@dataclass(frozen=True)
class Outcome:
    """The outcome of ingesting a file in a state.

    `status`: the status in ingest's report, `rejected` if one of its traces was rejected, or `part` for a file of a
    set. `trace_ids`: the ids of its traces, or the key of the set.
    """

    state: str
    status: str
    trace_ids: tuple[str, ...] = ()


def state_of(path: Path) -> str:
    """Return size and modification time as text, which identify a version of the file's content. Raise OSError."""
    stat = path.stat()
    return f"{stat.st_size}:{stat.st_mtime_ns}"


def states_of(paths: Iterable[Path]) -> dict[Path, str]:
    """Return the state of each existing file, by absolute path."""
    state_by_path = {}
    for path in paths:
        try:
            state_by_path[path.absolute()] = state_of(path)
        except (OSError, ValueError):  # the file is deleted or unreadable, or the path is invalid
            continue
    return state_by_path


def settle(lake: Lake, outcomes: Mapping[Path, Outcome]) -> None:
    """Record the outcomes of files. Raise OSError if the lake cannot be written."""
    rows = [(os.fsencode(path), o.state, o.status, _BETWEEN.join(o.trace_ids) or None) for path, o in outcomes.items()]
    if rows:
        with writing(lake.root) as catalog:
            catalog.begin()
            catalog.con.executemany("INSERT OR REPLACE INTO settled VALUES (?, ?, ?, ?)", rows)


def settled(lake: Lake) -> dict[Path, Outcome]:
    """Return the outcome of every settled file. Raise OSError if the lake cannot be read."""
    rows = rows_of(lake.root, "SELECT path, state, status, trace_id FROM settled")
    return {
        Path(os.fsdecode(path)): Outcome(state, status, tuple(ids.split(_BETWEEN)) if ids else ())
        for path, state, status, ids in rows
    }


def forget_missing(lake: Lake) -> int:
    """Delete the rows of files that no longer exist, and return their number. Raise OSError if that fails."""
    missing = [(os.fsencode(path),) for path in settled(lake) if not os.path.lexists(path)]
    if missing:
        with writing(lake.root) as catalog:
            catalog.begin()
            catalog.con.executemany("DELETE FROM settled WHERE path = ?", missing)
    return len(missing)


def forget_keys(lake: Lake, keys: Iterable[str]) -> None:
    """Delete the rows of files of these traces or sets, so that they are read again. Raise OSError if that fails."""
    with writing(lake.root) as catalog:
        catalog.begin()
        has_key = f"instr('{_BETWEEN}' || trace_id || '{_BETWEEN}', '{_BETWEEN}' || ? || '{_BETWEEN}')"
        catalog.con.executemany(f"DELETE FROM settled WHERE {has_key}", [(key,) for key in keys])
