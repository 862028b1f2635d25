"""Which traces retention keeps out of the lake: those that its notices name, read once and kept in `.kept_out.sqlite`.

The notices (retention.py) are the truth: each row names the size and time of the notice that it was made from. The file may
be deleted at any time; one that is damaged or cannot be written only costs time.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

KEPT_OUT = ".kept_out.sqlite"
_TABLE = "CREATE TABLE IF NOT EXISTS notices (path BLOB PRIMARY KEY, stamp TEXT NOT NULL, traces TEXT NOT NULL) WITHOUT ROWID"
_FEW = 8  # notices that are read as fast as the file


def traces_of(root: Path, folders: tuple[Path, ...], read: Callable[[Path], list[str]]) -> set[str]:
    """Returns the traces that the notices in these folders name. `read` returns those of one notice. Raises OSError."""
    stamps = dict(entry for folder in folders for entry in _stamps(folder))
    kept = _kept(root) if len(stamps) > _FEW else {}
    current = {path: kept[path][1] for path, stamp in stamps.items() if path in kept and kept[path][0] == stamp}
    new = {}
    for path in stamps.keys() - current.keys():
        try:
            new[path] = read(Path(path))
        except FileNotFoundError:  # moved from one folder to the other meanwhile, which was listed later
            continue
    if len(stamps) > _FEW and (new or kept.keys() - stamps.keys()):
        _keep(root, {path: (stamps[path], traces) for path, traces in new.items()}, kept.keys() - stamps.keys())
    return {trace for traces in (*current.values(), *new.values()) for trace in traces}


def _stamps(folder: Path) -> Iterator[tuple[str, str]]:
    try:
        with os.scandir(folder) as found:
            for entry in found:
                if entry.name.endswith(".json"):
                    try:
                        stat = entry.stat()
                    except FileNotFoundError:  # moved to the removed ones meanwhile, which are listed later
                        continue
                    yield entry.path, f"{stat.st_size}:{stat.st_mtime_ns}"
    except (FileNotFoundError, NotADirectoryError):
        return


def _kept(root: Path) -> dict[str, tuple[str, list[str]]]:
    try:
        with closing(_connect(root, "ro")) as con:
            rows = con.execute("SELECT path, stamp, traces FROM notices").fetchall()
        return {os.fsdecode(path): (stamp, json.loads(traces)) for path, stamp, traces in rows}
    except (sqlite3.Error, ValueError, TypeError):
        return {}


def _keep(root: Path, rows: Mapping[str, tuple[str, list[str]]], gone: set[str]) -> None:
    try:
        with closing(_connect(root, "rwc")) as con, con:
            con.execute(_TABLE)
            given = [(os.fsencode(path), stamp, json.dumps(traces)) for path, (stamp, traces) in rows.items()]
            con.executemany("INSERT OR REPLACE INTO notices VALUES (?, ?, ?)", given)
            con.executemany("DELETE FROM notices WHERE path = ?", [(os.fsencode(path),) for path in gone])
    except sqlite3.OperationalError:  # another process writes it, or it cannot be written
        return
    except sqlite3.DatabaseError:  # damaged: the next run makes it again
        (root / KEPT_OUT).unlink(missing_ok=True)


def _connect(root: Path, mode: str) -> sqlite3.Connection:
    con = sqlite3.connect(f"file:{quote(os.fsencode(root / KEPT_OUT))}?mode={mode}", timeout=1, uri=True)
    con.execute("PRAGMA synchronous = OFF")  # after a power loss it is made again
    return con
