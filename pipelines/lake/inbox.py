"""The watched folder compared with the lake: which files are waiting, and what cannot be accessed.

A file is done when its content is in `traces` or in `rejects`; requesting its ingestion is not enough.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from pipelines.base import database
from pipelines.base.paths import path_text
from pipelines.lake.commit.ingested_files import settled
from pipelines.lake.lake import Lake
from pipelines.lake.layout import MARK, RETIRED, table_files
from pipelines.models.sqltext import file_list


@dataclass(frozen=True)
class Inbox:
    """The files of a folder, each with its state (size and time of change), and what was skipped, with the reason."""

    files: dict[Path, str] = field(default_factory=dict)
    passed_over: dict[Path, str] = field(default_factory=dict)

    def changed_before(self, moment_ns: int) -> dict[Path, str]:
        """The files that have not been modified since then."""
        return {path: state for path, state in self.files.items() if int(state.split(":")[1]) < moment_ns}


def look(folder: Path) -> Inbox:
    """All files in a folder, recursively, except hidden ones. Never raises for its contents: problems are listed instead."""
    inbox = Inbox()
    todo = [Path(os.path.abspath(folder))]
    while todo:
        here = todo.pop()
        try:
            with os.scandir(here) as entries:
                for entry in sorted(entries, key=lambda e: e.name, reverse=True):
                    if not entry.name.startswith("."):
                        _sort_in(entry, inbox, todo)
        except FileNotFoundError:  # moved away meanwhile
            continue
        except OSError as error:
            inbox.passed_over[here] = f"cannot be listed: {error.strerror}"
    return inbox


def _sort_in(entry: os.DirEntry[str], inbox: Inbox, todo: list[Path]) -> None:
    path = Path(entry.path)
    try:
        found = entry.stat()
        if stat.S_ISDIR(found.st_mode):
            if entry.is_symlink():  # it may lead out, or in a circle
                inbox.passed_over[path] = (
                    "is a link to a folder, which is not followed; mount or name the folder itself"
                )
            else:
                todo.append(path)
        elif stat.S_ISREG(found.st_mode):
            inbox.files[path] = f"{found.st_size}:{found.st_mtime_ns}"
            if not os.access(path, os.R_OK):
                inbox.passed_over[path] = "cannot be read: Permission denied"
        else:
            inbox.passed_over[path] = "is neither a file nor a folder"
    except FileNotFoundError:
        if entry.is_symlink():
            inbox.passed_over[path] = "is a broken link"
    except OSError as error:
        inbox.passed_over[path] = f"cannot be accessed: {error.strerror}"


class Accounts:
    """Which trace ids a lake accounts for. Each batch's mark is read only once, so a look costs only what is new."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, int, int], frozenset[str]] = {}
        self.broken: list[Path] = []

    def traces(self, lake: Lake) -> set[str]:
        """The ids of traces that are in the lake or were removed from it on purpose."""
        files = [*table_files(lake.root, MARK), *lake.root.joinpath(RETIRED).glob("**/*.json")]
        keys = {key: path for path in files if (key := _key(path))}
        self._of = {key: ids for key, ids in self._of.items() if key in keys}
        new = {key: path for key, path in keys.items() if key not in self._of}
        self.broken = []
        self._of |= self._read(new)
        return set().union(*self._of.values())

    def _read(self, new: Mapping[tuple[str, int, int], Path]) -> dict[tuple[str, int, int], frozenset[str]]:
        marks = {key: path for key, path in new.items() if path.suffix == ".parquet"}
        found = {key: _noted(path) for key, path in new.items() if key not in marks}
        try:
            found |= _trace_ids(marks)
        except duckdb.Error:
            for key, path in marks.items():
                try:
                    found |= _trace_ids({key: path})
                except duckdb.Error:
                    self.broken.append(path)
        return found


def _key(path: Path) -> tuple[str, int, int] | None:
    try:
        stat = path.stat()
    except OSError:  # removed meanwhile
        return None
    return str(path), stat.st_size, stat.st_mtime_ns


def _noted(path: Path) -> frozenset[str]:
    import json

    try:
        return frozenset(json.loads(path.read_text(encoding="utf-8"))["traces"])
    except (OSError, ValueError, KeyError, TypeError):
        return frozenset()


def _trace_ids(marks: Mapping[tuple[str, int, int], Path]) -> dict[tuple[str, int, int], frozenset[str]]:
    if not marks:
        return {}
    query = (
        f"SELECT filename, list(trace_id) FROM read_parquet({file_list(marks.values())}, filename = true) GROUP BY ALL"
    )
    with database.scratch() as con:
        ids = dict(con.execute(query).fetchall())
    return {key: frozenset(ids.get(str(path), ())) for key, path in marks.items()}


def waiting(
    lake: Lake, files: Mapping[Path, str], accounts: Accounts | None = None, and_rejected: bool = False
) -> dict[Path, str]:
    """The files that the lake does not account for in their present state. Raises OSError if it cannot be read.

    A trace that is no longer in the lake because its batch was damaged waits again; one that ingestion knows to be
    accounted for otherwise (retired, forgotten, superseded) does not, and neither do the files of a lake that lies in the
    watched folder. `and_rejected`: those that were rejected, too.
    """
    outcomes = settled(lake)
    there = (accounts or Accounts()).traces(lake)

    def is_done(path: Path, state: str) -> bool:
        outcome = outcomes.get(path)
        if outcome is None or outcome.state != state or (and_rejected and outcome.status == "rejected"):
            return False
        return outcome.status not in _IN_TRACES or outcome.trace_id in there

    foreign = {path: state for path, state in files.items() if not path.is_relative_to(lake.root)}
    return {path: state for path, state in foreign.items() if not is_done(path, state)}


_IN_TRACES = ("ok", "repaired", "partial")


def told(passed_over: Mapping[Path, str], n: int = 5) -> str:
    """A sentence about what was skipped."""
    shown = [f"{path_text(path)} {why}" for path, why in list(passed_over.items())[:n]]
    more = [f"and {len(passed_over) - n} more"] if len(passed_over) > n else []
    return "; ".join([*shown, *more])
