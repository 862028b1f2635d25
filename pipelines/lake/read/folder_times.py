"""What was found when all logs and files were last looked at: `.looked.json` in the lake, so that a query need not do it again.

Every file and every log of a lake is put in place, replaced and removed by its name, and the file system notes that as the
time of its folder. So as long as all folders are as they were, so is what is committed, whoever wrote it: a few hundred
folders are looked at instead of some ten files per batch. A change so shortly before the look that another one may have
followed at what counts as the same time is not trusted. A file that was changed in place (its size, its content) leaves no
trace in its folder: queries compare the sizes of the files that they read. The record may be deleted at any time.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.lake.layout import ANALYST_TEMP, MANIFEST, MERGED, RETIRED, settles_at
from pipelines.models.cache import digest_of

LOOKED = ".looked.json"
_OWN = (MANIFEST, MERGED, RETIRED, f"{RETIRED}/removed")
_State = tuple[int, int, int]  # inode, times (ns) of the content and of the inode


@dataclass(frozen=True)
class Folders:
    """The lake's folders at a moment, by their names in it, and that moment in ns."""

    states: Mapping[str, _State]
    at: int

    @property
    def is_settled(self) -> bool:
        """Whether a later change of any of them would show."""
        return all(settles_at(max(state[1:])) <= self.at for state in self.states.values())

    @property
    def digest(self) -> str:
        """Returns a hash over their states."""
        return digest_of(f"{name}={state}" for name, state in sorted(self.states.items()))


def folders_of(root: Path) -> Folders:
    """Returns the folders in which files and logs are. Raises OSError for one that cannot be read."""
    at = time.time_ns()
    states = {}
    for name in _OWN:
        if (found := _state(root, name)) is not None:
            states[name] = found
    with os.scandir(root) as tables:
        listed = [one.name for one in tables if not one.name.startswith(".") and one.is_dir()]
    for table in listed:
        states[table] = _state(root, table) or (0, 0, 0)
        for day in _days(f"{root}/{table}"):
            states[f"{table}/{day}"] = _state(root, f"{table}/{day}") or (0, 0, 0)
    return Folders(states, at)


def _days(folder: str) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if name.startswith("day=")]
    except FileNotFoundError:  # removed since it was listed
        return []


def _state(root: Path, name: str) -> _State | None:
    try:
        found = os.stat(f"{root}/{name}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_ino, found.st_mtime_ns, found.st_ctime_ns


def shown_at(root: Path, folders: Folders) -> str | None:
    """Returns the digest of what was committed (now.py) when the folders were as they are and each file was there; else None."""
    try:
        told = json.loads((root / LOOKED).read_text())
        return (
            told["shown"]
            if told["sum"] == _sum(told["folders"], told["shown"]) and told["folders"] == folders.digest
            else None
        )
    except (OSError, ValueError, KeyError, TypeError):  # never noted, or damaged
        return None


def note(root: Path, folders: Folders, shown: str) -> None:
    """Record what was found. `folders`: as they were before anything was looked at. A lake that cannot be written only
    costs time.
    """
    if not folders.is_settled:
        return
    text = json.dumps({"folders": folders.digest, "shown": shown, "sum": _sum(folders.digest, shown)})
    try:
        with tempfile.TemporaryDirectory(prefix=ANALYST_TEMP, dir=root) as folder:  # swept if this is killed
            file = Path(folder) / LOOKED
            file.write_text(text)
            os.replace(file, root / LOOKED)
    except OSError:
        return


def _sum(*texts: str) -> str:
    return digest_of(texts)
