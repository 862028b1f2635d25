"""The communication kernels of one rank that are matched together, as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

NONE = np.iinfo(np.int64).min
"""A kernel without a sequence number, or outside of steps."""


@dataclass(frozen=True)
class RankLane:
    """A rank's kernels of one lane, ordered by (start, event_id). Arrays of length n.

    kinds: a number per kind; start_ns, end_ns: int64; seq, step: the sequence number and the profiler step, NONE where a
    kernel has none (None: all of them); waits_for_all: nobody leaves before everybody has arrived (None: true of all).
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
        """Whether any kernel has a sequence number."""
        return self.seq is not None and bool((self.seq != NONE).any())

    def has_steps(self) -> bool:
        """Whether any kernel lies in a step."""
        return self.step is not None and bool((self.step != NONE).any())

    def part(self, chosen: slice) -> RankLane:
        """Returns some of its kernels."""
        columns = (self.seq, self.step, self.waits_for_all)
        cut = (None if column is None else column[chosen] for column in columns)
        return RankLane(self.rank, self.kinds[chosen], self.start_ns[chosen], self.end_ns[chosen], *cut)
