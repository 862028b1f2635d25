"""The shift of a rank's kernels relative to another rank.

A shift is admissible if kinds and sequence numbers agree. Of the admissible shifts, the shift is chosen whose
differences of the kernels' ends have the smallest spread.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipelines.base.datafiles import threshold
from pipelines.fleet.collectives.rank_lane import RankLane

MAD_TO_SIGMA = 1.4826
MIN_MATCHED = threshold("min_matched")
MIN_OVERLAP = threshold("shift_min_overlap")
_AMBIGUITY, _RESOLUTION = threshold("shift_ambiguity"), threshold("shift_resolution_ns")


@dataclass(frozen=True)
class Shifts:
    """The admissible shifts of a rank relative to the reference, best first: (spread, shift).

    The spread is the spread of the differences of the kernels' ends, ns.
    """

    ordered: tuple[tuple[float, int], ...]

    @property
    def decisive(self) -> int | None:
        """Return the best shift, or None without shifts or if the second-best shift is not clearly worse."""
        if not self.ordered or self.is_ambiguous:
            return None
        return self.ordered[0][1]

    @property
    def is_ambiguous(self) -> bool:
        """Return whether the second-best shift is about as good as the best."""
        return len(self.ordered) > 1 and self.ordered[1][0] < _AMBIGUITY * max(self.ordered[0][0], _RESOLUTION)

    def ambiguity(self, rank: int) -> str:
        """Return the two best shifts of a rank as a reason for refusal."""
        (spread, shift), (other_spread, other) = self.ordered[:2]
        return f"ambiguous_shift: rank {rank}: shift {shift} or {other}, spread {spread:.0f} or {other_spread:.0f} ns"

    def spread_at(self, shift: int) -> float | None:
        """Return the spread at a shift, ns, or None if the shift is not admissible."""
        return next((spread for spread, other in self.ordered if other == shift), None)

    def runner_up(self, shift: int) -> float | None:
        """Return the smallest spread at another shift, ns, or None without another shift."""
        return next((spread for spread, other in self.ordered if other != shift), None)

    def only(self, shifts: set[int]) -> Shifts:
        """Return only the admissible shifts that are in `shifts`."""
        return Shifts(tuple(candidate for candidate in self.ordered if candidate[1] in shifts))


def shifts_of(lane: RankLane, reference: RankLane) -> Shifts:
    """Return the shifts at which kinds and sequence numbers agree on the whole overlap."""
    shorter = min(len(lane), len(reference))
    min_overlap = max(MIN_MATCHED, int(np.ceil(MIN_OVERLAP * shorter)))
    admissible = []
    for shift in range(min_overlap - len(lane), len(reference) - min_overlap + 1):
        first, last = max(0, -shift), min(len(lane), len(reference) - shift)
        if last - first < min_overlap:
            continue
        mine, theirs = slice(first, last), slice(first + shift, last + shift)
        if not lane.differs(mine, reference, theirs).any():
            admissible.append((_spread(reference.end_ns[theirs] - lane.end_ns[mine]), shift))
    return Shifts(tuple(sorted(admissible, key=lambda item: (item[0], abs(item[1]), item[1]))))


def _spread(differences: np.ndarray) -> float:
    # Subtract as integers, because clocks may be a year apart, and float64 cannot represent a year in ns exactly.
    near = (differences - differences[0]).astype(float)
    return float(MAD_TO_SIGMA * np.median(np.abs(near - np.median(near))))
