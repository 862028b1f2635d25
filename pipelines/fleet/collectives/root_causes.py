"""The root cause of the waiting in each collective.

In a job with nested groups, the last rank to arrive is often a victim, which met the straggler in a smaller group just
before. So each collective is traced back. Its last rank came from the preceding collective, which began when that
collective's last rank arrived, and so on. The walk stops at the time of the lane's preceding collective. The root is
the rank with the most busy time on this path.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.fleet.clocks.alignment import FittedLane


@dataclass(frozen=True)
class Arrival:
    """The last arrival at a lane's collective, ns on the common clock. On a tie, `rank` is the lowest rank."""

    lane: int
    arrived_ns: int
    rank: int


@dataclass(frozen=True)
class _Link:
    """The link from a collective back to the preceding collective of its last rank.

    `before`: index of the preceding collective, or None. `busy_ns`: the time since the rank left it.
    """

    before: int | None
    busy_ns: int


def roots_of(lanes: Sequence[FittedLane]) -> dict[int, list[int]]:
    """Return the root rank of each instance, by lane. Omit lanes whose clocks are not aligned."""
    arrivals: list[Arrival] = []
    ends: dict[int, list[tuple[int, int]]] = {}
    for lane in lanes:
        if lane.starts is None or lane.ends is None:
            continue
        last = lane.starts.argmax(axis=0).tolist()
        for instance, member in enumerate(last):
            for rank, end_ns in zip(lane.ranks, lane.ends[:, instance].tolist(), strict=True):
                ends.setdefault(rank, []).append((end_ns, len(arrivals)))
            arrivals.append(Arrival(lane.lane.number, int(lane.starts[member, instance]), lane.ranks[member]))
    for departures in ends.values():
        departures.sort()
    first_ns = min(
        (int(lane.starts.min()) for lane in lanes if lane.starts is not None and lane.starts.size), default=0
    )
    roots_by_lane: dict[int, list[int]] = {}
    for arrival, root in zip(arrivals, roots(arrivals, ends, first_ns), strict=True):
        roots_by_lane.setdefault(arrival.lane, []).append(root)
    return roots_by_lane


def roots(arrivals: Sequence[Arrival], ends: dict[int, list[tuple[int, int]]], first_ns: int) -> list[int]:
    """Return the root rank of each collective.

    `ends`: by rank, the times when it left collectives, as (ns, index in arrivals) ordered by time. `first_ns`: a rank
    counts as busy from this time to its first collective.
    """
    links = [_link(arrival, ends[arrival.rank], first_ns) for arrival in arrivals]
    last_met_ns: dict[int, int] = {}  # by lane
    root_ranks = [0] * len(arrivals)
    for index in sorted(range(len(arrivals)), key=lambda index: arrivals[index].arrived_ns):
        lane = arrivals[index].lane
        root_ranks[index] = _root(index, arrivals, links, last_met_ns.get(lane))
        last_met_ns[lane] = arrivals[index].arrived_ns
    return root_ranks


def _link(arrival: Arrival, departures: Sequence[tuple[int, int]], first_ns: int) -> _Link:
    index = bisect_right(departures, arrival.arrived_ns, key=lambda end: end[0]) - 1
    if index < 0:
        return _Link(None, arrival.arrived_ns - first_ns)
    return _Link(departures[index][1], arrival.arrived_ns - departures[index][0])


def _root(start: int, arrivals: Sequence[Arrival], links: Sequence[_Link], since_ns: int | None) -> int:
    """Return the rank that was busy longest on the path back from a collective to `since_ns`.

    On ties, return the rank that the walk reached first. If the lane's preceding collective has the same arrival time,
    return the last rank itself.
    """
    busy: Counter[int] = Counter({arrivals[start].rank: 0})
    current: int | None = start
    while current is not None and (since_ns is None or arrivals[current].arrived_ns > since_ns):
        busy[arrivals[current].rank] += links[current].busy_ns
        before = links[current].before
        # With wrong clocks, a collective may seem to end before it began. The loop ends because each arrival must be
        # earlier.
        current = before if before is not None and arrivals[before].arrived_ns < arrivals[current].arrived_ns else None
    return max(busy, key=lambda rank: busy[rank])
