"""Calls of a rank in a process group, known from its ring buffer and from counters that outlive the ring."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pipelines.readers.flight_recorder.dump import Dump, Entry, Group, Status
from pipelines.readers.flight_recorder.groups import DEFAULT

# These backends record no events, so a call stays `scheduled` forever. It is over once retired, with or without error.
WITHOUT_STATES = {"gloo"}
COMPLETED = "completed"
_COALESCED = "coalesced"
_NONE = Status(None, None)


def is_over(entry: Entry) -> bool:
    """Return whether the call completed, or, for a backend that reports no states, ended in any way."""
    return entry.state == COMPLETED or (entry.backend in WITHOUT_STATES and bool(entry.retired))


def has_timed_out(entry: Entry) -> bool:
    """Return whether the call was retired without being over, because it timed out or failed."""
    return bool(entry.retired) and not is_over(entry)


def is_end(entry: Entry) -> bool:
    """Return whether this call is the end marker of coalesced calls.

    Only the marker records the state of the coalesced calls.
    """
    return entry.op == _COALESCED or entry.op.endswith(f"_{_COALESCED}")


@dataclass(frozen=True)
class Calls:
    """A rank's calls in a group, in ring order.

    `is_cut`: whether the ring has lost calls. `is_filtered`: whether finished calls were not dumped. `status`: the
    group's counters on the rank, both None if they do not count collectives. `latest`: the last call in the ring, in
    any group.
    """

    entries: Sequence[Entry]
    latest: Entry | None
    is_cut: bool
    is_filtered: bool
    status: Status

    @cached_property
    def by_seq(self) -> dict[int, list[Entry]]:
        """The collectives by number. Collectives with the same number were coalesced."""
        entries_by_seq: dict[int, list[Entry]] = defaultdict(list)
        for entry in self.entries:
            if not entry.is_p2p:
                entries_by_seq[entry.seq].append(entry)
        return dict(entries_by_seq)

    @cached_property
    def first(self) -> int:
        return min(self.by_seq, default=-1)

    @cached_property
    def last(self) -> int:
        """The number of the last collective in the ring, or -1 without collectives."""
        return max(self.by_seq, default=-1)

    @cached_property
    def called(self) -> int:
        """The last number that the rank is known to have called, or -1 if no number is known."""
        return max(self.last, _known(self.status.enqueued))

    def has_not_called(self, seq: int) -> bool:
        """Return whether the rank certainly has not called this number.

        A ring that lost calls and has no call of the group proves nothing, unless the counters are known.
        """
        is_known = bool(self.by_seq) or not self.is_cut or self.status.enqueued is not None
        return is_known and seq > self.called

    def is_through(self, seq: int) -> bool:
        """Return whether the rank's call with this number completed.

        A call that is not in the ring completed if the counters show it, or if it is missing because finished calls are
        not dumped.
        """
        if seq in self.by_seq:
            return self.state(seq) == COMPLETED
        is_omitted = self.first < seq < self.last or (self.is_filtered and seq <= self.called)
        return is_omitted or seq <= _known(self.status.completed)

    def state(self, seq: int) -> str:
        """Return the earliest state among the rank's coalesced calls with this number, which must be in the ring."""
        entries = self.by_seq[seq]
        ends = [entry for entry in entries if is_end(entry)]
        states = {COMPLETED if is_over(entry) else entry.state for entry in ends or entries}
        earliest = next((state for state in ("scheduled", "started") if state in states), COMPLETED)
        if earliest != COMPLETED and seq <= _known(self.status.completed) and not any(map(has_timed_out, entries)):
            return COMPLETED
        return earliest

    @cached_property
    def transfers(self) -> list[tuple[Entry, Entry]]:
        """Sends and receives, each with the call that has its state (itself, or the end marker of coalesced calls)."""
        p2p_entries = [entry for entry in self.entries if entry.is_p2p]
        ends = {entry.p2p_seq: entry for entry in p2p_entries if is_end(entry)}
        return [(entry, ends.get(entry.p2p_seq, entry)) for entry in p2p_entries if not is_end(entry)]

    @property
    def n_unfinished(self) -> int:
        """The number of calls in the ring that are not over."""
        collectives = sum(self.state(seq) != COMPLETED for seq in self.by_seq)
        return collectives + sum(not is_over(state) for _, state in self.transfers)


def calls_of(dumps: Mapping[int, Dump], entries: Mapping[int, Sequence[Entry]], group: Group) -> dict[int, Calls]:
    """Return, for each rank with a dump, its calls in a group."""
    # Gloo's counters count all operations, and NCCL's may include transfers. Then they are not numbers of collectives.
    is_counted = not any(e.is_p2p or e.backend in WITHOUT_STATES for of_rank in entries.values() for e in of_rank)
    calls_by_rank: dict[int, Calls] = {}
    for rank in group.ranks:
        if rank in dumps:
            rank_entries, dump = entries.get(rank, ()), dumps[rank]
            # Finished calls were not dumped (TORCH_INCLUDE_ONLY_ACTIVE).
            is_filtered = dump.is_cut and not any(map(is_over, dump.entries))
            status = _status(dump, rank_entries, group) if is_counted else _NONE
            latest = dump.entries[-1] if dump.entries else None
            calls_by_rank[rank] = Calls(rank_entries, latest, dump.is_cut, is_filtered, status)
    return calls_by_rank


def _status(dump: Dump, entries: Sequence[Entry], group: Group) -> Status:
    """Return the group's counters on a rank.

    The dump has counters by the rank's own number of a group, which the calls (`entries`) contain. A default group
    without calls is assumed to be the first group of its process (id 0). The counters of any other group without calls
    are unknown.
    """
    pg_ids = {entry.pg_id for entry in entries} or ({0} if group.desc == DEFAULT else {None})
    pg_id = pg_ids.pop()
    return _NONE if pg_ids or pg_id is None else dump.statuses.get(pg_id, _NONE)


def _known(counter: int | None) -> int:
    """Return a counter of the library, or -1 if it is unknown."""
    return -1 if counter is None else counter
