"""Unfinished sends and receives, whose peer did not take part or waits as well.

The two sides of a transfer have no common number, so the n-th send from a to b is matched with the n-th receive of b
from a, if no ring has lost a call. Otherwise, a peer with an unfinished counterpart is assumed to have joined.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from pipelines.readers.flight_recorder.calls import Calls, has_timed_out, is_over
from pipelines.readers.flight_recorder.dump import Entry, Group

_OP = re.compile(r"^(?:(send) (\d+)->(\d+)|(recv) (\d+)<-(\d+))$")


@dataclass(frozen=True)
class Transfer:
    """A send or receive of `rank` with `peer` (ranks of the job). `ordinal`: its index between these two, from 0."""

    entry: Entry
    rank: int
    peer: int
    is_send: bool
    ordinal: int
    is_over: bool
    has_timed_out: bool


@dataclass(frozen=True)
class Waiting:
    """The transfer that waits longest.

    `kind`: missing_peer or transfer_not_completed. `is_sure`: whether the rings of both ranks are complete.
    """

    transfer: Transfer
    kind: str
    is_sure: bool


def waiting_transfer(group: Group, calls: Mapping[int, Calls]) -> Waiting | None:
    """Return the earliest unfinished transfer, or None. Transfers with a missing peer take precedence."""
    by_rank = {rank: _transfers(group, rank, own_calls) for rank, own_calls in calls.items()}
    waits = [
        _judge(transfer, by_rank, calls)
        for transfers in by_rank.values()
        for transfer in transfers
        if not transfer.is_over
    ]
    waits.sort(key=lambda wait: (wait.kind != "missing_peer", wait.transfer.entry.created_ns or 0))
    return waits[0] if waits else None


def _judge(transfer: Transfer, by_rank: Mapping[int, list[Transfer]], calls: Mapping[int, Calls]) -> Waiting:
    if transfer.peer not in calls:  # its dump is missing
        return Waiting(transfer, "transfer_not_completed", False)
    counterparts = [
        other for other in by_rank[transfer.peer] if other.peer == transfer.rank and other.is_send != transfer.is_send
    ]
    is_sure = not calls[transfer.rank].is_cut and not calls[transfer.peer].is_cut
    if is_sure:
        is_there = any(other.ordinal == transfer.ordinal for other in counterparts)
    else:
        is_there = any(not other.is_over for other in counterparts)
    return Waiting(transfer, "transfer_not_completed" if is_there else "missing_peer", is_sure)


def _transfers(group: Group, rank: int, calls: Calls) -> list[Transfer]:
    counts: Counter[tuple[int, bool]] = Counter()
    transfers = []
    for entry, state in calls.transfers:
        match = _OP.match(entry.op)
        peer = int(match[3] or match[6]) if match else len(group.ranks)
        if match and peer < len(group.ranks):  # other calls stay unfinished, so no verdict is healthy
            key = group.ranks[peer], match[1] is not None
            transfers.append(Transfer(entry, rank, *key, counts[key], is_over(state), has_timed_out(state)))
            counts[key] += 1
    return transfers
