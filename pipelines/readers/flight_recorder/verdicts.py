"""Verdict on a job's dumps: for each process group, the first collective on which ranks diverge, and these ranks.

A job without a finding is healthy only if every call fits a group, no rank's dump is missing, and every call is over.
Anything else is a doubt, and the set is undecided.
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

OVERWRITTEN = "rings overwritten"
"""Reason for a low confidence: the ring buffers no longer show which ranks made the call."""
_ALL_TO_ALL_SIZES = 4  # first minor version of the format with reliable sizes of all-to-all


@dataclass(frozen=True)
class GroupVerdict:
    """A process group. `last_seq` by rank, -1 for a rank without entries.

    `first_seq`: the number from which on all rings have the calls. `n_unfinished`: calls in the rings that are not
    over.
    """

    group: Group
    dump_missing: tuple[int, ...]
    first_seq: int | None
    last_seq: Mapping[int, int]
    finding: Finding | None
    n_unfinished: int

    @property
    def confidence(self) -> str | None:
        """`high`, or `low` with its reasons, or None without a finding."""
        if self.finding is None:
            return None
        reasons = ["dumps missing"] if self.dump_missing else []
        if self.finding.ambiguous:
            reasons.append("tie" if self.finding.kind.endswith("mismatch") else OVERWRITTEN)
        if not reasons and self.group.is_inferred and not self.finding.culprits:
            reasons.append("members inferred")
        return f"low: {', '.join(reasons)}" if reasons else "high"

    @property
    def doubts(self) -> tuple[str, ...]:
        """The reasons why the group cannot be called healthy, although it has no finding."""
        if self.finding is not None:
            return ()
        reasons = []
        if self.dump_missing:
            ranks = ", ".join(map(str, self.dump_missing))
            reasons.append(f"group {self.group.name}: no dump of rank {ranks}; it may have died before writing one")
        if self.n_unfinished:
            reasons.append(f"group {self.group.name}: {self.n_unfinished} calls are unfinished and cannot be compared")
        return tuple(reasons)


@dataclass(frozen=True)
class Verdict:
    """The verdicts of all groups, ordered by name and ranks. `root`: the group with the finding that causes the others.

    `is_circle`: whether the findings have no single root, because each blamed rank waits in another group. Then `root`
    is the earliest. `unplaced`: calls that fit no group and are not compared. `doubts`: reasons not to call the job
    healthy.
    """

    groups: tuple[GroupVerdict, ...]
    root: GroupVerdict | None
    is_circle: bool
    unplaced: tuple[Unplaced, ...]
    doubts: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """The verdict on the job: `hang`, `undecided` or `no_mismatch`."""
        return "hang" if self.root else "undecided" if self.doubts else "no_mismatch"


def judge(dumps: Sequence[Dump]) -> Verdict:
    """Compare the dumps of one job's ranks. Raise DumpError for two dumps of a rank, or no dumps.

    Groups are identified by name and ranks. A finding that blames a rank which waits in another group follows from that
    group's finding. If several findings remain, the earliest is the root. It is a guess if the clocks of hosts differ.
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
    findings = [(v, v.finding) for v in verdicts if v.finding]
    causes = [
        (v, f) for v, f in findings if not any(set(f.culprits) & set(o.waiting) for _, o in findings if o is not f)
    ]
    root = min(causes or findings, key=lambda pair: pair[1].created_ns or math.inf, default=(None, None))[0]
    doubts = [
        f"rank {calls.rank}: {calls.n_calls} calls in group {calls.name or calls.desc} fit no process group of the dumps"
        for calls in placed.unplaced
    ]
    if not any(dump.entries for dump in dumps):
        doubts.append("no ring buffer holds any call: was the Flight Recorder on (TORCH_FR_BUFFER_SIZE)?")
    doubts += [doubt for verdict in verdicts for doubt in verdict.doubts]
    return Verdict(verdicts, root, bool(findings) and not causes, placed.unplaced, tuple(doubts))


def _judge_group(group: Group, dumps: Mapping[int, Dump], entries: Mapping[int, Sequence[Entry]]) -> GroupVerdict:
    calls = calls_of(dumps, entries, group)
    missing = tuple(rank for rank in group.ranks if rank not in dumps)
    first = _first(calls)
    findings = [
        candidate for candidate in (_collective(group, calls, first, dumps), _transfer(group, calls)) if candidate
    ]
    finding = min(findings, key=lambda candidate: candidate.created_ns or math.inf, default=None)
    if finding and finding.created_ns:
        waited = max(dumps[rank].written_ns for rank in calls) - finding.created_ns
        finding = replace(finding, waited_ns=waited if waited >= 0 else None)
    last = {rank: own_calls.last for rank, own_calls in calls.items()}
    return GroupVerdict(
        group, missing, first, last, finding, sum(own_calls.n_unfinished for own_calls in calls.values())
    )


def _first(calls: Mapping[int, Calls]) -> int | None:
    """Return the first number from which on all rings have the calls, or None if no ring has a collective.

    Rings without finished calls count as complete.
    """
    with_collectives = [ring for ring in calls.values() if ring.by_seq]
    unfiltered_starts = [ring.first for ring in with_collectives if not ring.is_filtered]
    return max(unfiltered_starts) if unfiltered_starts else min((ring.first for ring in with_collectives), default=None)


def _collective(
    group: Group, calls: Mapping[int, Calls], first: int | None, dumps: Mapping[int, Dump]
) -> Finding | None:
    if first is None:
        return None
    has_sizes = all(rank in calls and dumps[rank].minor >= _ALL_TO_ALL_SIZES for rank in group.ranks)
    numbers = sorted({seq for ring in calls.values() for seq in ring.by_seq if seq >= first})
    return next((finding for seq in numbers if (finding := find_at(seq, calls, has_sizes))), None)


def _transfer(group: Group, calls: Mapping[int, Calls]) -> Finding | None:
    wait = waiting_transfer(group, calls)
    return finding_of(wait, calls) if wait else None
