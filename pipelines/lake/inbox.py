"""The watched folder compared with the lake: which files are waiting, and what cannot be accessed.

A file is done when its content is in `traces` or in `rejects`; requesting its ingestion is not enough.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.base.paths import path_text
from pipelines.lake.commit.ingested_files import settled
from pipelines.lake.lake import Lake
from pipelines.lake.names import MARK
from pipelines.lake.retain.retention import retired_traces


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


def accounted_for(lake: Lake) -> set[str]:
    """Returns the ids of traces that are in the lake or were removed from it on purpose; not those of a mark that is damaged.

    Raises OSError.
    """
    lost = {one.batch for one in lake.broken({MARK})}
    return {trace for trace, batch in lake.known_traces().items() if batch not in lost} | retired_traces(lake)


def waiting(
    lake: Lake, files: Mapping[Path, str], and_rejected: bool = False, there: Set[str] | None = None
) -> dict[Path, str]:
    """The files that the lake does not account for in their present state. Raises OSError if it cannot be read.

    A trace that is no longer in the lake because its batch was damaged waits again; one that ingestion knows to be
    accounted for otherwise (retired, forgotten, superseded) does not, and neither do the files of a lake that lies in the
    watched folder. `and_rejected`: those that were rejected, too. `there`: the traces that are accounted for, where not the lake
    but a store has them.
    """
    outcomes = settled(lake)
    if there is None:
        there = accounted_for(lake)

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
