"""Aligns the clocks of a capture: one clock per rank, and all collectives on the lowest rank's clock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from pipelines.fleet.clocks import ClockFit, Instances, RankClock, fit_clocks, joined_ranks, unfitted
from pipelines.fleet.lanes import Kernels, Lane, lanes_of
from pipelines.fleet.matching import LaneMatch, match_lane, refused_match


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
    def refused(self) -> str | None:
        """Why its collectives are not used; None if they are."""
        return self.match.refused or self.fit.refused


@dataclass(frozen=True)
class FittedClock:
    """A rank's clock, or why there is none."""

    rank: int
    clock: RankClock | None
    contradiction_ns: float | None
    refused: str | None


@dataclass(frozen=True)
class _Pool:
    """Stacks the instances of several lanes, with one row per rank of the capture; `columns`: those of each lane."""

    instances: Instances
    columns: list[np.ndarray]


def fit_capture(ranks: Sequence[int], kernels: dict[int, Kernels]) -> tuple[list[FittedLane], list[FittedClock]]:
    """Match the lanes of a capture and align its clocks. `ranks`: the capture's ranks, ascending."""
    lanes, mismatch = lanes_of(ranks, kernels)
    n_steps = len({step for k in kernels.values() for step in k.step if step is not None})
    fitted = [_fit_lane(lane, mismatch if lane.group is None else None, n_steps) for lane in lanes]
    good = [one for one in fitted if one.refused is None]
    if len(good) == 1:
        clocks, aligned = _of_one_lane(good[0])
    else:
        clocks, aligned = _of_lanes(ranks, good, n_steps)
    there = {clock.rank for clock in clocks}
    clocks += [FittedClock(rank, None, None, _why(rank, fitted)) for rank in ranks if rank not in there]
    return [aligned.get(one.lane.number, one) for one in fitted], sorted(clocks, key=lambda clock: clock.rank)


def _fit_lane(lane: Lane, mismatch: str | None, n_steps: int) -> FittedLane:
    if mismatch or len(lane.members) < 2:
        alone = ", ".join(str(member.rank) for member in lane.members)
        reason = mismatch or f"no_partner: only rank {alone} is present"
        match = refused_match(lane.sequences, reason)
    else:
        match = match_lane(lane.sequences)
    found = lane.instances(match.index)
    fit = unfitted(found, match.refused) if match.refused else fit_clocks(found, n_steps)
    return FittedLane(lane, match, fit)


def _why(rank: int, fitted: Sequence[FittedLane]) -> str:
    """Returns the reason of a refused lane that the rank is in, else of any refused lane."""
    own = [one.refused for one in fitted if one.refused and any(m.rank == rank for m in one.lane.members)]
    every = [one.refused for one in fitted if one.refused]
    return next((reason for reason in (*own, *every) if reason), "no_collectives")


Aligned = tuple[list[FittedClock], dict[int, FittedLane]]


def _of_one_lane(one: FittedLane) -> Aligned:
    clocks = [
        FittedClock(member.rank, clock, one.fit.contradiction_ns, None)
        for member, clock in zip(one.lane.members, one.fit.clocks, strict=True)
    ]
    return clocks, {one.lane.number: replace(one, starts=one.fit.aligned_start_ns, ends=one.fit.aligned_end_ns)}


def _of_lanes(ranks: Sequence[int], good: Sequence[FittedLane], n_steps: int) -> Aligned:
    """Fits clocks over the kept instances of all lanes, once per connected set of ranks; the first set counts."""
    clocks: list[FittedClock] = []
    aligned: dict[int, FittedLane] = {}
    if not good:
        return clocks, aligned
    pool = _pooled(ranks, good)
    first: int | None = None
    for group in joined_ranks(pool.instances.present):
        own = np.flatnonzero(pool.instances.present[group].any(axis=0))
        if not len(own):
            continue
        name = ranks[group[0]]
        if first is not None:
            reason = f"not_joined: with rank {name}, but not with rank {first}"
            clocks += [FittedClock(ranks[row], None, None, reason) for row in group]
            continue
        first = name
        fit = fit_clocks(_cut(pool.instances, group, own), n_steps)
        found = fit.clocks or [None] * len(group)
        clocks += [
            FittedClock(ranks[row], clock, fit.contradiction_ns, fit.refused)
            for row, clock in zip(group, found, strict=True)
        ]
        if fit.refused is None:
            aligned = _spread_out(ranks, good, pool, group, own, fit)
    return clocks, aligned


def _pooled(ranks: Sequence[int], good: Sequence[FittedLane]) -> _Pool:
    parts, columns, n = [], [], 0
    for one in good:
        found, kept = one.lane.instances(one.match.index), one.fit.kept
        rows = [ranks.index(member.rank) for member in one.lane.members]
        shape = (len(ranks), int(kept.sum()))
        start, end, present = np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape, bool)
        start[rows], end[rows], present[rows] = found.start_ns[:, kept], found.end_ns[:, kept], True
        parts.append(Instances(start, end, present, found.bounded[kept]))
        columns.append(np.arange(n, n + shape[1]))
        n += shape[1]
    joined = Instances(
        np.concatenate([part.start_ns for part in parts], axis=1),
        np.concatenate([part.end_ns for part in parts], axis=1),
        np.concatenate([part.present for part in parts], axis=1),
        np.concatenate([part.bounded for part in parts]),
    )
    return _Pool(joined, columns)


def _cut(whole: Instances, rows: Sequence[int], columns: np.ndarray) -> Instances:
    return Instances(
        whole.start_ns[rows][:, columns],
        whole.end_ns[rows][:, columns],
        whole.present[rows][:, columns],
        whole.bounded[columns],
    )


def _spread_out(
    ranks: Sequence[int],
    good: Sequence[FittedLane],
    pool: _Pool,
    group: Sequence[int],
    own: np.ndarray,
    fit: ClockFit,
) -> dict[int, FittedLane]:
    """Returns the lanes of connected ranks with times on one clock; instances that a lane's own fit dropped are shifted
    by the offsets.
    """
    offsets = {ranks[row]: clock.offset_ns for row, clock in zip(group, fit.clocks, strict=True)}
    place = {column: i for i, column in enumerate(own.tolist())}
    row_of = {ranks[row]: i for i, row in enumerate(group)}
    found = {}
    for one, columns in zip(good, pool.columns, strict=True):
        members = [member.rank for member in one.lane.members]
        if members[0] not in offsets:
            continue
        shift = np.array([offsets[rank] for rank in members], np.int64)[:, None]
        raw = one.lane.instances(one.match.index)
        starts, ends = raw.start_ns - shift, raw.end_ns - shift
        rows, there = [row_of[rank] for rank in members], [place[column] for column in columns.tolist()]
        starts[:, one.fit.kept] = fit.aligned_start_ns[rows][:, there]
        ends[:, one.fit.kept] = fit.aligned_end_ns[rows][:, there]
        found[one.lane.number] = replace(one, starts=starts, ends=ends)
    return found
