"""Assignment of every call of a set of dumps to a process group, and search for the group's ranks.

NCCL's dumps list every group with its ranks. In `pg_config` of Gloo's dumps (torch 2.13), all groups share the name '',
with the ranks of the default group if it is the only group, and otherwise without ranks. Calls have the real names.
Such a group gets the ranks listed under '' if no call contradicts them, else the ranks with calls in the group.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.readers.flight_recorder.dump import Dump, Entry, Group

NAMELESS = ""
DEFAULT = "default_pg"
_MOST_RANKS = 1_000_000  # a larger number in a file's name is not a rank
Key = tuple[str, tuple[int, ...]]
"""Identity of a group: name and ranks."""


@dataclass(frozen=True)
class Unplaced:
    """Calls of a rank that cannot be assigned, because no group or several groups have their name and this rank."""

    rank: int
    name: str
    desc: str
    n_calls: int


@dataclass(frozen=True)
class Placed:
    """The groups, the calls of each by rank (in ring order), and the calls that fit no group."""

    groups: Mapping[Key, Group]
    calls: Mapping[Key, Mapping[int, list[Entry]]]
    unplaced: tuple[Unplaced, ...]


def place(dumps: Mapping[int, Dump]) -> Placed:
    """Assign the calls of all ranks' dumps (by rank) to groups."""
    groups = {
        (g.name, g.ranks): g
        for rank in sorted(dumps)
        for g in dumps[rank].groups.values()
        if g.name != NAMELESS and g.ranks
    }
    calls: dict[Key, dict[int, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    unplaced: Counter[tuple[int, str, str]] = Counter()
    unknown: dict[tuple[str, str], dict[int, list[Entry]]] = defaultdict(lambda: defaultdict(list))
    for rank, dump in sorted(dumps.items()):
        for entry in dump.entries:
            listed = dump.groups.get(entry.pg_name)
            if listed is None or not listed.ranks or listed.name == NAMELESS:
                unknown[entry.pg_name, entry.pg_desc][rank].append(entry)
            elif rank in listed.ranks:
                calls[listed.name, listed.ranks][rank].append(entry)
            else:
                unplaced[rank, entry.pg_name, entry.pg_desc] += 1
    for (name, desc), by_rank in unknown.items():
        same_name = [group for group in groups.values() if group.name == name]
        group = _inferred(name, desc, by_rank, dumps, unknown) if not same_name else None
        for rank, entries in by_rank.items():
            fitting = [group] if group else [candidate for candidate in same_name if rank in candidate.ranks]
            if len(fitting) == 1:
                key = name, fitting[0].ranks
                groups.setdefault(key, fitting[0])
                calls[key][rank] += entries
            else:
                unplaced[rank, name, desc] += len(entries)
    return Placed(groups, calls, tuple(Unplaced(*key, n) for key, n in sorted(unplaced.items())))


def _inferred(
    name: str,
    desc: str,
    by_rank: Mapping[int, list[Entry]],
    dumps: Mapping[int, Dump],
    unknown: Mapping[tuple[str, str], Mapping[int, list[Entry]]],
) -> Group:
    """Return a group whose ranks no dump lists under its name.

    The ranks are those listed without a name, if no call contradicts them. Otherwise, a default group has all ranks of
    the job, and any other group has the ranks with calls in it.
    """
    nameless = {dumps[rank].groups[NAMELESS].ranks for rank in by_rank if NAMELESS in dumps[rank].groups}
    is_only = all(sum(rank in callers for callers in unknown.values()) == 1 for rank in by_rank)
    if is_only and len(nameless) == 1 and set(by_rank) <= set(ranks := nameless.pop()):
        return Group(name, desc, ranks)
    if desc == DEFAULT and max(dumps) < _MOST_RANKS:  # all ranks of the job, from 0
        return Group(name, desc, tuple(range(max(dumps) + 1)))
    return Group(name, desc, tuple(sorted(by_rank)), is_inferred=True)
