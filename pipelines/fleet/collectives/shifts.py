"""By how many kernels a rank is ahead of another one: every shift at which the kinds agree, judged by when the kernels end."""

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
    """The admissible shifts of a rank against the reference, best first: (spread of the end differences in ns, shift)."""

    ordered: tuple[tuple[float, int], ...]

    @property
    def decisive(self) -> int | None:
        """Returns the best shift; None if the second is not clearly worse."""
        if not self.ordered or self.is_ambiguous:
            return None
        return self.ordered[0][1]

    @property
    def is_ambiguous(self) -> bool:
        """Whether the second-best shift is about as good as the best."""
        return len(self.ordered) > 1 and self.ordered[1][0] < _AMBIGUITY * max(self.ordered[0][0], _RESOLUTION)

    def ambiguity(self, rank: int) -> str:
        """Returns what is ambiguous about a rank, as a reason of refusal."""
        (spread, shift), (other_spread, other) = self.ordered[:2]
        return f"ambiguous_shift: rank {rank}: shift {shift} or {other}, spread {spread:.0f} or {other_spread:.0f} ns"

    def spread_at(self, shift: int) -> float | None:
        """Returns the spread at a shift; None if the shift is not admissible."""
        return next((spread for spread, other in self.ordered if other == shift), None)

    def runner_up(self, shift: int) -> float | None:
        """Returns the best spread at another shift."""
        return next((spread for spread, other in self.ordered if other != shift), None)

    def only(self, shifts: set[int]) -> Shifts:
        """Returns some of the shifts."""
        return Shifts(tuple(one for one in self.ordered if one[1] in shifts))


def shifts_of(lane: RankLane, reference: RankLane) -> Shifts:
    """Returns the shifts at which the kinds agree on the whole overlap."""
    shorter = min(len(lane), len(reference))
    least = max(MIN_MATCHED, int(np.ceil(MIN_OVERLAP * shorter)))
    admissible = []
    for shift in range(least - len(lane), len(reference) - least + 1):
        first, last = max(0, -shift), min(len(lane), len(reference) - shift)
        if last - first < least:
            continue
        own, other = slice(first, last), slice(first + shift, last + shift)
        if np.array_equal(lane.kinds[own], reference.kinds[other]):
            admissible.append((_spread(reference.end_ns[other] - lane.end_ns[own]), shift))
    return Shifts(tuple(sorted(admissible, key=lambda item: (item[0], abs(item[1]), item[1]))))


def _spread(differences: np.ndarray) -> float:
    # Subtract as integers: two clocks may be a year apart, which a float64 of nanoseconds does not hold exactly.
    near = (differences - differences[0]).astype(float)
    return float(MAD_TO_SIGMA * np.median(np.abs(near - np.median(near))))
