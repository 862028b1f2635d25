"""Which files are settled: read in their present state, and found in `traces`, in `rejects`, or known by content.

`.settled.sqlite` in the lake has one row per file that ingestion finished. It is only a cache: without it files are
read once more, and known content is skipped. So a damaged one is simply recreated.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from pipelines.lake.lake import Lake
from pipelines.lake.layout import SETTLED

_TABLE = (
    "CREATE TABLE IF NOT EXISTS settled"
    " (path BLOB PRIMARY KEY, state TEXT NOT NULL, status TEXT NOT NULL, trace_id TEXT, at REAL NOT NULL) WITHOUT ROWID"
)


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
    rows = [(os.fsencode(path), o.state, o.status, o.trace_id, time.time()) for path, o in outcomes.items()]
    if rows:
        lake.root.mkdir(parents=True, exist_ok=True)
        with _opened(lake) as con:
            con.executemany("INSERT OR REPLACE INTO settled VALUES (?, ?, ?, ?, ?)", rows)


def settled(lake: Lake) -> dict[Path, Outcome]:
    """Returns every file that was settled. Raises OSError if the lake cannot be read."""
    if not (lake.root / SETTLED).exists():
        return {}
    with _opened(lake, read_only=True) as con:
        rows = con.execute("SELECT path, state, status, trace_id FROM settled").fetchall()
    return {Path(os.fsdecode(path)): Outcome(*rest) for path, *rest in rows}


def forget_missing(lake: Lake) -> int:
    """Drop the rows of files that no longer exist; returns how many. Raises OSError if the lake cannot be written."""
    gone = [(os.fsencode(path),) for path in settled(lake) if not os.path.lexists(path)]
    if gone:
        with _opened(lake) as con:
            con.executemany("DELETE FROM settled WHERE path = ?", gone)
    return len(gone)


@contextmanager
def _opened(lake: Lake, read_only: bool = False) -> Iterator[sqlite3.Connection]:
    """Opens the cache, recreated if it is damaged; committed when the block ends."""
    path = lake.root / SETTLED
    try:
        try:
            con = _connect(path, read_only)
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:  # overwritten or truncated: nothing is lost, see above
            path.unlink(missing_ok=True)
            con = _connect(path, read_only=False)
        with closing(con), con:
            yield con
    except sqlite3.Error as error:
        raise OSError(f"{path}: {error}") from None


def _connect(path: Path, read_only: bool) -> sqlite3.Connection:
    # Read a lake that is not writable as it is: SQLite would want to lock and roll back.
    name = f"file:{_quoted(path)}?mode=ro" if read_only else f"file:{_quoted(path)}"
    con = sqlite3.connect(name, timeout=60, uri=True)
    try:
        con.execute("PRAGMA synchronous = OFF")  # after a power loss, files are read again
        if not read_only:
            con.execute(_TABLE)
        con.execute("SELECT count(state), count(trace_id) FROM settled").fetchone()
    except sqlite3.Error:
        con.close()
        raise
    return con


def _quoted(path: Path) -> str:
    from urllib.parse import quote

    return quote(os.fsencode(path))
