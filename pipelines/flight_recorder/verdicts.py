"""Dumps of a job's ranks → for every process group, the first collective that its ranks do not agree on, and on whom.

The rules, in this order, at the first sequence number that is not completed everywhere:

1. a rank without an entry: `missing_rank`, that rank;
2. other operations: `op_mismatch`, those with the rarer one;
3. other sizes (where the operation demands equal ones), 4. other dtypes: likewise;
5. completed on some ranks only: `state_split`, those that are not through;
6. scheduled on some, started on others: `not_started`, those whose stream is held up by something else;
7. joined by all and completed by none: `all_joined_not_completed`, nobody: look at the network.

No rank is the reference: PyTorch's own analyser takes the first, and blames all others where the first is the odd one.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.flight_recorder.dump import Dump, DumpError, Entry, Group

# Ranks give and get what they like here; of the out-of-place forms only the root has an output.
_UNEVEN = {"scatter", "gather", "broadcast_oop", "reduce_oop"}
_ALL_TO_ALL = {"all_to_all", "all_to_all_base", "all_to_all_single", "alltoall", "alltoall_base"}
_ALL_TO_ALL_SIZES = 4  # since this minor version of the format they can be trusted
COALESCED = "coalesced"


@dataclass(frozen=True)
class Finding:
    """What is wrong at `seq`. `culprits` are ranks; `ambiguous` where no rank is rarer than another.

    `created_ns`: when the first rank that is there called it, ns since the epoch.
    """

    kind: str
    seq: int
    culprits: tuple[int, ...]
    waiting: tuple[int, ...]
    ambiguous: bool
    ops: Mapping[int, str]
    state: str | None
    created_ns: int | None
    frames: Mapping[int, str]

    @property
    def op(self) -> str | None:
        """The operation, where all ranks that are there call the same."""
        names = set(self.ops.values())
        return names.pop() if len(names) == 1 else None


@dataclass(frozen=True)
class GroupVerdict:
    """A process group. `last_seq` by rank, -1 for a rank without entries; `first_seq`: from where rings overlap."""

    group: Group
    dump_missing: tuple[int, ...]
    first_seq: int | None
    last_seq: Mapping[int, int]
    finding: Finding | None

    @property
    def confidence(self) -> str | None:
        """`high`, or `low` with its reason; None without a finding."""
        if self.finding is None:
            return None
        if self.dump_missing:
            return "low: dumps missing"
        return "low: tie" if self.finding.ambiguous else "high"


@dataclass(frozen=True)
class Verdict:
    """All groups by name and ranks. `root` is the finding that came first; the others follow from it."""

    groups: tuple[GroupVerdict, ...]
    root: GroupVerdict | None

    @property
    def verdict(self) -> str:
        """`hang` or `no_mismatch`."""
        return "hang" if self.root else "no_mismatch"


def judge(dumps: Sequence[Dump]) -> Verdict:
    """Compare the dumps of one job's ranks. Raises DumpError for two dumps of a rank, or none at all.

    Groups are told apart by name and ranks. The clocks of several hosts may differ, so where groups of several hosts
    hang, the root is a guess.
    """
    if not dumps:
        raise DumpError("no dumps: give the files of all ranks")
    by_rank: dict[int, Dump] = {}
    for dump in dumps:
        if dump.rank in by_rank:
            raise DumpError(f"two dumps of rank {dump.rank}: {by_rank[dump.rank].path} and {dump.path}; leave one out")
        by_rank[dump.rank] = dump
    groups = {(g.name, g.ranks): g for rank in sorted(by_rank) for g in by_rank[rank].groups.values()}
    verdicts = tuple(_judge_group(groups[key], by_rank) for key in sorted(groups))
    found = [v for v in verdicts if v.finding]
    root = min(found, key=lambda v: (v.finding and v.finding.created_ns) or math.inf, default=None)
    return Verdict(verdicts, root)


def _judge_group(group: Group, dumps: Mapping[int, Dump]) -> GroupVerdict:
    present = [rank for rank in group.ranks if rank in dumps]
    calls = {rank: _by_seq(dumps[rank], group) for rank in present}
    firsts = [min(seqs) for seqs in calls.values() if seqs]
    last = {rank: max(seqs, default=-1) for rank, seqs in calls.items()}
    missing = tuple(rank for rank in group.ranks if rank not in dumps)
    if not firsts:
        return GroupVerdict(group, missing, None, last, None)
    trusted = all(dumps[rank].minor >= _ALL_TO_ALL_SIZES for rank in present)
    found = (
        _at(seq, {rank: calls[rank].get(seq) for rank in present}, trusted)
        for seq in range(max(firsts), max(last.values()) + 1)
    )
    return GroupVerdict(group, missing, max(firsts), last, next((f for f in found if f), None))


def _by_seq(dump: Dump, group: Group) -> dict[int, list[Entry]]:
    """The group's collectives by sequence number; several of a number were coalesced."""
    own = dump.groups.get(group.name)
    found: dict[int, list[Entry]] = defaultdict(list)
    if own is not None and own.ranks == group.ranks:
        for entry in dump.entries:
            if entry.pg_name == group.name and not entry.is_p2p and entry.op != COALESCED:
                found[entry.seq].append(entry)
    return dict(found)


def _at(seq: int, calls: Mapping[int, list[Entry] | None], trusted: bool) -> Finding | None:
    """What is wrong at one sequence number, or None."""
    there = {rank: entries for rank, entries in calls.items() if entries}
    ops = {rank: "+".join(e.op for e in entries) for rank, entries in there.items()}
    states = {rank: _state(entries) for rank, entries in there.items()}
    times = [e.created_ns for entries in there.values() for e in entries if e.created_ns]

    def finding(kind: str, culprits: Iterable[int], ambiguous: bool = False) -> Finding:
        blamed = tuple(sorted(culprits))
        waiting = tuple(rank for rank in calls if rank not in blamed)
        frames = {rank: e[0].frame for rank, e in there.items() if e[0].frame}
        state = next(iter(states.values())) if len(set(states.values())) == 1 else None
        return Finding(kind, seq, blamed, waiting, ambiguous, ops, state, min(times, default=None), frames)

    if absent := [rank for rank in calls if rank not in there]:
        return finding("missing_rank", absent)
    for kind, of in (("op_mismatch", lambda e: e.op), ("size_mismatch", _fixed_sizes), ("dtype_mismatch", _dtypes)):
        culprits, ambiguous = _rarer(there, of)
        if culprits:
            return finding(kind, culprits, ambiguous)
    if trusted and _bytes_lost(there):
        return finding("size_mismatch", there, ambiguous=True)
    done = {rank for rank, state in states.items() if state == "completed"}
    if len(done) == len(there):
        return None
    if done:
        return finding("state_split", set(there) - done)
    scheduled = {rank for rank, state in states.items() if state == "scheduled"}
    if scheduled and len(scheduled) < len(there):
        return finding("not_started", scheduled)
    return finding("all_joined_not_completed", ())


def _state(entries: Sequence[Entry]) -> str:
    """The least that holds for all coalesced calls."""
    states = {entry.state for entry in entries}
    return next((state for state in ("scheduled", "started") if state in states), "completed")


def _rarer(there: Mapping[int, Sequence[Entry]], of: Callable[[Entry], Any]) -> tuple[list[int], bool]:
    """The ranks whose calls differ from the commonest; all of them, and True, where there is no commonest."""
    values = {rank: tuple(of(entry) for entry in entries) for rank, entries in there.items()}
    counts = Counter(values.values()).most_common()
    if len(counts) == 1:
        return [], False
    if counts[0][1] == counts[1][1]:
        return list(values), True
    return [rank for rank, value in values.items() if value != counts[0][0]], False


def _plain(op: str) -> str:
    return op.lstrip("_")


def _fixed_sizes(entry: Entry) -> Any:
    """What must be equal on all ranks; nothing for operations that may be uneven."""
    op = _plain(entry.op)
    uneven = op in _UNEVEN or op in _ALL_TO_ALL or op.endswith("v")
    return None if uneven else (entry.input_sizes, entry.output_sizes)


def _dtypes(entry: Entry) -> Any:
    return entry.input_dtypes, entry.output_dtypes


def _bytes_lost(there: Mapping[int, Sequence[Entry]]) -> bool:
    """In an all-to-all, all that is given must be got."""
    entries = [e for found in there.values() for e in found if _plain(e.op) in _ALL_TO_ALL]
    given, got = (sum(map(math.prod, (s for e in entries for s in sizes(e)))) for sizes in _SIDES)
    return given != got


_SIDES: tuple[Callable[[Entry], tuple[tuple[int, ...], ...]], ...] = (lambda e: e.input_sizes, lambda e: e.output_sizes)
