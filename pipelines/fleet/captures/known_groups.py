"""The folders whose captures may have changed since the last run, according to the lake's catalog.

A capture never spans folders (grouping.py), so only the traces of folders with new or removed traces are regrouped. For
each batch of traces, the catalog contains a stamp of its traces and their folders. For each folder, it contains the
captures. A run writes this record at its end if the tables of captures agree with all traces. All traces are regrouped
if there is no valid record, or if the roles or this program have changed.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.fleet.captures.grouping import Capture, folder_of
from pipelines.lake.commit.catalog_file import record_of, rows_of, writing
from pipelines.lake.commit.model_failures import lacking
from pipelines.lake.names import CAPTURE_MARK, MARK
from pipelines.lake.read.snapshot import Now
from pipelines.lake.table_files import table_names
from pipelines.models.cache import digest_of
from pipelines.models.sources import code_digest

GROUPED = "grouped"  # the catalog's record of the inputs of its tables `grouped` and `grouped_captures`
_MOST = 50
"""Maximum number of changed folders. If more folders changed, all traces are regrouped."""


@dataclass(frozen=True)
class Grouped:
    """The folders to regroup. `folders`: None for all folders.

    `before`: the captures that these folders had when the record was written. `serial`: the serial number of the
    record. `added`, `gone`: batches of traces that were added or removed since then. A changed batch is in both.
    """

    folders: frozenset[str] | None
    before: frozenset[str] = frozenset()
    serial: int | None = None
    added: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


ALL = Grouped(None)


def inputs(roles: bytes) -> str:
    """Return a hash over the inputs of captures other than the traces: the content of roles.csv, and this program."""
    return digest_of([roles, code_digest()])


def touched(root: Path, now: Now, inputs_hash: str) -> Grouped:
    """Return the folders whose traces changed since the record was written.

    Return ALL if these folders are unknown or too many, or if `inputs_hash`, the current hash of `inputs`, has changed.
    """
    record = record_of(root, GROUPED)
    if not record or record["inputs"] != inputs_hash:
        return ALL
    recorded = {name: (stamp, json.loads(folders)) for name, stamp, folders in rows_of(root, "SELECT * FROM grouped")}
    stamps = {name: _stamp(now, name) for name in now.marks[MARK]}
    if any(stamp is None and name not in now.marks[CAPTURE_MARK] for name, (stamp, _) in recorded.items()):
        return ALL  # a table of captures that the record lists no longer exists
    before = {name: entry for name, entry in recorded.items() if entry[0] is not None}
    added = tuple(name for name, stamp in stamps.items() if name not in before or before[name][0] != stamp)
    gone = tuple(name for name in before if before[name][0] != stamps.get(name))
    folders = {folder for name in gone for folder in before[name][1]}
    for name in added:
        if (folders_of_batch := _folders(now, name)) is None:
            return ALL
        folders |= folders_of_batch
    if len(folders) > _MOST:
        return ALL
    marks = ", ".join("?" * len(folders))
    query = f"SELECT capture_id FROM grouped_captures WHERE folder IN ({marks})"
    captures = frozenset(name for (name,) in rows_of(root, query, tuple(sorted(folders))))
    return Grouped(frozenset(folders), captures, record["serial"], added, gone)


def note(root: Path, now: Now, inputs_hash: str, seen: Grouped, captures: Mapping[str, Capture]) -> None:
    """Record that the tables of captures agree with all traces of `now`.

    `captures`: the captures of the folders in `seen`. If no batch changed, the record is still valid and stays. If the
    lake is not writable, do nothing, because a missing record only costs time.
    """
    if seen.folders is not None and not seen.added and not seen.gone:
        return
    try:
        _note(root, now, inputs_hash, seen, captures)
    except OSError:
        return


def _note(root: Path, now: Now, inputs_hash: str, grouped: Grouped, captures: Mapping[str, Capture]) -> None:
    is_all = grouped.folders is None
    names = [name for name in now.marks[MARK] if _folders(now, name) is not None] if is_all else list(grouped.added)
    with writing(root) as catalog:
        record = record_of(root, GROUPED)
        catalog.record(GROUPED, None)
        if is_all and len(names) < len(now.marks[MARK]):
            return
        if not is_all and (record is None or record["serial"] != grouped.serial):
            # Another run wrote the record in the meantime, and neither run knows the other's changes.
            return
        con = catalog.con
        if is_all:
            con.execute("DELETE FROM grouped")
            con.execute("DELETE FROM grouped_captures")
        con.executemany("DELETE FROM grouped WHERE batch_id = ?", [(name,) for name in grouped.gone])
        con.executemany(
            "DELETE FROM grouped_captures WHERE folder = ?", [(folder,) for folder in grouped.folders or ()]
        )
        rows = [(name, _stamp(now, name), json.dumps(sorted(_folders(now, name) or ()))) for name in names]
        # Also record the current tables of captures. If one of them is deleted, its captures must be recomputed.
        rows += [(name, None, "[]") for name in table_names(root, CAPTURE_MARK)]
        con.executemany("INSERT OR REPLACE INTO grouped VALUES (?, ?, ?)", rows)
        folder_rows = {
            (folder_of(member.trace.path), name) for name, capture in captures.items() for member in capture.members
        }
        con.executemany("INSERT OR REPLACE INTO grouped_captures VALUES (?, ?)", sorted(folder_rows))
        catalog.record(GROUPED, {"inputs": inputs_hash, "serial": (grouped.serial or 0) + 1})


def _stamp(now: Now, name: str) -> str:
    """Return a text that changes if a batch's traces change, or the tables that do not contain one of them."""
    entry = now.entries.get(name)
    if entry is None or name in now.loose or MARK not in entry.kind.places:
        return now.stamps[name]
    absent = lacking({name: entry})
    text = f"{entry.keys}{sorted(absent.items())}" if absent else entry.keys
    return f"{zlib.crc32(text.encode()):08x}"


def _folders(now: Now, name: str) -> set[str] | None:
    """Return the folders of a batch's traces, or None if any is unknown."""
    entry = now.entries.get(name)
    keys = entry.key_paths() if entry else None
    if keys is None or name in now.loose:
        return None
    folders = {None if path is None else folder_of(path) for path in keys.values()}
    return None if None in folders else {folder for folder in folders if folder is not None}
