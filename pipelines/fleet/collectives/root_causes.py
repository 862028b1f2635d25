"""Who the waiting in a collective goes back to.

In a job with nested groups the last to arrive is often a victim, which met the straggler in a smaller group just before.
So each collective is followed back: its last rank came from the collective before, which began when that one's last
rank arrived, and so on, until the group last met. The root is the rank that was busy longest on that way, by itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.fleet.clocks.alignment import FittedLane


@dataclass(frozen=True)
class Arrival:
    """How a collective of a lane began: when its last rank arrived, ns on the common clock (of several, the lowest)."""

    lane: int
    arrived_ns: int
    rank: int


@dataclass(frozen=True)
class _Link:
    """How the last rank of a collective came: from the collective before (its place; None: there is none); busy since
    then, ns.
    """

    before: int | None
    busy_ns: int


def roots_of(lanes: Sequence[FittedLane]) -> dict[int, list[int]]:
    """Returns, by lane, the root of each of its instances; lanes whose clocks are not aligned are left out."""
    arrivals: list[Arrival] = []
    ends: dict[int, list[tuple[int, int]]] = {}
    for one in lanes:
        if one.starts is None or one.ends is None:
            continue
        last = one.starts.argmax(axis=0).tolist()
        for instance, member in enumerate(last):
            for rank, end_ns in zip(one.ranks, one.ends[:, instance].tolist(), strict=True):
                ends.setdefault(rank, []).append((end_ns, len(arrivals)))
            arrivals.append(Arrival(one.lane.number, int(one.starts[member, instance]), one.ranks[member]))
    for left in ends.values():
        left.sort()
    first_ns = min((int(one.starts.min()) for one in lanes if one.starts is not None and one.starts.size), default=0)
    found: dict[int, list[int]] = {}
    for arrival, root in zip(arrivals, roots(arrivals, ends, first_ns), strict=True):
        found.setdefault(arrival.lane, []).append(root)
    return found


def roots(arrivals: Sequence[Arrival], ends: dict[int, list[tuple[int, int]]], first_ns: int) -> list[int]:
    """Returns the root of each collective. `ends`: by rank when it left collectives, (ns, place in arrivals), by time.
    first_ns: a rank counts as busy from here to its first collective.
    """
    links = [_link(arrival, ends[arrival.rank], first_ns) for arrival in arrivals]
    met: dict[int, int] = {}  # by lane, when it last met
    found = [0] * len(arrivals)
    for place in sorted(range(len(arrivals)), key=lambda i: arrivals[i].arrived_ns):
        lane = arrivals[place].lane
        found[place] = _root(place, arrivals, links, met.get(lane))
        met[lane] = arrivals[place].arrived_ns
    return found


def _link(arrival: Arrival, left: Sequence[tuple[int, int]], first_ns: int) -> _Link:
    at = bisect_right(left, arrival.arrived_ns, key=lambda end: end[0]) - 1
    if at < 0:
        return _Link(None, arrival.arrived_ns - first_ns)
    return _Link(left[at][1], arrival.arrived_ns - left[at][0])


def _root(place: int, arrivals: Sequence[Arrival], links: Sequence[_Link], since_ns: int | None) -> int:
    """Returns the rank that was busy longest on the way back from a collective to `since_ns`; the last rank on ties."""
    busy: Counter[int] = Counter()
    at: int | None = place
    while at is not None and (since_ns is None or arrivals[at].arrived_ns > since_ns):
        busy[arrivals[at].rank] += links[at].busy_ns
        before = links[at].before
        # Where clocks are off, a collective may seem to end before it began: do not go in circles.
        at = before if before is not None and arrivals[before].arrived_ns < arrivals[at].arrived_ns else None
    return max(busy, key=lambda rank: busy[rank])
