"""Finds which kernels of the ranks are one collective: by sequence number, else by order after a search for the shift.

A lane is matched on its own: a process group, or a stream where the trace names no group. Profilers start at different
moments, so a rank may lack the first or last kernels of a lane. A gap in the middle is never filled: the lane is
refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MAD_TO_SIGMA = 1.4826
# When a match is refused.
_MIN_MATCHED = 5  # instances that ranks must have in common, and kernels that an overlap must have
_MIN_OVERLAP = 0.6  # share of the shorter sequence that an overlap must have
_AMBIGUITY = 5.0  # how many times worse the second-best shift must be
_RESOLUTION = 1_000.0  # ns: lower scores count as this value


@dataclass(frozen=True)
class RankLane:
    """A rank's kernels of one lane, ordered by (start, event_id). Arrays of length n.

    kinds: a number per kind; start_ns, end_ns: int64; seq: sequence numbers, None if the trace has none.
    """

    rank: int
    kinds: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    seq: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.kinds)


@dataclass(frozen=True)
class LaneMatch:
    """The matched instances of a lane.

    Attributes:
        reference: the rank that shifts are relative to; None where sequence numbers matched.
        shift: by rank: its kernel i is the reference's kernel i + shift.
        score, runner_up: by rank: spread of the end differences, ns, at the shift and at the next-best one (None: there is none).
        index: (ranks, instances): positions in the ranks' sequences, ranks in the order given.
        refused: why there are no instances; None if there are.
    """

    reference: int | None
    shift: dict[int, int]
    score: dict[int, float]
    runner_up: dict[int, float | None]
    index: np.ndarray
    refused: str | None = None


def match_lane(lanes: Sequence[RankLane]) -> LaneMatch:
    """Match one lane of several ranks; the instances are those that all of them have."""
    if all(lane.seq is not None and len(np.unique(lane.seq)) == len(lane) for lane in lanes):
        return _by_sequence(lanes)
    return _by_order(lanes)


def refused_match(lanes: Sequence[RankLane], reason: str) -> LaneMatch:
    """Returns a lane without instances, and why."""
    return LaneMatch(None, {}, {}, {}, np.empty((len(lanes), 0), np.int64), reason)


def _by_sequence(lanes: Sequence[RankLane]) -> LaneMatch:
    numbers = [np.asarray(lane.seq) for lane in lanes]
    common = numbers[0]
    for other in numbers[1:]:
        common = np.intersect1d(common, other)
    index = np.empty((len(lanes), len(common)), np.int64)
    for row, own in enumerate(numbers):
        order = np.argsort(own, kind="stable")
        index[row] = order[np.searchsorted(own[order], common)]
    kinds = np.stack([lane.kinds[row] for lane, row in zip(lanes, index, strict=True)])
    for lane, own in zip(lanes, kinds, strict=True):
        if (own != kinds[0]).any():
            at = int(common[np.flatnonzero(own != kinds[0])[0]])
            return refused_match(lanes, f"kind_order_mismatch: rank {lane.rank} at sequence number {at}")
    if len(common) < _MIN_MATCHED:
        return refused_match(lanes, f"too_few_matched: {len(common)} of at least {_MIN_MATCHED}")
    return LaneMatch(None, {}, {}, {}, index)


def _by_order(lanes: Sequence[RankLane]) -> LaneMatch:
    reference = min(lanes, key=lambda lane: (-len(lane), lane.rank))
    shift, score, runner_up = {}, {}, {}
    for lane in lanes:
        if len(lane) < _MIN_MATCHED:
            reason = f"too_few_matched: rank {lane.rank} has {len(lane)} of at least {_MIN_MATCHED}"
            return refused_match(lanes, reason)
        found = [(0.0, 0)] if lane is reference else _shifts(lane, reference)
        if not found:
            return refused_match(lanes, f"kind_order_mismatch: rank {lane.rank} with rank {reference.rank}")
        score[lane.rank], shift[lane.rank] = found[0]
        runner_up[lane.rank] = found[1][0] if len(found) > 1 else None
        if len(found) > 1 and found[1][0] < _AMBIGUITY * max(found[0][0], _RESOLUTION):
            at = f"rank {lane.rank}: shift {found[0][1]} or {found[1][1]}"
            return refused_match(lanes, f"ambiguous_shift: {at}, spread {found[0][0]:.0f} or {found[1][0]:.0f} ns")
    first = max(shift[lane.rank] for lane in lanes)
    last = min(shift[lane.rank] + len(lane) for lane in lanes)
    if last - first < _MIN_MATCHED:
        reason = f"too_few_matched: {max(last - first, 0)} of at least {_MIN_MATCHED}"
        return refused_match(lanes, reason)
    index = np.stack([np.arange(first, last) - shift[lane.rank] for lane in lanes])
    return LaneMatch(reference.rank, shift, score, runner_up, index)


def _shifts(lane: RankLane, reference: RankLane) -> list[tuple[float, int]]:
    """Returns the admissible shifts, best first: (spread of end differences in ns, shift)."""
    shorter = min(len(lane), len(reference))
    least = max(_MIN_MATCHED, int(np.ceil(_MIN_OVERLAP * shorter)))
    found = []
    for shift in range(least - len(lane), len(reference) - least + 1):
        first, last = max(0, -shift), min(len(lane), len(reference) - shift)
        if last - first < least:
            continue
        own, other = slice(first, last), slice(first + shift, last + shift)
        if np.array_equal(lane.kinds[own], reference.kinds[other]):
            found.append((_spread(reference.end_ns[other] - lane.end_ns[own]), shift))
    return sorted(found, key=lambda item: (item[0], abs(item[1]), item[1]))


def _spread(differences: np.ndarray) -> float:
    # Subtract as integers: two clocks may be a year apart, which a float64 of nanoseconds does not hold exactly.
    near = (differences - differences[0]).astype(float)
    return float(MAD_TO_SIGMA * np.median(np.abs(near - np.median(near))))
