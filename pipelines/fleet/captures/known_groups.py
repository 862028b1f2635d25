"""Which folders' traces may form other captures than when all were last compared, by the catalog of the lake.

Captures are formed folder by folder (captures.py), so that only folders with new or removed traces have to be looked at.
The catalog keeps, for each batch of traces, a sum over its traces and the folders that they came from, and for each folder its
captures, as of the end of a run after which the tables of captures agreed with all traces. Where that is
not known, or of other roles or another version of this program, all traces are grouped.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.fleet.captures.grouping import Capture, folder_of
from pipelines.lake.commit.catalog_file import record_of, rows_of, writing
from pipelines.lake.layout import CAPTURE_MARK, MARK, table_names
from pipelines.lake.read.snapshot import Now
from pipelines.models.cache import digest_of
from pipelines.models.sources import code_digest

GROUPED = "grouped"  # the record of the catalog that says of which inputs the tables `grouped…` are
_MOST = 50
"""Folders: where more changed, all traces are grouped."""


@dataclass(frozen=True)
class Grouped:
    """What is to be looked at. `folders`: None for all; `before`: the captures that these had; `serial`: of the file."""

    folders: frozenset[str] | None
    before: frozenset[str] = frozenset()
    serial: int | None = None
    added: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


ALL = Grouped(None)


def inputs(roles: bytes) -> str:
    """Returns a hash over what captures depend on besides the traces: the content of roles.csv, and this program."""
    return digest_of([roles, code_digest()])


def touched(root: Path, now: Now, given: str) -> Grouped:
    """Returns which folders' traces changed since the file was written; ALL where that is not known. `given`: see inputs."""
    told = record_of(root, GROUPED)
    if not told or told["inputs"] != given:
        return ALL
    kept = {name: (stamp, json.loads(folders)) for name, stamp, folders in rows_of(root, "SELECT * FROM grouped")}
    stamps = {name: _stamp(now, name) for name in now.marks[MARK]}
    if any(stamp is None and name not in now.marks[CAPTURE_MARK] for name, (stamp, _) in kept.items()):
        return ALL  # the tables of captures are not as they were
    before = {name: found for name, found in kept.items() if found[0] is not None}
    added = tuple(name for name, stamp in stamps.items() if name not in before or before[name][0] != stamp)
    gone = tuple(name for name in before if before[name][0] != stamps.get(name))
    folders = {folder for name in gone for folder in before[name][1]}
    for name in added:
        if (found := _folders(now, name)) is None:
            return ALL
        folders |= found
    if len(folders) > _MOST:
        return ALL
    marks = ", ".join("?" * len(folders))
    query = f"SELECT capture_id FROM grouped_captures WHERE folder IN ({marks})"
    captures = frozenset(name for (name,) in rows_of(root, query, tuple(sorted(folders))))
    return Grouped(frozenset(folders), captures, told["serial"], added, gone)


def note(root: Path, now: Now, given: str, seen: Grouped, captures: Mapping[str, Capture]) -> None:
    """Record that the tables of captures agree with all traces of `now`. `captures`: those of the folders in `seen`.

    A lake that cannot be written only costs time.
    """
    if seen.folders is not None and not seen.added and not seen.gone:
        return
    try:
        _note(root, now, given, seen, captures)
    except OSError:
        return


def _note(root: Path, now: Now, given: str, seen: Grouped, captures: Mapping[str, Capture]) -> None:
    is_all = seen.folders is None
    names = [name for name in now.marks[MARK] if _folders(now, name) is not None] if is_all else list(seen.added)
    with writing(root) as catalog:
        told = record_of(root, GROUPED)
        catalog.record(GROUPED, None)
        if is_all and len(names) < len(now.marks[MARK]):
            return
        if not is_all and (told is None or told["serial"] != seen.serial):
            return  # another run wrote it meanwhile: neither knows what the other found
        con = catalog.con
        if is_all:
            con.execute("DELETE FROM grouped")
            con.execute("DELETE FROM grouped_captures")
        con.executemany("DELETE FROM grouped WHERE batch_id = ?", [(name,) for name in seen.gone])
        con.executemany("DELETE FROM grouped_captures WHERE folder = ?", [(one,) for one in seen.folders or ()])
        rows = [(name, _stamp(now, name), json.dumps(sorted(_folders(now, name) or ()))) for name in names]
        # As they are now: if one of those just written goes, its captures have to be computed again.
        rows += [(name, None, "[]") for name in table_names(root, CAPTURE_MARK)]
        con.executemany("INSERT OR REPLACE INTO grouped VALUES (?, ?, ?)", rows)
        of_folders = {(folder_of(m.trace.path), name) for name, c in captures.items() for m in c.members}
        con.executemany("INSERT OR REPLACE INTO grouped_captures VALUES (?, ?)", sorted(of_folders))
        catalog.record(GROUPED, {"inputs": given, "serial": (seen.serial or 0) + 1})


def _stamp(now: Now, name: str) -> str:
    """Returns what changes when the traces of a batch change."""
    entry = now.entries.get(name)
    if entry is None or name in now.loose or MARK not in entry.kind.places:
        return now.stamps[name]
    # The size, too: a log does not tell that the last trace has gone.
    return f"{zlib.crc32(entry.keys.encode()):08x} {entry.sizes[entry.kind.places[MARK]]}"


def _folders(now: Now, name: str) -> set[str] | None:
    entry = now.entries.get(name)
    paths: Iterable[str | None] | None = (entry.key_paths() or {}).values() if entry else None
    if not paths or name in now.loose:
        return None
    found = {None if path is None else folder_of(path) for path in paths}
    return None if None in found else {folder for folder in found if folder is not None}
