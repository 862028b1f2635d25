"""Arrays of one rank's communication kernels that are matched together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NONE = np.iinfo(np.int64).min
"""The value for a kernel that has no sequence number or is outside of steps."""


@dataclass(frozen=True)
class RankLane:
    """A rank's kernels of one lane, ordered by (start, event_id). Arrays of length n.

    kinds: a number that identifies the kind. start_ns, end_ns: int64. seq, step: the sequence number and the profiler
    step, NONE for a kernel without a value. The whole array is None if no kernel has a value. waits_for_all: whether no
    rank leaves before all ranks have arrived; None if this is true of all kernels.
    """

    rank: int
    kinds: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    seq: np.ndarray | None = None
    step: np.ndarray | None = None
    waits_for_all: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.kinds)

    def has_seq(self) -> bool:
        """Return whether any kernel has a sequence number."""
        return self.seq is not None and bool((self.seq != NONE).any())

    def differs(self, mine: np.ndarray | slice, other: RankLane, theirs: np.ndarray | slice) -> np.ndarray:
        """Return a mask of the pairs of kernels (by index) that differ in kind or sequence number."""
        differ = self.kinds[mine] != other.kinds[theirs]
        if self.seq is not None and other.seq is not None:
            seq, other_seq = self.seq[mine], other.seq[theirs]
            differ |= (seq != NONE) & (other_seq != NONE) & (seq != other_seq)
        return differ

    def has_steps(self) -> bool:
        """Return whether any kernel is in a step."""
        return self.step is not None and bool((self.step != NONE).any())

    def part(self, chosen: slice) -> RankLane:
        """Return the chosen kernels."""
        columns = (self.seq, self.step, self.waits_for_all)
        chosen_columns = (None if column is None else column[chosen] for column in columns)
        return RankLane(self.rank, self.kinds[chosen], self.start_ns[chosen], self.end_ns[chosen], *chosen_columns)
