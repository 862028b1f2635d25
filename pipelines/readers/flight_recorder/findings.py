"""Rules for the fault at a sequence number of a process group, and for the ranks that cause it.

The first rule that applies determines the kind of the fault and the ranks:

1. Some ranks have certainly not made the call: `missing_rank` with these ranks.
2. Operations differ: `op_mismatch` with the ranks of the rarer operation.
3. Sizes differ although the operation requires equal sizes: `size_mismatch` with the ranks of the rarer sizes.
4. Data types differ: `dtype_mismatch` with the ranks of the rarer type.
5. The ranks of an all-to-all send and receive different numbers of elements: `size_mismatch` with all ranks, as
   ambiguous.
6. The call completed on some ranks only: `state_split` with the ranks that have not finished.
7. The rings of some ranks lost the evidence: `missing_rank` with these ranks, as ambiguous.
8. The call is scheduled on some ranks and started on others: `not_started` with the ranks on which other work blocks
   the stream.
9. All ranks joined and no rank completed: `all_joined_not_completed` without a rank. The network may be the cause.

No rank is the reference. PyTorch's own analyzer compares with the first rank, so it blames all others if that rank is
at fault.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pipelines.readers.flight_recorder.calls import COMPLETED, Calls, has_timed_out, is_end
from pipelines.readers.flight_recorder.dump import Entry
from pipelines.readers.flight_recorder.transfers import Waiting

# For these operations, ranks may pass any sizes. In the out-of-place forms, only the root has an output.
_UNEVEN = {"scatter", "gather", "broadcast_oop", "reduce_oop"}
_ALL_TO_ALL = {"all_to_all", "all_to_all_base", "all_to_all_single", "alltoall", "alltoall_base"}
# Kinds that a late rank also causes. The other kinds are always errors.
_OF_TIME = {"missing_rank", "state_split", "not_started", "all_joined_not_completed", "missing_peer", "transfer_not_completed"}  # fmt: skip
_Sizes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Finding:
    """The fault at `seq`. `culprits`: ranks. `ambiguous`: whether no rank is in the minority, or a ring lost calls.

    `created_ns`: time of the first rank's call, ns since the epoch. `waited_ns`: time from then to the newest file, an
    upper bound of the waiting time; None if the clocks do not fit. `frames`: the calling line of each rank.
    `last_calls`: the last call in any group of each rank that did not make this call.
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
    last_calls: Mapping[int, str]
    timeout_ms: int | None
    has_timed_out: bool
    waited_ns: int | None = None

    @property
    def op(self) -> str | None:
        """The operation, or None if the ranks that joined call different ones."""
        names = set(self.ops.values())
        return names.pop() if len(names) == 1 else None

    @property
    def may_be_slow(self) -> bool:
        """Whether the timeout had not expired when the dumps were written.

        A late rank then looks the same as a hanging rank. False for faults that do not depend on time, and if the times
        are unknown.
        """
        if self.kind not in _OF_TIME or self.has_timed_out or self.waited_ns is None or self.timeout_ms is None:
            return False
        return self.waited_ns < self.timeout_ms * 1_000_000


def find_at(seq: int, calls: Mapping[int, Calls], has_sizes: bool) -> Finding | None:
    """Return the fault at one sequence number, or None if there is no fault. `calls`: by rank.

    `has_sizes`: whether the sizes of all-to-all operations are reliable, and every rank of the group has a dump.
    """
    joined = _there(seq, calls)
    if not joined:  # every rank has overwritten the call, or the backend does not record it
        return None
    ops = {rank: "+".join(e.op for e in entries) for rank, entries in joined.items()}
    states = {rank: calls[rank].state(seq) for rank in joined}

    def finding(kind: str, culprits: Iterable[int], ambiguous: bool = False) -> Finding:
        blamed = tuple(sorted(culprits))
        waiting = tuple(rank for rank in calls if rank not in blamed)
        all_entries = [entry for entries in joined.values() for entry in entries]
        return Finding(
            kind, seq, blamed, waiting, ambiguous, ops,
            state=next(iter(states.values())) if len(set(states.values())) == 1 else None,
            created_ns=min((e.created_ns for e in all_entries if e.created_ns), default=None),
            frames={rank: e[0].frame for rank, e in joined.items() if e[0].frame},
            last_calls={rank: call for rank in blamed if rank not in joined and (call := _last_call(calls[rank]))},
            timeout_ms=max((e.timeout_ms for e in all_entries if isinstance(e.timeout_ms, int)), default=None),
            has_timed_out=any(has_timed_out(e) for rank in joined for e in calls[rank].by_seq[seq]),
        )  # fmt: skip

    if absent := [rank for rank, own_calls in calls.items() if rank not in joined and own_calls.has_not_called(seq)]:
        return finding("missing_rank", absent)
    for kind, value_of in (
        ("op_mismatch", lambda e: e.op),
        ("size_mismatch", _fixed_sizes),
        ("dtype_mismatch", _dtypes),
    ):
        culprits, ambiguous = _rarer(joined, value_of)
        if culprits:
            return finding(kind, culprits, ambiguous)
    if has_sizes and len(joined) == len(calls) and _bytes_lost(joined):  # the sums are comparable only with all ranks
        return finding("size_mismatch", joined, ambiguous=True)
    unfinished = {rank for rank, state in states.items() if state != COMPLETED}
    if not unfinished:
        return None
    if any(own_calls.is_through(seq) for own_calls in calls.values()):
        return finding("state_split", unfinished)
    if unknown := [rank for rank in calls if rank not in joined]:  # their rings lost the evidence
        return finding("missing_rank", unknown, ambiguous=True)
    scheduled = {rank for rank, state in states.items() if state == "scheduled"}
    if scheduled and len(scheduled) < len(joined):
        return finding("not_started", scheduled)
    return finding("all_joined_not_completed", ())


def finding_of(wait: Waiting, calls: Mapping[int, Calls]) -> Finding:
    """Return the finding for a waiting send or receive. `seq` is the number of the transfer on its rank."""
    transfer = wait.transfer
    culprits = (transfer.peer,) if wait.kind == "missing_peer" else ()
    last_calls = {rank: last for rank in culprits if (last := _last_call(calls[rank]))}
    return Finding(
        wait.kind, transfer.entry.p2p_seq or 0, culprits, (transfer.rank,), not wait.is_sure, {transfer.rank: transfer.entry.op},
        state=transfer.entry.state,
        created_ns=transfer.entry.created_ns,
        frames={transfer.rank: transfer.entry.frame} if transfer.entry.frame else {},
        last_calls=last_calls,
        timeout_ms=transfer.entry.timeout_ms,
        has_timed_out=transfer.has_timed_out,
    )  # fmt: skip


def _there(seq: int, calls: Mapping[int, Calls]) -> dict[int, list[Entry]]:
    """Return the calls with number `seq` by rank, without end markers of coalesced calls.

    A rank is excluded if its ring may have lost part of a coalesced group.
    """
    entries_by_rank = {rank: own_calls.by_seq[seq] for rank, own_calls in calls.items() if seq in own_calls.by_seq}
    max_coalesced = max(map(len, entries_by_rank.values()), default=0)
    return {
        rank: [entry for entry in entries if not is_end(entry)] or entries
        for rank, entries in entries_by_rank.items()
        if not (calls[rank].is_cut and seq == calls[rank].first and len(entries) < max_coalesced)
    }


def _last_call(calls: Calls) -> str | None:
    entry = calls.latest
    if entry is None:
        return None
    number = "" if entry.is_p2p else f" number {entry.seq}"
    return f"{entry.op}{number} of group {entry.pg_name}" + (f" at {entry.frame}" if entry.frame else "")


def _rarer(joined: Mapping[int, Sequence[Entry]], value_of: Callable[[Entry], Any]) -> tuple[list[int], bool]:
    """Return the ranks whose value is not the most common value, and False. For a tie, return all ranks and True."""
    values = {rank: tuple(value_of(entry) for entry in entries) for rank, entries in joined.items()}
    counts = Counter(values.values()).most_common()
    if len(counts) == 1:
        return [], False
    if counts[0][1] == counts[1][1]:
        return list(values), True
    return [rank for rank, value in values.items() if value != counts[0][0]], False


def _plain(op: str) -> str:
    return op.lstrip("_")


def _fixed_sizes(entry: Entry) -> Any:
    """Return the sizes that must be equal on all ranks, or None for operations that may be uneven."""
    op = _plain(entry.op)
    uneven = op in _UNEVEN or op in _ALL_TO_ALL or op.endswith("v")
    return None if uneven else (entry.input_sizes, entry.output_sizes)


def _dtypes(entry: Entry) -> Any:
    """Return input and output dtypes, or their union for operations where only the root has both sides."""
    both = entry.input_dtypes, entry.output_dtypes
    return frozenset().union(*both) if _plain(entry.op) in _UNEVEN else both


def _bytes_lost(joined: Mapping[int, Sequence[Entry]]) -> bool:
    """Return whether the ranks of an all-to-all send and receive different numbers of elements."""
    entries = [e for of_rank in joined.values() for e in of_rank if _plain(e.op) in _ALL_TO_ALL]
    n_sent, n_received = (sum(map(math.prod, (s for e in entries for s in sizes(e)))) for sizes in _SIDES)
    return n_sent != n_received


_SIDES: tuple[Callable[[Entry], _Sizes], ...] = (lambda e: e.input_sizes, lambda e: e.output_sizes)
