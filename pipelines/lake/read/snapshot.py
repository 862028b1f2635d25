"""What is committed in a lake at a moment, from the names of marks and the index of the logs: no table's file is opened.

A batch has a stamp, which changes when anything of it that is shown changes. For a batch whose log tells for certain
which files it has this is the log's size and time; for others ("loose": ones that a killed run left between two
steps, or whose log is lost) those of all its files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pipelines.lake.commit.manifest_index import Entry, entries
from pipelines.lake.layout import KEYS, REJECTS, Batch, batch_files, table_file, table_names
from pipelines.lake.read.damage import logs
from pipelines.lake.read.folder_times import folders_of
from pipelines.models.cache import digest_of


@dataclass(frozen=True)
class Now:
    """What is committed. `marks`: by mark, and for `rejects`, the batches that have its file; `stamps`: by batch.

    `read`: what all logs say; `entries`: without those of batches that retention hid.
    """

    root: Path
    read: Mapping[str, Entry]
    entries: Mapping[str, Entry]
    marks: Mapping[str, Mapping[str, Path]]
    stamps: Mapping[str, str]
    loose: frozenset[str]

    @cached_property
    def digest(self) -> str:
        """Returns a hash over the stamps of all batches."""
        return digest_of(f"{name}={stamp}" for name, stamp in self.stamps.items())

    def has(self, table: str, batch_id: str) -> bool:
        """Whether a committed batch has a file of this table."""
        if batch_id in self.loose:
            return table_file(self.root, table, Batch(batch_id)).exists()
        return table in self.entries[batch_id].kind.places


_memory: dict[Path, Now] = {}
_looked: dict[Path, tuple[str, Now]] = {}  # with the folders as they were before


def look(root: Path) -> Now:
    """Returns what is committed right now. Raises OSError if a file is removed meanwhile.

    It is the same object as before if no log and no name of a mark changed. If no folder changed, nothing else is looked at.
    """
    folders = folders_of(root) if root.is_dir() else None
    if folders and (kept := _looked.get(root)) and kept[0] == folders.digest:
        return kept[1]
    now = _look(root)
    if folders and folders.is_settled and not now.loose:  # files of loose batches may change in place
        _looked[root] = folders.digest, now
    return now


def _look(root: Path) -> Now:
    read = entries(root)  # before the names: what is put in place after this counts as changed next time
    shown = logs(root, read)
    marks = {mark: table_names(root, mark) for mark in (*KEYS, REJECTS)}
    before = _memory.get(root)
    if before and before.read is read and before.entries is shown and before.marks == marks and not before.loose:
        return before
    now = _memory[root] = _now(root, read, shown, marks)
    return now


def _now(
    root: Path, read: Mapping[str, Entry], shown: Mapping[str, Entry], marks: Mapping[str, Mapping[str, Path]]
) -> Now:
    of: dict[str, list[str]] = {}
    for mark, names in marks.items():
        for name in names:
            of.setdefault(name, []).append(mark)
    stamps, loose = {}, set()
    for name in sorted(of):
        entry = shown.get(name)
        if entry is not None and entry.is_plain and all(mark in entry.kind.places for mark in of[name]):
            stamps[name] = f"{entry.log} {' '.join(of[name])}"
        else:
            loose.add(name)
            log = entry.log if entry else ""
            stamps[name] = f"{log} {' '.join(sorted(map(_stamp, batch_files(root, name))))}"
    return Now(root, read, shown, marks, stamps, frozenset(loose))


def _stamp(path: Path) -> str:
    found = path.stat()
    return f"{path.parts[-3]}/{path.name}:{found.st_size}:{found.st_mtime_ns}"
