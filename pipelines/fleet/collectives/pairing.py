"""Finds for each communication kernel of a rank its partner on another rank, by the best evidence that there is.

Sequence numbers and steps are anchors: calls of the same number, or of the same step, are paired one by one where both
ranks have as many of them. Between two anchors both ranks count the same calls, so what lies there is paired in order,
again only where counts agree. Without anchors the whole files are compared: by counts, by a clock that both ranks
share, and by the spread of the ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from pipelines.base.datafiles import threshold
from pipelines.fleet.collectives.rank_lane import NONE, RankLane
from pipelines.fleet.collectives.shifts import MIN_OVERLAP, Shifts, shifts_of

SEQUENCE, STEP, FILE, CLOCK, SPREAD = EVIDENCE = (
    "sequence_number", "step_order", "file_order", "shared_clock", "spread",
)  # fmt: skip
"""What a pair of kernels rests on, best first."""
_CLOCK_SLACK = threshold("clock_slack_ns")
_UNPAIRED = -1
_CODE = {name: np.int8(code) for code, name in enumerate(EVIDENCE)}

Ints = npt.NDArray[np.int64]
Pairs = tuple[Ints, Ints]
"""Places of one rank's kernels, ascending by key, and of their partners."""


@dataclass(frozen=True)
class Contradiction:
    """Weaker evidence that would pair kernels of a rank otherwise: `n` of those that both of them pair."""

    rank: int
    matched_by: str
    against: str
    n: int


@dataclass(frozen=True)
class Pairing:
    """The partners of a rank's kernels on the reference rank.

    partner (n,): places there, -1 for none; evidence (n,): places in EVIDENCE. shifts: None where no spread was computed.
    doubt: why the ends do not support it; None where they do, or numbers matched.
    """

    partner: Ints
    evidence: npt.NDArray[np.int8]
    shifts: Shifts | None = None
    contradictions: tuple[Contradiction, ...] = ()
    doubt: str | None = None
    refused: str | None = None

    @property
    def shift(self) -> int | None:
        """Returns by how much all partners are shifted; None if not by the same."""
        own = np.flatnonzero(self.partner >= 0)
        away = np.unique(self.partner[own] - own)
        return int(away[0]) if len(away) == 1 else None

    @property
    def weakest(self) -> str | None:
        """Returns the weakest evidence of any pair; None without pairs."""
        used = self.evidence[self.partner >= 0]
        return EVIDENCE[used.max()] if len(used) else None


@dataclass
class _Partners:
    """A pairing while it is made."""

    partner: Ints
    evidence: npt.NDArray[np.int8]
    contradictions: list[Contradiction] = field(default_factory=list)

    @classmethod
    def of(cls, n: int) -> _Partners:
        return cls(np.full(n, _UNPAIRED, np.int64), np.zeros(n, np.int8))

    def add(self, own: Ints, other: Ints, by: str) -> None:
        self.partner[own] = other
        self.evidence[own] = _CODE[by]


def pair_with(lane: RankLane, reference: RankLane, one_clock: bool = False) -> Pairing:
    """Pair a rank's kernels with the reference's. `one_clock`: the times of both are of one clock."""
    made = _Partners.of(len(lane))
    if lane is reference:
        every = np.arange(len(lane))
        made.add(every, every, SEQUENCE)
        return Pairing(made.partner, made.evidence, Shifts(((0.0, 0),)))
    clash = _anchor_by_sequence(lane, reference, made)
    if clash is not None:
        reason = f"kind_order_mismatch: rank {lane.rank} at sequence number {clash}"
        return Pairing(made.partner, made.evidence, refused=reason)
    numbered = bool((made.partner >= 0).any())
    if numbered:
        _fill_by_steps(lane, reference, made)
    else:
        own, other = _in_steps(lane, reference)
        made.add(own, other, STEP)
    if not numbered and not len(own):
        return _by_whole_files(lane, reference, made, one_clock)
    _fill_by_order(lane, reference, made)
    if numbered:
        return _paired(lane, reference, made, None, one_clock)
    shifts = shifts_of(lane, reference)
    _fill_by_shift(lane, reference, made, shifts, Pairing(made.partner, made.evidence).shift)
    return _paired(lane, reference, made, shifts, one_clock)


def _paired(lane: RankLane, reference: RankLane, made: _Partners, shifts: Shifts | None, one_clock: bool) -> Pairing:
    """Returns what was made, with what speaks against it."""
    contradictions = tuple(_contradictions(lane, reference, made, shifts, one_clock))
    doubt = shifts.ambiguity(lane.rank) if shifts and shifts.is_ambiguous else None
    return Pairing(made.partner, made.evidence, shifts, contradictions, doubt)


def _pairs_of_keys(own: Ints, other: Ints) -> Pairs:
    """Pairs kernels of the same key in order, of keys that both sides have equally often."""
    mine, theirs = np.flatnonzero(own != NONE), np.flatnonzero(other != NONE)
    (keys, n_own), (other_keys, n_other) = (
        np.unique(values[places], return_counts=True) for values, places in ((own, mine), (other, theirs))
    )
    common, at, other_at = np.intersect1d(keys, other_keys, assume_unique=True, return_indices=True)
    common = common[n_own[at] == n_other[other_at]]
    mine, theirs = mine[np.isin(own[mine], common)], theirs[np.isin(other[theirs], common)]
    return mine[np.argsort(own[mine], kind="stable")], theirs[np.argsort(other[theirs], kind="stable")]


def _anchor_by_sequence(lane: RankLane, reference: RankLane, made: _Partners) -> int | None:
    """Pairs kernels by sequence number. Returns the first number whose kernels are of different kinds."""
    if lane.seq is None or reference.seq is None:
        return None
    own, other = _pairs_of_keys(lane.seq, reference.seq)
    differ = np.flatnonzero(lane.kinds[own] != reference.kinds[other])
    if len(differ):
        return int(lane.seq[own[differ[0]]])
    made.add(own, other, SEQUENCE)
    return None


def _in_steps(lane: RankLane, reference: RankLane) -> Pairs:
    """Pairs kernels by their order in each step of the same number; nothing if the steps' counts mostly differ."""
    nothing = np.empty(0, np.int64), np.empty(0, np.int64)
    if lane.step is None or reference.step is None:
        return nothing
    own, other = _pairs_of_keys(lane.step, reference.step)
    differ = np.unique(lane.step[own[lane.kinds[own] != reference.kinds[other]]])
    stays = ~np.isin(lane.step[own], differ)
    own, other = own[stays], other[stays]
    common = np.intersect1d(lane.step[lane.step != NONE], reference.step[reference.step != NONE])
    fewest = min(int(np.isin(member.step, common).sum()) for member in (lane, reference) if member.step is not None)
    return (own, other) if len(own) and len(own) >= MIN_OVERLAP * fewest else nothing


def _gaps(made: _Partners, n_other: int) -> Iterator[tuple[slice, slice]]:
    """Returns what lies between anchors on both sides; nothing if the ranks have the anchors in different orders."""
    own = np.flatnonzero(made.partner >= 0)
    other = made.partner[own]
    if (np.diff(other) <= 0).any():
        return
    firsts = np.append(0, own + 1), np.append(0, other + 1)
    pasts = np.append(own, len(made.partner)), np.append(other, n_other)
    both = (pasts[0] > firsts[0]) & (pasts[1] > firsts[1])
    for place in np.flatnonzero(both).tolist():
        yield slice(firsts[0][place], pasts[0][place]), slice(firsts[1][place], pasts[1][place])


def _fill_by_steps(lane: RankLane, reference: RankLane, made: _Partners) -> None:
    for mine, theirs in list(_gaps(made, len(reference))):
        own, other = _in_steps(lane.part(mine), reference.part(theirs))
        made.add(own + mine.start, other + theirs.start, STEP)


def _fill_by_order(lane: RankLane, reference: RankLane, made: _Partners) -> None:
    for mine, theirs in list(_gaps(made, len(reference))):
        if np.array_equal(lane.kinds[mine], reference.kinds[theirs]):
            made.add(np.arange(mine.start, mine.stop), np.arange(theirs.start, theirs.stop), FILE)


def _fill_by_shift(lane: RankLane, reference: RankLane, made: _Partners, shifts: Shifts, shift: int | None) -> None:
    """Pairs the first and last kernels too, where anchors and ends agree on one shift."""
    if shift is None or shifts.decisive != shift:
        return
    own = np.arange(max(0, -shift), min(len(lane), len(reference) - shift))
    own = own[made.partner[own] < 0]
    made.add(own, own + shift, SPREAD)


def _by_whole_files(lane: RankLane, reference: RankLane, made: _Partners, one_clock: bool) -> Pairing:
    """Pairs the files by one shift: none where counts agree, unless clock or ends clearly tell of another."""
    shifts = shifts_of(lane, reference)
    possible = {shift for _, shift in shifts.ordered}
    if one_clock:
        possible = {shift for shift in possible if not _apart(lane, reference, _along(lane, reference, shift))}
    counts_agree = np.array_equal(lane.kinds, reference.kinds)
    if not shifts.ordered:
        reason = f"kind_order_mismatch: rank {lane.rank} with rank {reference.rank}"
        return Pairing(made.partner, made.evidence, shifts, refused=reason)
    if counts_agree and 0 in possible and shifts.decisive in (None, 0):
        shift, by = 0, FILE
    elif one_clock and len(possible) == 1:
        (shift,), by = possible, CLOCK
    else:
        left = shifts.only(possible) if possible else shifts
        if left.is_ambiguous:
            return Pairing(made.partner, made.evidence, shifts, refused=left.ambiguity(lane.rank))
        (_, shift), by = left.ordered[0], SPREAD
    made.add(*_along(lane, reference, shift), by)
    return _paired(lane, reference, made, shifts, one_clock)


def _along(lane: RankLane, reference: RankLane, shift: int) -> Pairs:
    own = np.arange(max(0, -shift), min(len(lane), len(reference) - shift))
    return own, own + shift


def _apart(lane: RankLane, reference: RankLane, pairs: Pairs) -> int:
    """Counts the pairs of which one ended before the other began, as no collective can whose ranks wait for each other."""
    own, other = pairs
    apart = (lane.end_ns[own] + _CLOCK_SLACK < reference.start_ns[other]) | (
        reference.end_ns[other] + _CLOCK_SLACK < lane.start_ns[own]
    )
    for member, places in ((lane, own), (reference, other)):
        if member.waits_for_all is not None:
            apart &= member.waits_for_all[places]
    return int(apart.sum())


def _contradictions(
    lane: RankLane, reference: RankLane, made: _Partners, shifts: Shifts | None, one_clock: bool
) -> Iterator[Contradiction]:
    """Returns what other evidence there is against the pairs made."""
    paired = np.flatnonzero(made.partner >= 0)
    if not len(paired):
        return
    by = EVIDENCE[int(made.evidence[paired].min())]
    others: list[tuple[str, Pairs]] = []
    if by == SEQUENCE:
        others.append((STEP, _in_steps(lane, reference)))
    if len(lane) == len(reference) and by != FILE:
        others.append((FILE, _along(lane, reference, 0)))
    if shifts is not None and by != SPREAD and shifts.decisive is not None:
        others.append((SPREAD, _along(lane, reference, shifts.decisive)))
    for against, (own, other) in others:
        both = made.partner[own] >= 0
        n = int((made.partner[own] != other)[both].sum())
        if n:
            yield Contradiction(lane.rank, by, against, n)
    if one_clock and (n := _apart(lane, reference, (paired, made.partner[paired]))):
        yield Contradiction(lane.rank, by, CLOCK, n)
