"""The committed state of a lake, read from its catalog without listing folders or opening tables' files.

A batch has a stamp, which changes when its visible content changes. The stamp contains the serial of the commit that
last changed the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pipelines.lake.commit.manifest import Entry, seen
from pipelines.lake.names import KEYS, REJECTS, table_file


@dataclass(frozen=True)
class Now:
    """The committed state of a lake.

    `digest`: a text that changes with each commit. `marks`: for each marker table and `rejects`, the file by batch.
    `stamps`: the stamp by batch. `loose`: batches that a writer is working on.
    """

    root: Path
    digest: str
    entries: Mapping[str, Entry]
    marks: Mapping[str, Mapping[str, Path]]
    stamps: Mapping[str, str]
    loose: frozenset[str]

    def has(self, table: str, batch_id: str) -> bool:
        """Return whether a committed batch has a file of this table."""
        return table in self.entries[batch_id].kind.places


_memory: dict[Path, Now] = {}


def look(root: Path) -> Now:
    """Return the committed state, which is the same object until the next commit. Raise OSError."""
    all_of_it, before = seen(root), _memory.get(root)
    visible = all_of_it.shown
    if before and before.entries is visible and not before.loose:
        return before
    marks, stamps, loose = {mark: {} for mark in (*KEYS, REJECTS)}, {}, set()
    for name, entry in visible.items():
        own_marks = [mark for mark in marks if mark in entry.kind.places]
        for mark in own_marks:
            marks[mark][name] = table_file(root, mark, entry.batch)
        if own_marks:
            stamps[name] = f"{entry.row.n}{'' if entry.is_plain else '+'} {' '.join(own_marks)}"
            loose |= set() if entry.is_plain else {name}
    now = _memory[root] = Now(root, all_of_it.content.stamp, visible, marks, stamps, frozenset(loose))
    return now
