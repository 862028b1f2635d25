"""Division of files or captures into work units of similar duration: one large trace, or some 40 small traces.

Files that must be read together (a schedule run's folder, a job's dumps) stay in one unit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipelines.readers.inputs.find import classify_files

UNIT_FILES = 40
UNIT_BYTES = 512 << 20
_LEAST_BYTES = 32 << 20  # below it, the fixed cost of a unit (49 tables, a commit) dominates
_PER_SLOT = 3  # units per concurrent task of an engine, so that the last units end at similar times
_UNPACKED = 12  # estimated bytes of JSON per byte of .gz; traces have 10 to 15


@dataclass(frozen=True)
class Group:
    """Items (files, a capture) that must be processed together. `size`: estimated bytes of JSON."""

    items: tuple[Any, ...]
    size: int


@dataclass(frozen=True)
class Unit:
    """The work of one task. `size`: estimated bytes of JSON."""

    name: str
    groups: tuple[Group, ...]

    @property
    def items(self) -> tuple[Any, ...]:
        """Return the unit's files or captures."""
        return tuple(item for group in self.groups for item in group.items)

    @property
    def size(self) -> int:
        """Return the estimated bytes of JSON."""
        return sum(group.size for group in self.groups)

    @property
    def halves(self) -> list[Unit]:
        """Return two units with half of the groups each, to find the group that kills its worker.

        Empty for a single group.
        """
        middle = len(self.groups) // 2
        parts = ((".1", self.groups[:middle]), (".2", self.groups[middle:]))
        return [Unit(self.name + mark, groups) for mark, groups in parts] if middle else []


def cut(groups: Iterable[Group], slots: int, max_items: int) -> list[Unit]:
    """Return units of at most `max_items` items and UNIT_BYTES, or of a single group, in order of decreasing size.

    `slots`: the number of units that the engine runs concurrently. Units are smaller with more slots, so that every
    slot has work. Groups stay in order, so ranks of one capture are mostly in one unit.
    """
    listed = list(groups)
    total = sum(group.size for group in listed)
    limit = min(UNIT_BYTES, max(_LEAST_BYTES, total // (_PER_SLOT * max(slots, 1))))
    bins = sorted(_fill(listed, max_items, limit), key=lambda unit: -sum(group.size for group in unit))
    return [Unit(f"{number:05d}", tuple(unit)) for number, unit in enumerate(bins, 1)]


def _fill(groups: Sequence[Group], max_items: int, limit: int) -> Iterator[list[Group]]:
    unit: list[Group] = []
    n_items = size = 0
    for group in groups:
        if group.size >= limit or len(group.items) >= max_items:
            yield [group]
            continue
        if unit and (n_items + len(group.items) > max_items or size + group.size > limit):
            yield unit
            unit, n_items, size = [], 0, 0
        unit.append(group)
        n_items, size = n_items + len(group.items), size + group.size
    if unit:
        yield unit


def groups_of(files: Iterable[Path]) -> list[Group]:
    """Return the files in groups that must be read together.

    Files that cannot be accessed are included, so that reading them reports the reason.
    """
    sets, alone, failed = classify_files(files)
    together = [sorted(paths) for _, files_by_set in sets for paths in files_by_set.values()]
    together += [[path] for path in (*alone, *failed)]
    return [Group(tuple(paths), sum(map(weigh, paths))) for paths in sorted(together)]


def weigh(path: Path) -> int:
    """Return the estimated bytes of JSON in a file, from its size, or 0 if the file cannot be accessed."""
    try:
        size = path.stat().st_size
    except (OSError, ValueError):
        return 0
    return size * _UNPACKED if path.suffix == ".gz" else size
