"""The matching of a lane, which decides which kernels of the ranks are one collective.

Each rank's kernels are paired with those of one reference rank. Each lane (a process group, or a stream if the trace
names no group) is matched separately. Profilers start at different moments, so the first or last kernels of a lane may
be missing in a rank. If a kernel in the middle is missing, and sequence numbers or steps identify its call, the call is
excluded. Otherwise, the lane is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from pipelines.fleet.collectives.pairing import (
    EVIDENCE,
    SEQUENCE,
    STEP,
    Contradiction,
    Pairing,
    pair_with,
)
from pipelines.fleet.collectives.rank_lane import NONE, RankLane
from pipelines.fleet.collectives.shifts import MIN_MATCHED


@dataclass(frozen=True)
class LaneMatch:
    """The matched instances of a lane.

    Attributes:
        reference: the rank that the others are paired with; None if all kernels have sequence numbers.
        shift: by rank. The rank's kernel i pairs with the reference's kernel i + shift. No entry if the shifts of its
            pairs differ.
        score, runner_up: by rank, the spread of the end differences, ns, at the shift and at the next-best shift (None
            without one).
        index: (ranks, instances), indices into the ranks' sequences, ranks in input order.
        evidence: (instances,), the weakest evidence for each instance.
        rank_evidence: by rank, the weakest evidence for its pairs. For the reference, it is the weakest evidence of
            all.
        contradictions: evidence that would match kernels differently.
        doubt: why the kernels' ends do not support the match; None if they do. A refusal states it if no clock fits.
        refused: why the lane has no instances; None if it has instances.
    """

    reference: int | None
    shift: dict[int, int]
    score: dict[int, float]
    runner_up: dict[int, float | None]
    index: np.ndarray
    evidence: tuple[str, ...] = ()
    rank_evidence: dict[int, str] = field(default_factory=dict)
    contradictions: tuple[Contradiction, ...] = ()
    doubt: str | None = None
    refused: str | None = None

    @property
    def is_certain(self) -> bool:
        """Return whether sequence numbers or steps in the traces identify the calls that belong together."""
        return bool(self.evidence) and set(self.evidence) <= {SEQUENCE, STEP}


def match_lane(lanes: Sequence[RankLane], one_clock: bool = False) -> LaneMatch:
    """Match one lane of several ranks. An instance is a call that all ranks have.

    All ranks are paired with a reference rank: the rank with the best evidence and the most kernels. `one_clock`:
    whether all ranks share a clock. The match is refused if a rank's pairing is refused, or if there are too few
    kernels or instances.
    """
    numbered = all(lane.seq is not None and bool((lane.seq != NONE).all()) for lane in lanes)
    for lane in () if numbered else lanes:
        if len(lane) < MIN_MATCHED:
            return refused_match(lanes, f"too_few_matched: rank {lane.rank} has {len(lane)} of at least {MIN_MATCHED}")
    reference = min(lanes, key=lambda lane: (not lane.has_seq(), not lane.has_steps(), -len(lane), lane.rank))
    pairings: list[Pairing] = []
    for lane in lanes:
        pairing = pair_with(lane, reference, one_clock)
        if pairing.refused:
            return refused_match(lanes, pairing.refused)
        pairings.append(pairing)
    index = _instances(pairings, len(reference))
    contradictions = tuple(contradiction for pairing in pairings for contradiction in pairing.contradictions)
    if index.shape[1] < MIN_MATCHED:
        reason = f"too_few_matched: {index.shape[1]} of at least {MIN_MATCHED}"
        return refused_match(lanes, reason, contradictions)
    if numbered and reference.seq is not None:
        index = index[:, np.argsort(reference.seq[index[lanes.index(reference)]], kind="stable")]
    codes = np.stack([pairing.evidence[row] for pairing, row in zip(pairings, index, strict=True)]).max(axis=0)
    weakest = {lane.rank: pairing.weakest for lane, pairing in zip(lanes, pairings, strict=True)}
    weakest[reference.rank] = EVIDENCE[codes.max()]
    details = (
        tuple(EVIDENCE[code] for code in codes),
        {rank: name for rank, name in weakest.items() if name is not None},
        contradictions,
        next((pairing.doubt for pairing in pairings if pairing.doubt), None),
    )
    if numbered:
        return LaneMatch(None, {}, {}, {}, index, *details)
    return LaneMatch(reference.rank, *_by_shift(lanes, pairings), index, *details)


def refused_match(lanes: Sequence[RankLane], reason: str, contradictions: tuple[Contradiction, ...] = ()) -> LaneMatch:
    """Return a match without instances, refused for this reason."""
    return LaneMatch(
        None, {}, {}, {}, np.empty((len(lanes), 0), np.int64), contradictions=contradictions, refused=reason
    )


def _instances(pairings: Sequence[Pairing], n_reference: int) -> np.ndarray:
    """Return the indices of the kernels that all ranks have, (ranks, instances), in the order of the reference."""
    positions = np.full((len(pairings), n_reference), -1, np.int64)
    for row, pairing in zip(positions, pairings, strict=True):
        paired = np.flatnonzero(pairing.partner >= 0)
        row[pairing.partner[paired]] = paired
    return positions[:, (positions >= 0).all(axis=0)]


def _by_shift(
    lanes: Sequence[RankLane], pairings: Sequence[Pairing]
) -> tuple[dict[int, int], dict[int, float], dict[int, float | None]]:
    """Return the shift, score and runner-up of each rank whose pairs all have the same shift."""
    shift: dict[int, int] = {}
    score: dict[int, float] = {}
    runner_up: dict[int, float | None] = {}
    for lane, pairing in zip(lanes, pairings, strict=True):
        if pairing.shift is None:
            continue
        shift[lane.rank] = pairing.shift
        if pairing.shifts is not None and (spread := pairing.shifts.spread_at(pairing.shift)) is not None:
            score[lane.rank], runner_up[lane.rank] = spread, pairing.shifts.runner_up(pairing.shift)
    return shift, score, runner_up
