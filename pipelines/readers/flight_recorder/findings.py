"""The rules: what is wrong at a sequence number of a process group, and on which ranks.

1. some ranks have not called it: `missing_rank`, those ranks (also, ambiguous, where the ring lost the evidence);
2. operations differ: `op_mismatch`, the ranks with the rarer one;
3. sizes differ (if the operation requires equal ones), 4. dtypes differ: likewise;
5. completed on some ranks only: `state_split`, the ranks that have not finished;
6. scheduled on some, started on others: `not_started`, the ranks whose stream is held up by something else;
7. joined by all and completed by none: `all_joined_not_completed`, no rank: look at the network.

No rank is the reference: PyTorch's own analyzer takes the first, and blames all others if the first is the odd one out.
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

# For these operations ranks may pass any sizes; of the out-of-place forms only the root has an output.
_UNEVEN = {"scatter", "gather", "broadcast_oop", "reduce_oop"}
_ALL_TO_ALL = {"all_to_all", "all_to_all_base", "all_to_all_single", "alltoall", "alltoall_base"}
# A rank that is merely late looks like this; the other kinds are wrong whenever they are seen.
_OF_TIME = {"missing_rank", "state_split", "not_started", "all_joined_not_completed", "missing_peer", "transfer_not_completed"}  # fmt: skip
_Sizes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Finding:
    """What is wrong at `seq`. `culprits` are ranks; `ambiguous` if no rank is in the minority, or a ring lost calls.

    `created_ns`: when the first rank that joined called it, ns since the epoch; `waited_ns`: from then to the newest
    file, so no rank had waited longer; None if the clocks do not fit. `frames`: where each rank called it;
    `last_calls`: what a rank that did not call it called last, in any group.
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
        """The operation, if all ranks that joined call the same."""
        names = set(self.ops.values())
        return names.pop() if len(names) == 1 else None

    @property
    def may_be_slow(self) -> bool:
        """Whether its timeout had not expired when the dumps were written, so that a rank that is merely late looks the
        same.
        """
        if self.kind not in _OF_TIME or self.has_timed_out or self.waited_ns is None or self.timeout_ms is None:
            return False
        return self.waited_ns < self.timeout_ms * 1_000_000


def find_at(seq: int, calls: Mapping[int, Calls], has_sizes: bool) -> Finding | None:
    """Returns what is wrong at one sequence number, or None. `calls` by rank; `has_sizes`: sizes of all-to-all can be
    trusted.
    """
    there = _there(seq, calls)
    if not there:  # Overwritten on every rank, or a number that the backend gave to a call it does not record.
        return None
    ops = {rank: "+".join(e.op for e in entries) for rank, entries in there.items()}
    states = {rank: calls[rank].state(seq) for rank in there}

    def finding(kind: str, culprits: Iterable[int], ambiguous: bool = False) -> Finding:
        blamed = tuple(sorted(culprits))
        waiting = tuple(rank for rank in calls if rank not in blamed)
        of_calls = [entry for entries in there.values() for entry in entries]
        return Finding(
            kind, seq, blamed, waiting, ambiguous, ops,
            state=next(iter(states.values())) if len(set(states.values())) == 1 else None,
            created_ns=min((e.created_ns for e in of_calls if e.created_ns), default=None),
            frames={rank: e[0].frame for rank, e in there.items() if e[0].frame},
            last_calls={rank: said for rank in blamed if rank not in there and (said := _last_call(calls[rank]))},
            timeout_ms=max((e.timeout_ms for e in of_calls if isinstance(e.timeout_ms, int)), default=None),
            has_timed_out=any(has_timed_out(e) for rank in there for e in calls[rank].by_seq[seq]),
        )  # fmt: skip

    if absent := [rank for rank, of in calls.items() if rank not in there and of.has_not_called(seq)]:
        return finding("missing_rank", absent)
    for kind, of in (("op_mismatch", lambda e: e.op), ("size_mismatch", _fixed_sizes), ("dtype_mismatch", _dtypes)):
        culprits, ambiguous = _rarer(there, of)
        if culprits:
            return finding(kind, culprits, ambiguous)
    if has_sizes and _bytes_lost(there):
        return finding("size_mismatch", there, ambiguous=True)
    unfinished = {rank for rank, state in states.items() if state != COMPLETED}
    if not unfinished:
        return None
    if any(of.is_through(seq) for of in calls.values()):
        return finding("state_split", unfinished)
    if untold := [rank for rank in calls if rank not in there]:  # their rings lost the evidence
        return finding("missing_rank", untold, ambiguous=True)
    scheduled = {rank for rank, state in states.items() if state == "scheduled"}
    if scheduled and len(scheduled) < len(there):
        return finding("not_started", scheduled)
    return finding("all_joined_not_completed", ())


def finding_of(wait: Waiting, calls: Mapping[int, Calls]) -> Finding:
    """Returns the finding for a waiting send or receive. `seq` is the number of the transfer on its rank."""
    one = wait.transfer
    culprits = (one.peer,) if wait.kind == "missing_peer" else ()
    said = {rank: last for rank in culprits if (last := _last_call(calls[rank]))}
    return Finding(
        wait.kind, one.entry.p2p_seq or 0, culprits, (one.rank,), not wait.is_sure, {one.rank: one.entry.op},
        state=one.entry.state,
        created_ns=one.entry.created_ns,
        frames={one.rank: one.entry.frame} if one.entry.frame else {},
        last_calls=said,
        timeout_ms=one.entry.timeout_ms,
        has_timed_out=one.has_timed_out,
    )  # fmt: skip


def _there(seq: int, calls: Mapping[int, Calls]) -> dict[int, list[Entry]]:
    """The calls by rank, without end markers of coalesced calls; none where the ring may have cut a coalesced group."""
    found = {rank: of.by_seq[seq] for rank, of in calls.items() if seq in of.by_seq}
    most = max(map(len, found.values()), default=0)
    return {
        rank: [entry for entry in entries if not is_end(entry)] or entries
        for rank, entries in found.items()
        if not (calls[rank].is_cut and seq == calls[rank].first and len(entries) < most)
    }


def _last_call(calls: Calls) -> str | None:
    entry = calls.latest
    if entry is None:
        return None
    number = "" if entry.is_p2p else f" number {entry.seq}"
    return f"{entry.op}{number} of group {entry.pg_name}" + (f" at {entry.frame}" if entry.frame else "")


def _rarer(there: Mapping[int, Sequence[Entry]], of: Callable[[Entry], Any]) -> tuple[list[int], bool]:
    """Returns the ranks whose calls differ from the most common; all of them, and True, if there is no most common one."""
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
    """Returns what must be equal on all ranks; nothing for operations that may be uneven."""
    op = _plain(entry.op)
    uneven = op in _UNEVEN or op in _ALL_TO_ALL or op.endswith("v")
    return None if uneven else (entry.input_sizes, entry.output_sizes)


def _dtypes(entry: Entry) -> Any:
    """Returns both sides; added together for operations where only the root has one of them."""
    both = entry.input_dtypes, entry.output_dtypes
    return frozenset().union(*both) if _plain(entry.op) in _UNEVEN else both


def _bytes_lost(there: Mapping[int, Sequence[Entry]]) -> bool:
    """Checks that in an all-to-all everything sent is also received."""
    entries = [e for found in there.values() for e in found if _plain(e.op) in _ALL_TO_ALL]
    given, got = (sum(map(math.prod, (s for e in entries for s in sizes(e)))) for sizes in _SIDES)
    return given != got


_SIDES: tuple[Callable[[Entry], _Sizes], ...] = (lambda e: e.input_sizes, lambda e: e.output_sizes)
