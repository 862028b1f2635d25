"""Dumps of a job's ranks → for every process group, the first collective on which its ranks diverge, and which ranks.

A verdict calls a job healthy only if nothing speaks against it: every call fits a group, no rank's dump is missing, and
every call is over. Anything else is a doubt, and the set is undecided.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pipelines.readers.flight_recorder.calls import Calls, calls_of
from pipelines.readers.flight_recorder.dump import Dump, DumpError, Entry, Group
from pipelines.readers.flight_recorder.findings import Finding, find_at, finding_of
from pipelines.readers.flight_recorder.groups import Unplaced, place
from pipelines.readers.flight_recorder.transfers import waiting_transfer

_ALL_TO_ALL_SIZES = 4  # from this minor version of the format on they can be trusted


@dataclass(frozen=True)
class GroupVerdict:
    """A process group. `last_seq` by rank, -1 for a rank without entries; `first_seq`: where the rings begin to
    overlap.

    `n_unfinished`: calls in the rings that are not over, wherever they were made.
    """

    group: Group
    dump_missing: tuple[int, ...]
    first_seq: int | None
    last_seq: Mapping[int, int]
    finding: Finding | None
    n_unfinished: int

    @property
    def confidence(self) -> str | None:
        """`high`, or `low` with its reason; None without a finding."""
        if self.finding is None:
            return None
        if self.dump_missing:
            return "low: dumps missing"
        if self.finding.ambiguous:
            return "low: tie" if self.finding.kind.endswith("mismatch") else "low: rings overwritten"
        is_of_members = self.group.is_inferred and not self.finding.culprits
        return "low: members inferred" if is_of_members else "high"

    @property
    def doubts(self) -> tuple[str, ...]:
        """Returns why the group cannot be called healthy, although no finding says what is wrong."""
        if self.finding is not None:
            return ()
        said = []
        if self.dump_missing:
            ranks = ", ".join(map(str, self.dump_missing))
            said.append(f"group {self.group.name}: no dump of rank {ranks}; it may have died before writing one")
        if self.n_unfinished:
            said.append(f"group {self.group.name}: {self.n_unfinished} calls are unfinished and cannot be compared")
        return tuple(said)


@dataclass(frozen=True)
class Verdict:
    """All groups by name and ranks. `root` is the finding that the others follow from.

    `is_circle`: there is no single root, because each rank that is waited for waits in another group; `root` is then
    the first. `unplaced`: calls that fit no group and are not compared; `doubts`: reasons not to call the job healthy.
    """

    groups: tuple[GroupVerdict, ...]
    root: GroupVerdict | None
    is_circle: bool
    unplaced: tuple[Unplaced, ...]
    doubts: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """`hang`, `undecided` or `no_mismatch`."""
        return "hang" if self.root else "undecided" if self.doubts else "no_mismatch"


def judge(dumps: Sequence[Dump]) -> Verdict:
    """Compare the dumps of one job's ranks. Raises DumpError for two dumps of a rank, or none at all.

    Groups are identified by name and ranks. A finding that blames a rank which waits in another group follows from that
    group's. If several remain, the first is the root: a guess if the clocks of hosts differ.
    """
    if not dumps:
        raise DumpError("no dumps: give the files of all ranks")
    by_rank: dict[int, Dump] = {}
    for dump in dumps:
        if dump.rank in by_rank:
            raise DumpError(
                f"two dumps of rank {dump.rank}: {by_rank[dump.rank].path} and {dump.path}; give only one of them"
            )
        by_rank[dump.rank] = dump
    placed = place(by_rank)
    verdicts = tuple(
        _judge_group(placed.groups[key], by_rank, placed.calls.get(key, {})) for key in sorted(placed.groups)
    )
    found = [(v, v.finding) for v in verdicts if v.finding]
    causes = [(v, f) for v, f in found if not any(set(f.culprits) & set(o.waiting) for _, o in found if o is not f)]
    root = min(causes or found, key=lambda of: of[1].created_ns or math.inf, default=(None, None))[0]
    doubts = [
        f"rank {one.rank}: {one.n_calls} calls in group {one.name or one.desc} fit no process group of the dumps"
        for one in placed.unplaced
    ]
    if not any(dump.entries for dump in dumps):
        doubts.append("no ring buffer holds any call: was the Flight Recorder on (TORCH_FR_BUFFER_SIZE)?")
    doubts += [doubt for verdict in verdicts for doubt in verdict.doubts]
    return Verdict(verdicts, root, bool(found) and not causes, placed.unplaced, tuple(doubts))


def _judge_group(group: Group, dumps: Mapping[int, Dump], entries: Mapping[int, Sequence[Entry]]) -> GroupVerdict:
    calls = calls_of(dumps, entries, group)
    missing = tuple(rank for rank in group.ranks if rank not in dumps)
    first = _first(calls)
    found = [wrong for wrong in (_collective(calls, first, dumps), _transfer(group, calls)) if wrong]
    finding = min(found, key=lambda one: one.created_ns or math.inf, default=None)
    if finding and finding.created_ns:
        waited = max(dumps[rank].written_ns for rank in calls) - finding.created_ns
        finding = replace(finding, waited_ns=waited if waited >= 0 else None)
    last = {rank: of.last for rank, of in calls.items()}
    return GroupVerdict(group, missing, first, last, finding, sum(of.n_unfinished for of in calls.values()))


def _first(calls: Mapping[int, Calls]) -> int | None:
    """Returns from where all rings hold the calls; rings without finished calls count as holding them."""
    kept = [of for of in calls.values() if of.by_seq]
    whole = [of.first for of in kept if not of.is_filtered]
    return max(whole) if whole else min((of.first for of in kept), default=None)


def _collective(calls: Mapping[int, Calls], first: int | None, dumps: Mapping[int, Dump]) -> Finding | None:
    if first is None:
        return None
    has_sizes = all(dumps[rank].minor >= _ALL_TO_ALL_SIZES for rank in calls)
    numbers = sorted({seq for of in calls.values() for seq in of.by_seq if seq >= first})
    return next((found for seq in numbers if (found := find_at(seq, calls, has_sizes))), None)


def _transfer(group: Group, calls: Mapping[int, Calls]) -> Finding | None:
    wait = waiting_transfer(group, calls)
    return finding_of(wait, calls) if wait else None
