"""The files of the watched folder that wait for ingestion, and the files that cannot be accessed.

A file is done when its content is in `traces` or in `rejects`. A request for its ingestion does not count.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path

from pipelines.base.paths import is_under, path_text
from pipelines.lake.commit.ingested_files import settled
from pipelines.lake.lake import Lake
from pipelines.lake.names import MARK
from pipelines.lake.retain.retention import retired_traces


@dataclass(frozen=True)
class Inbox:
    """The files of a folder with their states (size and modification time), and the skipped paths with the reasons.

    `arrived_ns`: the time when the folder's disk last recorded a change of each file (ctime, ns since the epoch).
    Unlike the modification time, it is never copied from another machine or an older file.
    """

    files: dict[Path, str] = field(default_factory=dict)
    arrived_ns: dict[Path, int] = field(default_factory=dict)
    passed_over: dict[Path, str] = field(default_factory=dict)

    def changed_before(self, moment_ns: int) -> dict[Path, str]:
        """Return the files that were last modified before `moment_ns` (ns since the epoch), each with its state.

        If a file arrived before its modification time, such as a time in the future, the arrival counts.
        """
        return {
            path: state
            for path, state in self.files.items()
            if min(int(state.split(":")[1]), self.arrived_ns[path]) < moment_ns
        }


def look(folder: Path) -> Inbox:
    """Return all files in a folder and its subfolders except hidden files. List problems in the result."""
    inbox = Inbox()
    todo = [Path(os.path.abspath(folder))]
    while todo:
        here = todo.pop()
        try:
            with os.scandir(here) as entries:
                for entry in sorted(entries, key=lambda e: e.name, reverse=True):
                    if not entry.name.startswith("."):
                        _sort_in(entry, inbox, todo)
        except FileNotFoundError:  # moved since it was listed
            continue
        except OSError as error:
            inbox.passed_over[here] = f"cannot be listed: {error.strerror}"
    return inbox


def _sort_in(entry: os.DirEntry[str], inbox: Inbox, todo: list[Path]) -> None:
    path = Path(entry.path)
    try:
        status = entry.stat()
        if stat.S_ISDIR(status.st_mode):
            if entry.is_symlink():  # it may lead outside the folder, or form a cycle
                inbox.passed_over[path] = (
                    "is a link to a folder, which is not followed; mount or name the folder itself"
                )
            else:
                todo.append(path)
        elif stat.S_ISREG(status.st_mode):
            inbox.files[path] = f"{status.st_size}:{status.st_mtime_ns}"
            inbox.arrived_ns[path] = status.st_ctime_ns
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
    """Return the ids of traces that are in the lake or were removed on purpose. Exclude traces with a damaged marker.

    Raise OSError.
    """
    lost = {file.batch for file in lake.broken({MARK})}
    return {trace for trace, batch in lake.known_traces().items() if batch not in lost} | retired_traces(lake)


def waiting(
    lake: Lake,
    files: Mapping[Path, str],
    and_rejected: bool = False,
    known: Callable[[set[str]], Set[str]] | None = None,
) -> dict[Path, str]:
    """Return the files that the lake does not account for in their present state.

    If a trace is no longer in the lake because its batch was damaged, its file waits again. The file of a retired,
    forgotten or superseded trace does not wait, and files inside the lake's own folder never do. `and_rejected`: also
    return rejected files. `known`: a function that returns which traces of a set are accounted for, for a store that
    keeps them outside the lake. Raise OSError if the lake is unreadable.
    """
    outcomes = settled(lake)
    traces = {name for outcome in outcomes.values() if outcome.status in _OF_TRACES for name in outcome.trace_ids}
    there = known(traces) if known else accounted_for(lake)

    def is_done(path: Path, state: str) -> bool:
        outcome = outcomes.get(path)
        if outcome is None or outcome.state != state or (and_rejected and outcome.status == "rejected"):
            return False
        return outcome.status not in _OF_TRACES or there >= set(outcome.trace_ids)

    is_own = is_under(lake.root)
    foreign = {path: state for path, state in files.items() if not is_own(path)}
    return {path: state for path, state in foreign.items() if not is_done(path, state)}


_SHOWN = 5
_OF_TRACES = ("ok", "repaired", "partial", "rejected")  # a rejected file may also have traces that were ingested


def skipped_clause(passed_over: Mapping[Path, str]) -> str:
    """Return a clause that names the skipped paths and the reasons, at most _SHOWN of them."""
    clauses = [f"{path_text(path)} {why}" for path, why in list(passed_over.items())[:_SHOWN]]
    more = [f"and {len(passed_over) - _SHOWN} more"] if len(passed_over) > _SHOWN else []
    return "; ".join([*clauses, *more])
