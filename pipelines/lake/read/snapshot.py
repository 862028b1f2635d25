"""What is committed in a lake at a moment, by its catalog: no folder is listed and no table's file is opened.

A batch has a stamp, which changes when anything of it that is shown changes: the serial of the commit that did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.lake.commit.manifest import Entry, seen
from pipelines.lake.names import KEYS, REJECTS, table_file


@dataclass(frozen=True)
class Now:
    """What is committed. `marks`: by mark, and for `rejects`, the batches that have its file; `stamps`: by batch; `digest`: what
    changes with each commit; `loose`: batches at which a writer is at work at this moment.
    """

    root: Path
    digest: str
    entries: Mapping[str, Entry]
    marks: Mapping[str, Mapping[str, Path]]
    stamps: Mapping[str, str]
    loose: frozenset[str]

    def has(self, table: str, batch_id: str) -> bool:
        """Whether a committed batch has a file of this table."""
        return table in self.entries[batch_id].kind.places


_memory: dict[Path, Now] = {}


def look(root: Path) -> Now:
    """Returns what is committed right now: the same object as before if nothing was committed since. Raises OSError."""
    all_of_it, before = seen(root), _memory.get(root)
    found = all_of_it.shown
    if before and before.entries is found and not before.loose:
        return before
    marks, stamps, loose = {mark: {} for mark in (*KEYS, REJECTS)}, {}, set()
    for name, entry in found.items():
        of = [mark for mark in marks if mark in entry.kind.places]
        for mark in of:
            marks[mark][name] = table_file(root, mark, entry.batch)
        if of:
            stamps[name] = f"{entry.row.n}{'' if entry.is_plain else '+'} {' '.join(of)}"
            loose |= set() if entry.is_plain else {name}
    now = _memory[root] = Now(root, all_of_it.content.stamp, found, marks, stamps, frozenset(loose))
    return now
