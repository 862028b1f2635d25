"""Aligns the clocks of a capture: one clock per rank, and all collectives on the lowest rank's clock."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipelines.fleet.clocks.clock_offsets import (
    MAX_ERROR,
    ClockFit,
    RankClock,
    fit_clocks,
    fit_entries,
    joined_ranks,
    unfitted,
)
from pipelines.fleet.collectives.entries import Entries, Instances
from pipelines.fleet.collectives.lanes import Kernels, Lane, lanes_of
from pipelines.fleet.collectives.matching import LaneMatch, match_lane, refused_match


@dataclass(frozen=True)
class FittedLane:
    """A lane with its match and its own clock fit, which determines the instances that count for clocks.

    starts, ends: (members, instances) int64 ns on the lowest rank's clock; None where clocks are not aligned.
    """

    lane: Lane
    match: LaneMatch
    fit: ClockFit
    starts: np.ndarray | None = None
    ends: np.ndarray | None = None

    @property
    def ranks(self) -> list[int]:
        """Returns its ranks, ascending."""
        return [member.rank for member in self.lane.members]

    @property
    def refused(self) -> str | None:
        """Why its collectives are not used; None if they are."""
        return self.match.refused or self.fit.refused


@dataclass(frozen=True)
class FittedClock:
    """A rank's clock, or why there is none. `method`: one of METHODS."""

    rank: int
    clock: RankClock | None
    contradiction_ns: float | None
    refused: str | None
    method: str | None = None


COLLECTIVE_ENDS, ONE_FILE, SHARED_CLOCK = METHODS = ("collective_ends", "one_file", "shared_clock")
"""How clocks are aligned: by when collectives end; or not at all, because the ranks are of one file or of one host."""
_NOISE = ("noisy_ends", "too_many_dropped")
Fits = tuple[list[FittedLane], list[FittedClock]]


def fit_capture(
    ranks: Sequence[int],
    kernels: dict[int, Kernels],
    one_clock: bool = False,
    hosts: Mapping[int, str | None] | None = None,
) -> Fits:
    """Match the lanes of a capture and align its clocks, unless all are known to be one.

    `ranks`: the capture's, ascending. `hosts`: where they ran; None where that is not known.

    Ends tell the offset of GPUs' clocks of one host, too. Where they are too noisy for that, as where ranks share a GPU, ranks
    of one host keep their common clock; so do ranks of hosts that are not known, if their clocks agree within the noise.
    """
    lanes, mismatch = lanes_of(ranks, kernels)
    named = [(hosts or {}).get(rank) for rank in ranks]
    one_host = len(ranks) > 1 and None not in named and len(set(named)) == 1
    matches = [(lane, _match(lane, mismatch if lane.group is None else None, one_clock or one_host)) for lane in lanes]
    n_steps = len({step for k in kernels.values() for step in k.step if step is not None})
    fits = _fit(ranks, matches, n_steps, one_clock)
    if not _is_noisy(fits):
        return _by(fits, ONE_FILE if one_clock else COLLECTIVE_ENDS)
    if one_clock:
        return _by(_fit(ranks, matches, n_steps, True, noisy=True), ONE_FILE)
    if one_host or len({name for name in named if name is not None}) < 2:
        shared = _fit(ranks, matches, n_steps, True, noisy=True)
        if any(clock.clock for clock in shared[1]) and (one_host or _agree(shared)):
            return _by(shared, SHARED_CLOCK)
    return _by(_fit(ranks, matches, n_steps, False, noisy=True), COLLECTIVE_ENDS)


def _by(fits: Fits, method: str) -> Fits:
    lanes, clocks = fits
    return lanes, [replace(clock, method=method) if clock.clock else clock for clock in clocks]


def _is_noisy(fits: Fits) -> bool:
    """Whether no clock could be fitted, and the reason is that the ends of collectives are too noisy."""
    lanes, clocks = fits
    reasons = [fitted.refused or "" for fitted in (*(lane.fit for lane in lanes), *clocks)]
    return not any(clock.clock for clock in clocks) and any(reason.startswith(_NOISE) for reason in reasons)


def _agree(fits: Fits) -> bool:
    """Whether what the ends say of the clocks' offsets is within their noise, and small beside what ranks wait."""
    lanes, clocks = fits
    known = [clock.clock for clock in clocks if clock.clock]
    waits = np.concatenate([np.ptp(lane.starts, axis=0) for lane in lanes if lane.starts is not None])
    noise = max(clock.sigma_ns for clock in known)
    return all(
        abs(clock.estimate_ns - clock.offset_ns) <= noise and clock.error_ns <= MAX_ERROR * waits.mean()
        for clock in known
    )


Matched = tuple[Lane, LaneMatch]


def _fit(ranks: Sequence[int], matches: Sequence[Matched], n_steps: int, one_clock: bool, noisy: bool = False) -> Fits:
    """`noisy`: lanes whose ends are noise are used, too, where the clock is one or their match is certain."""
    fitted = [_fit_lane(lane, match, n_steps, one_clock, noisy) for lane, match in matches]
    good = [one for one in fitted if one.refused is None]
    if len(good) == 1 and not one_clock:
        clocks, aligned = _of_one_lane(good[0])
    else:
        clocks, aligned = _of_lanes(ranks, good, n_steps, one_clock, noisy)
    there = {clock.rank for clock in clocks}
    reasons = _reasons(fitted)
    any_reason = reasons.get(None, "no_collectives")
    clocks += [FittedClock(rank, None, None, reasons.get(rank, any_reason)) for rank in ranks if rank not in there]
    return [aligned.get(one.lane.number, one) for one in fitted], sorted(clocks, key=lambda clock: clock.rank)


def _match(lane: Lane, mismatch: str | None, one_clock: bool) -> LaneMatch:
    if mismatch or len(lane.members) < 2:
        alone = ", ".join(str(member.rank) for member in lane.members)
        return refused_match(lane.sequences, mismatch or f"no_partner: only rank {alone} is present")
    return match_lane(lane.sequences, one_clock)


def _fit_lane(lane: Lane, match: LaneMatch, n_steps: int, one_clock: bool, noisy: bool) -> FittedLane:
    instances = lane.instances(match.index)
    if match.refused:
        return FittedLane(lane, match, unfitted(instances, match.refused))
    fit = fit_clocks(instances, n_steps, one_clock=one_clock and noisy, is_certain=noisy and match.is_certain)
    if fit.refused and match.doubt:
        match = refused_match(lane.sequences, f"{match.doubt}; {fit.refused}", match.contradictions)
    return FittedLane(lane, match, fit)


def _reasons(fitted: Sequence[FittedLane]) -> dict[int | None, str]:
    """Returns the reason of the first refused lane of each rank, and for None that of the first refused lane of any."""
    found: dict[int | None, str] = {}
    for one in fitted:
        if one.refused:
            for rank in (None, *(member.rank for member in one.lane.members)):
                found.setdefault(rank, one.refused)
    return found


Aligned = tuple[list[FittedClock], dict[int, FittedLane]]


def _of_one_lane(one: FittedLane) -> Aligned:
    clocks = [
        FittedClock(member.rank, clock, one.fit.contradiction_ns, None)
        for member, clock in zip(one.lane.members, one.fit.clocks, strict=True)
    ]
    return clocks, {one.lane.number: replace(one, starts=one.fit.aligned_start_ns, ends=one.fit.aligned_end_ns)}


def _of_lanes(ranks: Sequence[int], good: Sequence[FittedLane], n_steps: int, one_clock: bool, noisy: bool) -> Aligned:
    """Fits clocks over the kept instances of all lanes, once per connected set of ranks; the first set counts."""
    clocks: list[FittedClock] = []
    aligned: dict[int, FittedLane] = {}
    row_of = {rank: row for row, rank in enumerate(ranks)}
    lanes_at: dict[int, list[FittedLane]] = {}
    for one in good:
        lanes_at.setdefault(one.ranks[0], []).append(one)
    first: int | None = None
    for rows in joined_ranks(len(ranks), ([row_of[rank] for rank in one.ranks] for one in good)):
        group = [ranks[row] for row in rows]
        own = [one for rank in group for one in lanes_at.get(rank, ())]
        if not own:
            continue
        if first is not None:
            reason = f"not_joined: with rank {group[0]}, but not with rank {first}"
            clocks += [FittedClock(rank, None, None, reason) for rank in group]
            continue
        first = group[0]
        certain = noisy and all(one.match.is_certain for one in own)
        fit = fit_entries(_pooled(group, own), n_steps, _near(group, own), one_clock, certain)
        found = fit.clocks or [None] * len(group)
        clocks += [
            FittedClock(rank, clock, fit.contradiction_ns, fit.refused)
            for rank, clock in zip(group, found, strict=True)
        ]
        if fit.refused is None:
            aligned = _spread_out(group, own, fit)
    return clocks, aligned


def _pooled(ranks: Sequence[int], lanes: Sequence[FittedLane]) -> Entries:
    """Returns the kept instances of lanes whose ranks are all among `ranks`, lane after lane."""
    row_of = {rank: row for row, rank in enumerate(ranks)}
    parts, n = [], 0
    for one in lanes:
        found, kept = one.lane.instances(one.match.index), one.fit.kept
        cut = Instances(found.start_ns[:, kept], found.end_ns[:, kept], found.present[:, kept], found.bounded[kept])
        part = Entries.of(cut)
        rows = np.array([row_of[rank] for rank in one.ranks])
        parts.append(replace(part, rank=rows[part.rank], instance=part.instance + n))
        n += len(part.bounded)
    names = ("rank", "instance", "start_ns", "end_ns", "bounded")
    whole = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return Entries(n_ranks=len(ranks), **whole)


def _near(ranks: Sequence[int], lanes: Sequence[FittedLane]) -> np.ndarray:
    """Returns offsets (ranks,) near the truth, ns: those of the largest lane's own fit, and from there lane by lane.

    A polish moves one clock at a time. Where groups are nested (a node's ranks meet each other more often than all
    others together), it would stop with every node in agreement with itself only; from here there is not far to go.
    """
    of_rank: dict[int, list[int]] = {}
    for number, one in enumerate(lanes):
        for rank in one.ranks:
            of_rank.setdefault(rank, []).append(number)

    def place(number: int) -> tuple[int, int]:
        return -len(lanes[number].ranks), number

    waiting = [min(map(place, range(len(lanes))))]
    seen, known = {waiting[0][1]}, dict[int, int]()
    while waiting:
        one = lanes[heapq.heappop(waiting)[1]]
        own = dict(zip(one.ranks, (clock.offset_ns for clock in one.fit.clocks), strict=True))
        shifts = sorted(known[rank] - offset for rank, offset in own.items() if rank in known)
        shift = shifts[len(shifts) // 2] if shifts else 0
        for rank in own.keys() - known.keys():
            known[rank] = own[rank] + shift
            for number in of_rank[rank]:
                if number not in seen:
                    seen.add(number)
                    heapq.heappush(waiting, place(number))
    return np.array([known[rank] for rank in ranks], np.int64)


def _spread_out(ranks: Sequence[int], lanes: Sequence[FittedLane], fit: ClockFit) -> dict[int, FittedLane]:
    """Returns the lanes with times on one clock; instances that a lane's own fit dropped are shifted by the offsets."""
    offsets = {rank: clock.offset_ns for rank, clock in zip(ranks, fit.clocks, strict=True)}
    found, at = {}, 0
    for one in lanes:
        shift = np.array([offsets[rank] for rank in one.ranks], np.int64)[:, None]
        raw, kept = one.lane.instances(one.match.index), one.fit.kept
        starts, ends = raw.start_ns - shift, raw.end_ns - shift
        past = at + len(one.ranks) * int(kept.sum())
        starts[:, kept] = fit.aligned_start_ns[at:past].reshape(-1, len(one.ranks)).T
        ends[:, kept] = fit.aligned_end_ns[at:past].reshape(-1, len(one.ranks)).T
        found[one.lane.number] = replace(one, starts=starts, ends=ends)
        at = past
    return found
