"""The partner of each communication kernel of a rank on another rank, by the best evidence available.

Sequence numbers and steps are anchors. Calls with the same number or step are paired in order if both ranks have
equally many of them. Between two anchors, both ranks issue the same calls, so the kernels there are also paired in
order if their counts agree. Calls with different numbers are never paired. Without anchors, the whole files are
compared by counts, by a clock that both ranks share, and by the spread of the ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from pipelines.base.datafiles import threshold
from pipelines.fleet.collectives.rank_lane import NONE, RankLane
from pipelines.fleet.collectives.shifts import MIN_OVERLAP, Shifts, shifts_of

SEQUENCE, STEP, FILE, CLOCK, SPREAD = EVIDENCE = (
    "sequence_number", "step_order", "file_order", "shared_clock", "spread",
)  # fmt: skip
"""The kinds of evidence for a pair of kernels, best first."""
_CLOCK_SLACK = threshold("clock_slack_ns")
_UNPAIRED = -1
_CODE = {name: np.int8(code) for code, name in enumerate(EVIDENCE)}

Ints = npt.NDArray[np.int64]
Pairs = tuple[Ints, Ints]
"""Indices of one rank's kernels, ascending by key, and of their partners."""


@dataclass(frozen=True)
class Contradiction:
    """Weaker evidence (`against`) that contradicts the pairs of a rank's kernels.

    `matched_by`: the evidence that made the pairs. `n`: the number of kernels to which the weaker evidence gives other
    partners, counted among the kernels that both kinds of evidence pair. For CLOCK, it is the number of pairs that do
    not overlap although their ranks wait for each other.
    """

    rank: int
    matched_by: str
    against: str
    n: int


@dataclass(frozen=True)
class Pairing:
    """The partners of a rank's kernels on the reference rank.

    partner (n,): indices into the reference's kernels, -1 without a partner. evidence (n,): indices into EVIDENCE.
    shifts: None if no spread was computed. doubt: why the ends do not support the pairing; None if they do, or if
    sequence numbers matched.
    """

    partner: Ints
    evidence: npt.NDArray[np.int8]
    shifts: Shifts | None = None
    contradictions: tuple[Contradiction, ...] = ()
    doubt: str | None = None
    refused: str | None = None

    @property
    def shift(self) -> int | None:
        """Return the shift of all partners, or None if they do not have the same shift."""
        paired = np.flatnonzero(self.partner >= 0)
        shifts = np.unique(self.partner[paired] - paired)
        return int(shifts[0]) if len(shifts) == 1 else None

    @property
    def weakest(self) -> str | None:
        """Return the weakest evidence of any pair, or None without pairs."""
        used = self.evidence[self.partner >= 0]
        return EVIDENCE[used.max()] if len(used) else None


@dataclass
class _Partners:
    """A pairing under construction."""

    partner: Ints
    evidence: npt.NDArray[np.int8]
    contradictions: list[Contradiction] = field(default_factory=list)

    @classmethod
    def of(cls, n: int) -> _Partners:
        return cls(np.full(n, _UNPAIRED, np.int64), np.zeros(n, np.int8))

    def add(self, own: Ints, other: Ints, by: str) -> None:
        self.partner[own] = other
        self.evidence[own] = _CODE[by]


def pair_with(lane: RankLane, reference: RankLane, one_clock: bool) -> Pairing:
    """Pair a rank's kernels with the reference's. `one_clock`: whether both ranks share a clock."""
    partners = _Partners.of(len(lane))
    if lane is reference:
        positions = np.arange(len(lane))
        partners.add(positions, positions, SEQUENCE)
        return Pairing(partners.partner, partners.evidence, Shifts(((0.0, 0),)))
    clashing_number = _anchor_by_sequence(lane, reference, partners)
    if clashing_number is not None:
        reason = f"kind_order_mismatch: rank {lane.rank} at sequence number {clashing_number}"
        return Pairing(partners.partner, partners.evidence, refused=reason)
    numbered = bool((partners.partner >= 0).any())
    if numbered:
        _fill_by_steps(lane, reference, partners)
    else:
        mine, theirs = _in_steps(lane, reference)
        partners.add(mine, theirs, STEP)
    if not numbered and not len(mine):
        return _by_whole_files(lane, reference, partners, one_clock)
    _fill_by_order(lane, reference, partners)
    if numbered:
        return _paired(lane, reference, partners, None, one_clock)
    shifts = shifts_of(lane, reference)
    _fill_by_shift(lane, reference, partners, shifts, Pairing(partners.partner, partners.evidence).shift)
    return _paired(lane, reference, partners, shifts, one_clock)


def _paired(
    lane: RankLane, reference: RankLane, partners: _Partners, shifts: Shifts | None, one_clock: bool
) -> Pairing:
    """Return the finished pairing, with the evidence against it."""
    contradictions = tuple(_contradictions(lane, reference, partners, shifts, one_clock))
    doubt = shifts.ambiguity(lane.rank) if shifts and shifts.is_ambiguous else None
    return Pairing(partners.partner, partners.evidence, shifts, contradictions, doubt)


def _pairs_of_keys(lane_keys: Ints, reference_keys: Ints) -> Pairs:
    """Pair kernels with the same key in order, for each key that both sides have equally often."""
    mine, theirs = np.flatnonzero(lane_keys != NONE), np.flatnonzero(reference_keys != NONE)
    (unique_lane_keys, n_own), (unique_reference_keys, n_other) = (
        np.unique(values[positions], return_counts=True)
        for values, positions in ((lane_keys, mine), (reference_keys, theirs))
    )
    common, own_index, other_index = np.intersect1d(
        unique_lane_keys, unique_reference_keys, assume_unique=True, return_indices=True
    )
    common = common[n_own[own_index] == n_other[other_index]]
    mine, theirs = mine[np.isin(lane_keys[mine], common)], theirs[np.isin(reference_keys[theirs], common)]
    return mine[np.argsort(lane_keys[mine], kind="stable")], theirs[np.argsort(reference_keys[theirs], kind="stable")]


def _anchor_by_sequence(lane: RankLane, reference: RankLane, partners: _Partners) -> int | None:
    """Pair kernels by sequence number.

    If kernels with the same number are of different kinds, pair no kernels and return the first such number, else None.
    """
    if lane.seq is None or reference.seq is None:
        return None
    mine, theirs = _pairs_of_keys(lane.seq, reference.seq)
    differ = np.flatnonzero(lane.kinds[mine] != reference.kinds[theirs])
    if len(differ):
        return int(lane.seq[mine[differ[0]]])
    partners.add(mine, theirs, SEQUENCE)
    return None


def _in_steps(lane: RankLane, reference: RankLane) -> Pairs:
    """Pair kernels by their order in each step that both ranks have.

    A step in which the counts, kinds or sequence numbers differ has no pairs. Return no pairs at all if too few kernels
    remain.
    """
    nothing = np.empty(0, np.int64), np.empty(0, np.int64)
    if lane.step is None or reference.step is None:
        return nothing
    mine, theirs = _pairs_of_keys(lane.step, reference.step)
    differing_steps = np.unique(lane.step[mine[lane.differs(mine, reference, theirs)]])
    is_kept = ~np.isin(lane.step[mine], differing_steps)
    mine, theirs = mine[is_kept], theirs[is_kept]
    common = np.intersect1d(lane.step[lane.step != NONE], reference.step[reference.step != NONE])
    fewest = min(int(np.isin(member.step, common).sum()) for member in (lane, reference) if member.step is not None)
    return (mine, theirs) if len(mine) and len(mine) >= MIN_OVERLAP * fewest else nothing


def _gaps(partners: _Partners, n_other: int) -> Iterator[tuple[slice, slice]]:
    """Yield (slice of the rank, slice of the reference) before, between and after the anchors, if neither is empty.

    If the order of the anchors differs between the ranks, yield no gaps.
    """
    mine = np.flatnonzero(partners.partner >= 0)
    theirs = partners.partner[mine]
    if (np.diff(theirs) <= 0).any():
        return
    firsts = np.append(0, mine + 1), np.append(0, theirs + 1)
    pasts = np.append(mine, len(partners.partner)), np.append(theirs, n_other)
    is_gap = (pasts[0] > firsts[0]) & (pasts[1] > firsts[1])
    for gap in np.flatnonzero(is_gap).tolist():
        yield slice(firsts[0][gap], pasts[0][gap]), slice(firsts[1][gap], pasts[1][gap])


def _fill_by_steps(lane: RankLane, reference: RankLane, partners: _Partners) -> None:
    for mine, theirs in list(_gaps(partners, len(reference))):
        paired, paired_with = _in_steps(lane.part(mine), reference.part(theirs))
        partners.add(paired + mine.start, paired_with + theirs.start, STEP)


def _fill_by_order(lane: RankLane, reference: RankLane, partners: _Partners) -> None:
    for mine, theirs in list(_gaps(partners, len(reference))):
        n_own, n_other = mine.stop - mine.start, theirs.stop - theirs.start
        if n_own == n_other and not lane.differs(mine, reference, theirs).any():
            partners.add(np.arange(mine.start, mine.stop), np.arange(theirs.start, theirs.stop), FILE)


def _fill_by_shift(lane: RankLane, reference: RankLane, partners: _Partners, shifts: Shifts, shift: int | None) -> None:
    """Also pair the kernels before the first and after the last anchor, if anchors and ends agree on one shift."""
    if shift is None or shifts.decisive != shift:
        return
    unpaired = np.arange(max(0, -shift), min(len(lane), len(reference) - shift))
    unpaired = unpaired[partners.partner[unpaired] < 0]
    partners.add(unpaired, unpaired + shift, SPREAD)


def _by_whole_files(lane: RankLane, reference: RankLane, partners: _Partners, one_clock: bool) -> Pairing:
    """Pair all kernels of both files by one shift.

    If the counts agree, the shift is 0 unless the clock or the ends clearly indicate another shift. If ranks share a
    clock but their calls overlap at no shift, the ranks were profiled at different times, and the pairing is refused.
    """
    shifts = shifts_of(lane, reference)
    possible = {shift for _, shift in shifts.ordered}
    if one_clock:
        possible = {shift for shift in possible if not _apart(lane, reference, _along(lane, reference, shift))}
    counts_agree = np.array_equal(lane.kinds, reference.kinds)
    if not shifts.ordered:
        reason = f"kind_order_mismatch: rank {lane.rank} with rank {reference.rank}"
        return Pairing(partners.partner, partners.evidence, shifts, refused=reason)
    if not possible and all(
        _never_meet(lane, reference, _along(lane, reference, shift)) for _, shift in shifts.ordered
    ):
        reason = f"never_together: rank {lane.rank} with rank {reference.rank}"
        return Pairing(partners.partner, partners.evidence, shifts, refused=reason)
    if counts_agree and 0 in possible and shifts.decisive in (None, 0):
        shift, evidence = 0, FILE
    elif one_clock and len(possible) == 1:
        (shift,), evidence = possible, CLOCK
    else:
        remaining = shifts.only(possible) if possible else shifts
        if remaining.is_ambiguous:
            return Pairing(partners.partner, partners.evidence, shifts, refused=remaining.ambiguity(lane.rank))
        (_, shift), evidence = remaining.ordered[0], SPREAD
    partners.add(*_along(lane, reference, shift), evidence)
    return _paired(lane, reference, partners, shifts, one_clock)


def _along(lane: RankLane, reference: RankLane, shift: int) -> Pairs:
    mine = np.arange(max(0, -shift), min(len(lane), len(reference) - shift))
    return mine, mine + shift


def _never_meet(lane: RankLane, reference: RankLane, pairs: Pairs) -> bool:
    """Return whether all pairs of collectives whose ranks wait for each other are apart.

    In such a pair, one kernel ended before the other kernel began (`_apart`).
    """
    return _apart(lane, reference, pairs) == int(_waiting(lane, reference, pairs).sum())


def _waiting(lane: RankLane, reference: RankLane, pairs: Pairs) -> npt.NDArray[np.bool_]:
    """Return a mask of the pairs that belong to collectives whose ranks wait for each other."""
    waiting = np.ones(len(pairs[0]), bool)
    for member, positions in zip((lane, reference), pairs, strict=True):
        if member.waits_for_all is not None:
            waiting &= member.waits_for_all[positions]
    return waiting


def _apart(lane: RankLane, reference: RankLane, pairs: Pairs) -> int:
    """Count the pairs in which one kernel ended before the other began, although their ranks wait for each other.

    In such a collective, all kernels overlap, so these pairs are wrong.
    """
    mine, theirs = pairs
    is_apart = (lane.end_ns[mine] + _CLOCK_SLACK < reference.start_ns[theirs]) | (
        reference.end_ns[theirs] + _CLOCK_SLACK < lane.start_ns[mine]
    )
    return int((is_apart & _waiting(lane, reference, pairs)).sum())


def _contradictions(
    lane: RankLane, reference: RankLane, partners: _Partners, shifts: Shifts | None, one_clock: bool
) -> Iterator[Contradiction]:
    """Yield the weaker evidence that contradicts the pairs."""
    paired = np.flatnonzero(partners.partner >= 0)
    if not len(paired):
        return
    evidence = EVIDENCE[int(partners.evidence[paired].min())]
    alternatives: list[tuple[str, Pairs]] = []
    if evidence == SEQUENCE:
        # Use steps without sequence numbers, because _in_steps drops steps that contradict the numbers.
        alternatives.append((STEP, _in_steps(replace(lane, seq=None), reference)))
    if len(lane) == len(reference) and evidence != FILE:
        alternatives.append((FILE, _along(lane, reference, 0)))
    if shifts is not None and evidence != SPREAD and shifts.decisive is not None:
        alternatives.append((SPREAD, _along(lane, reference, shifts.decisive)))
    for against, (mine, theirs) in alternatives:
        is_paired = partners.partner[mine] >= 0
        n = int((partners.partner[mine] != theirs)[is_paired].sum())
        if n:
            yield Contradiction(lane.rank, evidence, against, n)
    if one_clock and (n := _apart(lane, reference, (paired, partners.partner[paired]))):
        yield Contradiction(lane.rank, evidence, CLOCK, n)
