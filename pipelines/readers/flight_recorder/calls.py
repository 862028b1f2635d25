"""What a rank is known to have called in a process group: from its ring buffer, and from counters that outlive the
ring.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from pipelines.readers.flight_recorder.dump import Dump, Entry, Group, Status
from pipelines.readers.flight_recorder.groups import DEFAULT

# These backends record no events, so a call stays `scheduled` forever: it is over once retired, with or without an
# error.
WITHOUT_STATES = {"gloo"}
COMPLETED = "completed"
_COALESCED = "coalesced"
_NONE = Status(None, None)


def is_over(entry: Entry) -> bool:
    """Whether it completed; for a backend that reports no states, whether it ended in any way."""
    return entry.state == COMPLETED or (entry.backend in WITHOUT_STATES and bool(entry.retired))


def has_timed_out(entry: Entry) -> bool:
    """Whether the watchdog gave up on it."""
    return bool(entry.retired) and not is_over(entry)


def is_end(entry: Entry) -> bool:
    """The end marker of coalesced calls: it has their state, they have none of their own."""
    return entry.op == _COALESCED or entry.op.endswith(f"_{_COALESCED}")


@dataclass(frozen=True)
class Calls:
    """A rank's calls in a group, in ring order. `is_cut`: the ring lost some; `is_filtered`: finished calls were not
    dumped.

    `status`: the group's counters on the rank; None if they do not count collectives. `latest`: the last call in the
    ring, in any group.
    """

    entries: Sequence[Entry]
    latest: Entry | None
    is_cut: bool
    is_filtered: bool
    status: Status

    @cached_property
    def by_seq(self) -> dict[int, list[Entry]]:
        """Returns the collectives by number; several with one number were coalesced."""
        found: dict[int, list[Entry]] = defaultdict(list)
        for entry in self.entries:
            if not entry.is_p2p:
                found[entry.seq].append(entry)
        return dict(found)

    @cached_property
    def first(self) -> int:
        return min(self.by_seq, default=-1)

    @cached_property
    def last(self) -> int:
        """Returns the last collective in the ring; -1 for none."""
        return max(self.by_seq, default=-1)

    @cached_property
    def called(self) -> int:
        """Returns the last number that the rank is known to have called; -1 for none."""
        return max(self.last, self.status.enqueued or -1)

    def has_not_called(self, seq: int) -> bool:
        """Whether the rank certainly has not called it. A ring that lost calls and holds none of the group proves
        nothing.
        """
        knows = bool(self.by_seq) or not self.is_cut or self.status.enqueued is not None
        return knows and seq > self.called

    def is_through(self, seq: int) -> bool:
        """Whether the call completed. One that is not in the ring did if the counters say so, or if only finished ones
        are left out.
        """
        if seq in self.by_seq:
            return self.state(seq) == COMPLETED
        left_out = self.first < seq < self.last or (self.is_filtered and seq <= self.called)
        return left_out or seq <= (self.status.completed or -1)

    def state(self, seq: int) -> str:
        """Returns the weakest state that holds for all coalesced calls of a number in the ring."""
        entries = self.by_seq[seq]
        ends = [entry for entry in entries if is_end(entry)]
        states = {COMPLETED if is_over(entry) else entry.state for entry in ends or entries}
        least = next((state for state in ("scheduled", "started") if state in states), COMPLETED)
        if least != COMPLETED and seq <= (self.status.completed or -1) and not any(map(has_timed_out, entries)):
            return COMPLETED
        return least

    @cached_property
    def transfers(self) -> list[tuple[Entry, Entry]]:
        """Returns sends and receives, each with the call that has its state: its own, or the end of the coalesced
        calls.
        """
        of_pairs = [entry for entry in self.entries if entry.is_p2p]
        ends = {entry.p2p_seq: entry for entry in of_pairs if is_end(entry)}
        return [(entry, ends.get(entry.p2p_seq, entry)) for entry in of_pairs if not is_end(entry)]

    @property
    def n_unfinished(self) -> int:
        """Returns the calls in the ring that are not over."""
        collectives = sum(self.state(seq) != COMPLETED for seq in self.by_seq)
        return collectives + sum(not is_over(state) for _, state in self.transfers)


def calls_of(dumps: Mapping[int, Dump], entries: Mapping[int, Sequence[Entry]], group: Group) -> dict[int, Calls]:
    """Returns, for each rank that has a dump, its calls in a group."""
    # Gloo's counters count all operations, and NCCL's may include transfers: then they do not number the collectives.
    is_counted = not any(e.is_p2p or e.backend in WITHOUT_STATES for found in entries.values() for e in found)
    found: dict[int, Calls] = {}
    for rank in group.ranks:
        if rank in dumps:
            own, dump = entries.get(rank, ()), dumps[rank]
            # Only unfinished calls: finished ones were left out of the dump (TORCH_INCLUDE_ONLY_ACTIVE).
            is_filtered = dump.is_cut and not any(map(is_over, dump.entries))
            status = _status(dump, own, group) if is_counted else _NONE
            latest = dump.entries[-1] if dump.entries else None
            found[rank] = Calls(own, latest, dump.is_cut, is_filtered, status)
    return found


def _status(dump: Dump, entries: Sequence[Entry], group: Group) -> Status:
    """Returns the group's counters on a rank; the default group's are the first that a process has."""
    pg_ids = {entry.pg_id for entry in entries} or ({0} if group.desc == DEFAULT else {None})
    pg_id = pg_ids.pop()
    return _NONE if pg_ids or pg_id is None else dump.statuses.get(pg_id, _NONE)
