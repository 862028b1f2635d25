"""The alignment of a capture's clocks. It yields one clock per rank, and all collectives on the lowest rank's clock."""

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
    """A lane with its match and its own clock fit, which selects the instances that the capture's clock fit uses.

    starts, ends: (members, instances) int64 ns on the lowest rank's clock; None if clocks are not aligned.
    """

    lane: Lane
    match: LaneMatch
    fit: ClockFit
    starts: np.ndarray | None = None
    ends: np.ndarray | None = None

    @property
    def ranks(self) -> list[int]:
        """Return the lane's ranks, ascending."""
        return [member.rank for member in self.lane.members]

    @property
    def refused(self) -> str | None:
        """Return the reason why the lane's collectives are not used; None if they are."""
        return self.match.refused or self.fit.refused


@dataclass(frozen=True)
class FittedClock:
    """A rank's clock, or the reason why the rank has none.

    `contradiction_ns`: None if no fit was attempted. `method`: one of METHODS; None without a clock.
    """

    rank: int
    clock: RankClock | None
    contradiction_ns: float | None
    refused: str | None
    method: str | None = None


COLLECTIVE_ENDS, ONE_FILE, SHARED_CLOCK = METHODS = ("collective_ends", "one_file", "shared_clock")
"""How clocks are aligned: by the ends of collectives, or not at all, because the ranks share a file or a host."""
_NOISE = ("noisy_ends", "too_many_dropped")
Fits = tuple[list[FittedLane], list[FittedClock]]


def fit_capture(
    ranks: Sequence[int],
    kernels: dict[int, Kernels],
    one_clock: bool = False,
    hosts: Mapping[int, str | None] | None = None,
) -> Fits:
    """Match the lanes of a capture and align its clocks, unless all ranks are known to share a clock.

    `ranks`: the capture's ranks, ascending. `one_clock`: whether the ranks share a clock. `hosts`: the host of each
    rank, None if unknown.

    The ends of collectives also determine the offsets between GPU clocks of one host. The ends may be too noisy, for
    example because ranks share a GPU. Ranks of one host then keep their common clock. Ranks of unknown hosts keep it if
    their clocks agree within the noise.
    """
    lanes, mismatch = lanes_of(ranks, kernels)
    host_names = [(hosts or {}).get(rank) for rank in ranks]
    one_host = len(ranks) > 1 and None not in host_names and len(set(host_names)) == 1
    matches = [(lane, _match(lane, mismatch if lane.group is None else None, one_clock or one_host)) for lane in lanes]
    n_steps = len({step for rank_kernels in kernels.values() for step in rank_kernels.step if step is not None})
    fits = _fit(ranks, matches, n_steps, one_clock)
    if not _is_noisy(fits):
        return _by(fits, ONE_FILE if one_clock else COLLECTIVE_ENDS)
    if one_clock:
        return _by(_fit(ranks, matches, n_steps, True, noisy=True), ONE_FILE)
    if one_host or len({name for name in host_names if name is not None}) < 2:
        shared = _fit(ranks, matches, n_steps, True, noisy=True)
        if any(clock.clock for clock in shared[1]) and (one_host or _agree(shared)):
            return _by(shared, SHARED_CLOCK)
    return _by(_fit(ranks, matches, n_steps, False, noisy=True), COLLECTIVE_ENDS)


def _by(fits: Fits, method: str) -> Fits:
    lanes, clocks = fits
    return lanes, [replace(clock, method=method) if clock.clock else clock for clock in clocks]


def _is_noisy(fits: Fits) -> bool:
    """Return whether no clock could be fitted because the ends of collectives are too noisy."""
    lanes, clocks = fits
    reasons = [fitted.refused or "" for fitted in (*(lane.fit for lane in lanes), *clocks)]
    return not any(clock.clock for clock in clocks) and any(reason.startswith(_NOISE) for reason in reasons)


def _agree(fits: Fits) -> bool:
    """Return whether the offsets estimated from the ends of collectives are within the noise of the ends.

    Their error bars must also be small compared with the mean wait of ranks.
    """
    lanes, clocks = fits
    fitted_clocks = [clock.clock for clock in clocks if clock.clock]
    waits_ns = np.concatenate([np.ptp(lane.starts, axis=0) for lane in lanes if lane.starts is not None])
    noise_ns = max(clock.sigma_ns for clock in fitted_clocks)
    return all(
        abs(clock.estimate_ns - clock.offset_ns) <= noise_ns and clock.error_ns <= MAX_ERROR * waits_ns.mean()
        for clock in fitted_clocks
    )


Matched = tuple[Lane, LaneMatch]


def _fit(ranks: Sequence[int], matches: Sequence[Matched], n_steps: int, one_clock: bool, noisy: bool = False) -> Fits:
    """Return the fitted lanes and clocks, with aligned times if possible.

    `noisy`: also use lanes whose ends are noisy, if the ranks share a clock or the lane's match is certain.
    """
    fitted = [_fit_lane(lane, match, n_steps, one_clock, noisy) for lane, match in matches]
    good = [lane for lane in fitted if lane.refused is None]
    if len(good) == 1 and not one_clock:
        clocks, aligned = _of_one_lane(good[0])
    else:
        clocks, aligned = _of_lanes(ranks, good, n_steps, one_clock, noisy)
    ranks_with_clock = {clock.rank for clock in clocks}
    reasons = _reasons(fitted)
    any_reason = reasons.get(None, "no_collectives")
    clocks += [
        FittedClock(rank, None, None, reasons.get(rank, any_reason)) for rank in ranks if rank not in ranks_with_clock
    ]
    return [aligned.get(lane.lane.number, lane) for lane in fitted], sorted(clocks, key=lambda clock: clock.rank)


def _match(lane: Lane, mismatch: str | None, one_clock: bool) -> LaneMatch:
    if mismatch or len(lane.members) < 2:
        alone = ", ".join(str(member.rank) for member in lane.members)
        return refused_match(lane.sequences, mismatch or f"no_partner: only rank {alone} is present")
    if lane.has_pairs:
        reason = "point_to_point: each send and receive is between two ranks, and the group has more"
        return refused_match(lane.sequences, reason)
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
    """Return the refusal reason of the first refused lane of each rank, and of the first of all under the key None."""
    reason_by_rank: dict[int | None, str] = {}
    for lane in fitted:
        if lane.refused:
            for rank in (None, *(member.rank for member in lane.lane.members)):
                reason_by_rank.setdefault(rank, lane.refused)
    return reason_by_rank


Aligned = tuple[list[FittedClock], dict[int, FittedLane]]


def _of_one_lane(lane: FittedLane) -> Aligned:
    clocks = [
        FittedClock(member.rank, clock, lane.fit.contradiction_ns, None)
        for member, clock in zip(lane.lane.members, lane.fit.clocks, strict=True)
    ]
    return clocks, {lane.lane.number: replace(lane, starts=lane.fit.aligned_start_ns, ends=lane.fit.aligned_end_ns)}


def _of_lanes(ranks: Sequence[int], good: Sequence[FittedLane], n_steps: int, one_clock: bool, noisy: bool) -> Aligned:
    """Fit clocks over the kept instances of all lanes of a connected set of ranks.

    Only the first connected set with lanes is fitted. Ranks of the other sets have no clock.
    """
    clocks: list[FittedClock] = []
    aligned: dict[int, FittedLane] = {}
    row_of = {rank: row for row, rank in enumerate(ranks)}
    lanes_by_first_rank: dict[int, list[FittedLane]] = {}
    for lane in good:
        lanes_by_first_rank.setdefault(lane.ranks[0], []).append(lane)
    first_rank: int | None = None
    for rows in joined_ranks(len(ranks), ([row_of[rank] for rank in lane.ranks] for lane in good)):
        group = [ranks[row] for row in rows]
        group_lanes = [lane for rank in group for lane in lanes_by_first_rank.get(rank, ())]
        if not group_lanes:
            continue
        if first_rank is not None:
            reason = f"not_joined: with rank {group[0]}, but not with rank {first_rank}"
            clocks += [FittedClock(rank, None, None, reason) for rank in group]
            continue
        first_rank = group[0]
        is_certain = noisy and all(lane.match.is_certain for lane in group_lanes)
        fit = fit_entries(_pooled(group, group_lanes), n_steps, _near(group, group_lanes), one_clock, is_certain)
        group_clocks = fit.clocks or [None] * len(group)
        clocks += [
            FittedClock(rank, clock, fit.contradiction_ns, fit.refused)
            for rank, clock in zip(group, group_clocks, strict=True)
        ]
        if fit.refused is None:
            aligned = _spread_out(group, group_lanes, fit)
    return clocks, aligned


def _pooled(ranks: Sequence[int], lanes: Sequence[FittedLane]) -> Entries:
    """Return the kept instances of lanes as entries, lane after lane. `ranks` contains all ranks of the lanes."""
    row_of = {rank: row for row, rank in enumerate(ranks)}
    parts, n = [], 0
    for lane in lanes:
        instances, is_kept = lane.lane.instances(lane.match.index), lane.fit.kept
        cut = Instances(
            instances.start_ns[:, is_kept],
            instances.end_ns[:, is_kept],
            instances.present[:, is_kept],
            instances.bounded[is_kept],
        )
        part = Entries.of(cut)
        rows = np.array([row_of[rank] for rank in lane.ranks])
        parts.append(replace(part, rank=rows[part.rank], instance=part.instance + n))
        n += len(part.bounded)
    names = ("rank", "instance", "start_ns", "end_ns", "bounded")
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}
    return Entries(n_ranks=len(ranks), **columns)


def _near(ranks: Sequence[int], lanes: Sequence[FittedLane]) -> np.ndarray:
    """Return offsets near the truth, (ranks,) int64 ns, from which the median polish starts.

    The offsets of the largest lane's ranks come from that lane's fit. Each further lane that shares a rank with the
    lanes so far then adds the offsets of its other ranks.

    The median polish moves one clock at a time. Groups may be nested: a node's ranks meet each other more often than
    they meet other ranks. From equal clocks, the polish would stop as soon as each node agrees with itself. From these
    offsets, little is left to change.
    """
    lanes_of_rank: dict[int, list[int]] = {}
    for number, lane in enumerate(lanes):
        for rank in lane.ranks:
            lanes_of_rank.setdefault(rank, []).append(number)

    def place(number: int) -> tuple[int, int]:
        return -len(lanes[number].ranks), number

    waiting = [min(map(place, range(len(lanes))))]
    queued, offset_by_rank = {waiting[0][1]}, dict[int, int]()
    while waiting:
        lane = lanes[heapq.heappop(waiting)[1]]
        lane_offsets = dict(zip(lane.ranks, (clock.offset_ns for clock in lane.fit.clocks), strict=True))
        shifts = sorted(
            offset_by_rank[rank] - offset for rank, offset in lane_offsets.items() if rank in offset_by_rank
        )
        shift = shifts[len(shifts) // 2] if shifts else 0
        for rank in lane_offsets.keys() - offset_by_rank.keys():
            offset_by_rank[rank] = lane_offsets[rank] + shift
            for number in lanes_of_rank[rank]:
                if number not in queued:
                    queued.add(number)
                    heapq.heappush(waiting, place(number))
    return np.array([offset_by_rank[rank] for rank in ranks], np.int64)


def _spread_out(ranks: Sequence[int], lanes: Sequence[FittedLane], fit: ClockFit) -> dict[int, FittedLane]:
    """Return the lanes by number, with times on one clock.

    Instances that the lane's own fit dropped are shifted by the offset only, without a drift correction.
    """
    offsets = {rank: clock.offset_ns for rank, clock in zip(ranks, fit.clocks, strict=True)}
    aligned_by_number, start = {}, 0
    for lane in lanes:
        shift = np.array([offsets[rank] for rank in lane.ranks], np.int64)[:, None]
        instances, is_kept = lane.lane.instances(lane.match.index), lane.fit.kept
        starts, ends = instances.start_ns - shift, instances.end_ns - shift
        stop = start + len(lane.ranks) * int(is_kept.sum())
        starts[:, is_kept] = fit.aligned_start_ns[start:stop].reshape(-1, len(lane.ranks)).T
        ends[:, is_kept] = fit.aligned_end_ns[start:stop].reshape(-1, len(lane.ranks)).T
        aligned_by_number[lane.lane.number] = replace(lane, starts=starts, ends=ends)
        start = stop
    return aligned_by_number
