"""Matching of the ranks' calls: which calls are paired, by which evidence, and which evidence contradicts it."""

from __future__ import annotations

from dataclasses import replace

import duckdb
import numpy as np
import pytest

from pipelines.base.datafiles import rule_rows
from pipelines.fleet.clocks.alignment import fit_capture
from pipelines.fleet.collectives.evidence import evidence_of
from pipelines.fleet.collectives.lanes import Kernels
from pipelines.fleet.collectives.matching import LaneMatch, match_lane
from pipelines.fleet.collectives.pairing import EVIDENCE, Contradiction
from pipelines.fleet.collectives.rank_lane import NONE, RankLane

MS = 1_000_000
SECOND = 1_000 * MS
PER_STEP = 3


def job(
    n_ranks: int = 4, n_steps: int = 6, noise_ms: float = 3.0, late_ms: float = 50.0, seed: int = 1
) -> list[RankLane]:
    """Return all-reduces of one kind, three per step of 100 ms. Their ends are noise, as if ranks shared a GPU.

    The last rank is late to the first all-reduce of each step. Neither kinds nor ends distinguish the steps.
    """
    draw = np.random.default_rng(seed)
    n = n_steps * PER_STEP
    begin = np.repeat(np.arange(n_steps) * 100 * MS, PER_STEP) + np.tile([0, 60, 80], n_steps) * MS
    start = begin + draw.integers(0, MS, (n_ranks, n))
    start[-1, ::PER_STEP] += int(late_ms * MS)
    end = start.max(axis=0) + 15 * MS + (draw.random((n_ranks, n)) * noise_ms * MS).astype(np.int64)
    steps = np.repeat(np.arange(n_steps), PER_STEP)
    return [RankLane(rank, np.zeros(n, np.int8), start[rank], end[rank], None, steps) for rank in range(n_ranks)]


def chosen(lane: RankLane, places: object) -> RankLane:
    """Return some of a rank's calls."""
    return lane.part(places)  # pyright: ignore[reportArgumentType]


def without(lane: RankLane, *places: int) -> RankLane:
    return chosen(lane, np.delete(np.arange(len(lane)), places))


def unstepped(lane: RankLane) -> RankLane:
    return replace(lane, step=None)


def numbered(lane: RankLane, where: object = slice(None), first: int = 700) -> RankLane:
    """Return a lane with sequence numbers at some of its indices."""
    seq = np.full(len(lane), NONE)
    seq[where] = np.arange(first, first + len(lane))[where]  # pyright: ignore[reportCallIssue, reportArgumentType]
    return replace(lane, seq=seq)


def partners(match: LaneMatch) -> list[list[int]]:
    return match.index.tolist()


def test_the_evidence_and_its_order_are_those_of_the_rules() -> None:
    rows = rule_rows("match_evidence")
    assert tuple(row["matched_by"] for row in rows) == EVIDENCE
    assert [int(row["evidence_order"]) for row in rows] == [1, 2, 3, 4, 5]


def test_without_steps_and_counts_such_a_job_is_ambiguous() -> None:
    lanes = [unstepped(lane) for lane in job()]
    lanes[1] = without(lanes[1], 0)
    assert (match_lane(lanes).refused or "").startswith("ambiguous_shift: rank ")


@pytest.mark.parametrize("n_ranks", [2, 4, 16])
def test_steps_of_the_same_number_match_whatever_the_clocks_show(n_ranks: int) -> None:
    lanes = [
        replace(lane, start_ns=lane.start_ns + rank * 3 * SECOND, end_ns=lane.end_ns + rank * 3 * SECOND)
        for rank, lane in enumerate(job(n_ranks))
    ]
    match = match_lane(lanes)
    assert (match.refused, match.is_certain, match.contradictions) == (None, True, ())
    assert partners(match) == [list(range(18))] * n_ranks
    assert set(match.evidence) == set(match.rank_evidence.values()) == {"step_order"}
    assert match.shift == dict.fromkeys(range(n_ranks), 0)


def test_a_step_of_which_a_rank_lacks_a_call_is_left_out_and_no_other() -> None:
    lanes = job()
    lanes[2] = without(lanes[2], 7)  # the second call of step 2
    match = match_lane(lanes)
    rest = [0, 1, 2, 3, 4, 5, *range(9, 18)]
    assert partners(match) == [rest, rest, [i if i < 7 else i - 1 for i in rest], rest]
    assert set(match.evidence) == {"step_order"} and match.refused is None
    assert 2 not in match.shift  # its shift differs between calls


def test_a_step_whose_kinds_differ_is_left_out() -> None:
    lanes = job()
    kinds = lanes[1].kinds.copy()
    kinds[4] = 3
    lanes[1] = replace(lanes[1], kinds=kinds)
    assert match_lane(lanes).index[1].tolist() == [0, 1, 2, *range(6, 18)]


def test_a_rank_with_more_steps_than_the_others() -> None:
    lanes = job(n_steps=8)
    lanes = [lanes[0], *(chosen(lane, slice(2 * PER_STEP, None)) for lane in lanes[1:])]
    match = match_lane(lanes)
    assert match.index[0].tolist() == list(range(6, 24)) and match.index[1].tolist() == list(range(18))
    assert set(match.evidence) == {"step_order"}


def test_calls_outside_of_steps_are_matched_in_order_where_counts_agree() -> None:
    lanes = job()
    steps = lanes[0].step
    assert steps is not None
    outside = np.where((steps == 0) | (steps == 5), NONE, steps)
    lanes = [replace(lane, step=outside) for lane in lanes]
    match = match_lane(lanes)
    assert match.index.shape == (4, 18)
    assert match.evidence == ("file_order",) * 3 + ("step_order",) * 12 + ("file_order",) * 3
    assert not match.is_certain
    lanes[3] = without(lanes[3], 0)
    assert match_lane(lanes).index[3].tolist() == list(range(2, 17))  # its first two are not matched


def test_steps_that_mostly_disagree_are_no_evidence() -> None:
    # one of six steps has the same number of calls
    other = np.array([0] * 2 + [1] * 3 + [2] * 5 + [3] * 2 + [4] * 2 + [5] * 4)
    lanes = [replace(lane, step=other) if lane.rank else lane for lane in job()]
    match = match_lane(lanes)
    assert set(match.evidence) == {"file_order"} and match.index.shape == (4, 18)


def test_one_rank_without_steps_is_matched_by_counts_and_the_others_by_steps() -> None:
    lanes = job()
    lanes[1] = unstepped(lanes[1])
    match = match_lane(lanes)
    assert partners(match) == [list(range(18))] * 4
    assert match.rank_evidence == {0: "file_order", 1: "file_order", 2: "step_order", 3: "step_order"}
    assert set(match.evidence) == {"file_order"} and match.doubt is not None
    lanes[0] = unstepped(lanes[0])  # the lowest rank has no steps, so another rank is the reference
    assert match_lane(lanes).reference == 2


def test_sequence_numbers_come_first_and_what_steps_say_otherwise_is_told() -> None:
    lanes = [numbered(lane) for lane in job()]
    assert set(match_lane(lanes).evidence) == {"sequence_number"} and match_lane(lanes).reference is None
    seq = lanes[2].seq
    assert seq is not None
    swapped = seq.copy()
    swapped[[4, 5]] = seq[[5, 4]]
    lanes[2] = replace(lanes[2], seq=swapped)
    match = match_lane(lanes)
    assert match.refused is None and set(match.evidence) == {"sequence_number"}
    assert match.index[2].tolist() == [*range(4), 5, 4, *range(6, 18)]
    assert match.contradictions == (
        Contradiction(2, "sequence_number", "step_order", 2),
        Contradiction(2, "sequence_number", "file_order", 2),
    )


@pytest.mark.parametrize("every", [2, 3, 6, 9])
def test_sequence_numbers_of_some_calls_are_anchors_of_the_others(every: int) -> None:
    """Sequence numbers of some calls are anchors of the other calls.

    No rank has steps, and one call is missing on one rank. Only the calls between the anchors around the missing call
    are left out.
    """
    lanes = [unstepped(numbered(lane, slice(None, None, every))) for lane in job()]
    lanes[1] = without(lanes[1], 10) if 10 % every else without(lanes[1], 11)
    match = match_lane(lanes)
    gap = 10 // every * every
    rest = [i for i in range(18) if not gap < i < gap + every]
    assert match.index[0].tolist() == rest
    assert {match.evidence[rest.index(i)] for i in rest if i % every == 0} == {"sequence_number"}
    assert {match.evidence[rest.index(i)] for i in rest if i % every} <= {"file_order"}


def test_between_anchors_that_ranks_have_in_different_orders_nothing_is_matched() -> None:
    lanes = [unstepped(numbered(lane, slice(None, None, 3))) for lane in job()]
    seq = lanes[1].seq
    assert seq is not None
    crossed = seq.copy()
    crossed[[6, 9]] = seq[[9, 6]]
    lanes[1] = replace(lanes[1], seq=crossed)
    match = match_lane(lanes)
    assert partners(match)[:2] == [[0, 3, 6, 9, 12, 15], [0, 3, 9, 6, 12, 15]]


def test_sequence_numbers_of_some_calls_and_steps_of_the_others() -> None:
    lanes = [numbered(lane, slice(None, None, 9)) for lane in job()]
    lanes[3] = without(lanes[3], 4)
    match = match_lane(lanes)
    assert match.index[0].tolist() == [0, 1, 2, *range(6, 18)]  # all but the step with the missing call
    assert match.evidence[0] == "sequence_number" and {"step_order"} < set(match.evidence)


def test_a_rank_whose_trace_has_no_sequence_numbers_is_matched_by_steps() -> None:
    lanes = [numbered(lane) if lane.rank != 1 else lane for lane in job()]
    match = match_lane(lanes)
    assert (match.index.shape, set(match.evidence)) == ((4, 18), {"step_order"})
    assert match.rank_evidence[2] == "sequence_number"
    lanes = [numbered(lane) if lane.rank else lane for lane in job()]  # all ranks but the lowest have numbers
    assert match_lane(lanes).rank_evidence == {
        0: "step_order",
        1: "step_order",
        **dict.fromkeys((2, 3), "sequence_number"),
    }


@pytest.mark.parametrize("stepped", [True, False])
def test_calls_of_different_numbers_are_never_matched(stepped: bool) -> None:
    """Calls of different sequence numbers are never matched.

    Such ranks were profiled in different steps of a job, or on different days.
    """
    lanes = [numbered(lane, first=700 + 18 * lane.rank) for lane in job(2)]
    lanes = lanes if stepped else [unstepped(lane) for lane in lanes]
    for one_clock in (False, True):
        match = match_lane(lanes, one_clock)
        assert match.refused == "kind_order_mismatch: rank 1 with rank 0" and match.index.shape == (2, 0)
    halves = [numbered(job(2)[0], slice(None, 9)), numbered(job(2)[1], slice(9, None))]  # nothing contradicts the steps
    assert match_lane(halves).index.shape == (2, 18)
    some = [numbered(lane, slice(4, 5), 700 + lane.rank) for lane in job(2)]
    assert match_lane(some).index[0].tolist() == [0, 1, 2, *range(6, 18)]  # all but the step of these calls


def test_a_gap_between_anchors_is_not_filled_with_calls_of_different_numbers() -> None:
    """Calls of different sequence numbers are not matched even if all calls between them are missing.

    One rank lost calls 12 to 14, the other calls 15 to 17.
    """
    lanes = [unstepped(numbered(lane)) for lane in job(2)]
    lanes = [chosen(lanes[0], np.r_[:12, 15:18]), chosen(lanes[1], slice(0, 15))]
    match = match_lane(lanes)
    assert partners(match) == [list(range(12))] * 2 and set(match.evidence) == {"sequence_number"}


def test_a_sequence_number_that_several_calls_have_is_matched_in_order_where_as_many_have_it() -> None:
    lanes = [replace(lane, seq=np.arange(18) // 2, step=None) for lane in job()]
    lanes[0] = without(lanes[0], 3)
    assert match_lane(lanes).index[1].tolist() == [0, 1, *range(4, 18)]


def test_counts_match_where_ends_do_not_tell_another_order() -> None:
    lanes = [unstepped(lane) for lane in job(noise_ms=3.0)]
    match = match_lane(lanes)
    assert partners(match) == [list(range(18))] * 4
    assert set(match.evidence) == {"file_order"} and (match.doubt or "").startswith("ambiguous_shift: rank")
    clear = match_lane([unstepped(lane) for lane in irregular()])
    assert set(clear.evidence) == {"file_order"} and clear.doubt is None


def irregular(seed: int = 4) -> list[RankLane]:
    """Return two ranks whose all-reduces end together, at irregular intervals."""
    draw = np.random.default_rng(seed)
    begin = np.cumsum(draw.integers(5 * MS, 40 * MS, 19))
    ends = begin + 2 * MS + draw.integers(0, 2_000, (2, 19))
    steps = np.arange(19) // 3
    return [RankLane(rank, np.zeros(19, np.int8), begin, ends[rank], None, steps) for rank in range(2)]


def test_equal_counts_of_different_calls_are_matched_by_their_ends_and_that_is_told() -> None:
    first, second = (unstepped(lane) for lane in irregular())
    lanes = [chosen(first, slice(0, 18)), chosen(second, slice(1, 19))]
    match = match_lane(lanes)
    assert partners(match) == [list(range(1, 18)), list(range(17))]
    assert set(match.evidence) == {"spread"}
    assert match.contradictions == (Contradiction(1, "spread", "file_order", 17),)


def test_steps_come_before_ends_and_that_ends_say_otherwise_is_told() -> None:
    first, second = irregular()
    steps = second.step
    assert steps is not None
    lanes = [chosen(first, slice(0, 18)), replace(chosen(second, slice(1, 19)), step=steps[:18])]
    match = match_lane(lanes)
    assert set(match.evidence) == {"step_order"} and partners(match) == [list(range(18))] * 2
    assert Contradiction(1, "step_order", "spread", 17) in match.contradictions


def test_first_calls_outside_of_steps_are_matched_by_their_ends_where_these_agree_with_the_steps() -> None:
    outside = np.array([NONE] * 3 + [step for step in range(1, 7) for _ in range(3)][:16])
    first, second = (replace(lane, step=outside) for lane in irregular())
    match = match_lane([first, without(second, 0)])
    assert partners(match) == [list(range(1, 19)), list(range(18))]
    assert match.evidence == ("spread",) * 2 + ("step_order",) * 16
    noisy = replace(second, end_ns=second.end_ns + np.tile([0, 90, 45], 7)[:19] * MS)
    assert match_lane([first, without(noisy, 0)]).index.shape == (2, 16)


def test_a_shared_clock_tells_the_only_order_in_which_calls_overlap() -> None:
    lanes = [unstepped(lane) for lane in job(2)]
    lanes[1] = without(lanes[1], 0)
    match = match_lane(lanes, one_clock=True)
    assert match.index[0].tolist() == list(range(1, 18)) and set(match.evidence) == {"shared_clock"}
    gone = unstepped(job(2)[0])
    lanes = [chosen(gone, slice(0, 17)), replace(chosen(unstepped(job(2)[1]), slice(1, 18)))]
    match = match_lane(lanes, one_clock=True)  # equally many calls, but different ones
    assert match.index[0].tolist() == list(range(1, 17)) and set(match.evidence) == {"shared_clock"}
    assert match.contradictions[0] == Contradiction(1, "shared_clock", "file_order", 16)
    # without a shared clock there is no evidence against the counts
    assert set(match_lane(lanes).evidence) == {"file_order"}


def test_ranks_of_a_shared_clock_none_of_whose_calls_overlap_are_refused() -> None:
    """Ranks that share a clock are refused if none of their calls overlap.

    They were profiled one after the other, in calls that only look alike. The kinds of these calls fit at one shift
    only.
    """
    kinds = np.repeat([0, 1, 2], 6).astype(np.int8)
    first, second = (replace(unstepped(lane), kinds=kinds) for lane in job(2))
    later = moved(second, SECOND)
    match = match_lane([first, later], one_clock=True)
    assert (match.refused, match.index.shape) == ("never_together: rank 1 with rank 0", (2, 0))
    assert match_lane([first, later]).index.shape == (2, 18)  # clocks that are not shared are no evidence
    start_ns, end_ns = later.start_ns.copy(), later.end_ns.copy()
    start_ns[0], end_ns[0] = second.start_ns[0], second.end_ns[0]
    meets_once = replace(later, start_ns=start_ns, end_ns=end_ns)
    match = match_lane([first, meets_once], one_clock=True)
    assert Contradiction(1, "spread", "shared_clock", 17) in match.contradictions
    sends = [replace(lane, waits_for_all=np.zeros(18, bool)) for lane in (first, later)]
    assert match_lane(sends, one_clock=True).refused is None  # a sender and its receiver need not overlap


def test_steps_that_a_shared_clock_contradicts() -> None:
    lanes = job(2)
    late = replace(lanes[1], start_ns=lanes[1].start_ns + 400 * MS, end_ns=lanes[1].end_ns + 400 * MS)
    match = match_lane([lanes[0], late], one_clock=True)
    assert Contradiction(1, "step_order", "shared_clock", 18) in match.contradictions
    sends = [replace(lane, waits_for_all=np.zeros(18, bool)) for lane in (lanes[0], late)]
    assert match_lane(sends, one_clock=True).contradictions == ()  # a sender and its receiver need not overlap


@pytest.mark.parametrize(("gap_ns", "n"), [(200_000, 0), (200_001, 18)])
def test_how_far_apart_calls_are_that_a_shared_clock_contradicts(gap_ns: int, n: int) -> None:
    first = job(2)[0]
    length = first.end_ns - first.start_ns
    later = replace(first, rank=1, start_ns=first.end_ns + gap_ns, end_ns=first.end_ns + gap_ns + length)
    for lanes in ([first, later], [replace(later, rank=0), replace(first, rank=1)]):
        of_clock = [c.n for c in match_lane(lanes, one_clock=True).contradictions if c.against == "shared_clock"]
        assert sum(of_clock) == n


def test_evidence_is_counted_best_first() -> None:
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE collectives AS SELECT * FROM (VALUES ('a', 'shared_clock', NULL), ('a', 'file_order', NULL), "
        "('a', 'step_order', NULL), ('a', 'step_order', NULL), ('a', 'spread', 'ambiguous_shift'), "
        "('b', 'spread', NULL)) AS c (capture_id, matched_by, refused_reason)"
    )
    assert list(evidence_of(con, "a").items()) == [("step_order", 2), ("file_order", 1), ("shared_clock", 1)]


def kernels(lanes: list[RankLane], group: str | None = "0", stream: int = 7) -> dict[int, Kernels]:
    by_rank = {}
    for lane in lanes:
        own = Kernels(lane.rank)
        rows = zip(lane.start_ns.tolist(), lane.end_ns.tolist(), strict=True)
        for place, (start, end) in enumerate(rows):
            seq = None if lane.seq is None or lane.seq[place] == NONE else int(lane.seq[place])
            step = None if lane.step is None or lane.step[place] == NONE else int(lane.step[place])
            own.add("t", place, "allreduce", True, 0, stream, start, end, step, group, group, None, seq)
        by_rank[lane.rank] = own
    return by_rank


def moved(lane: RankLane, ns: int) -> RankLane:
    return replace(lane, start_ns=lane.start_ns + ns, end_ns=lane.end_ns + ns)


ONE_HOST, HOSTS = dict.fromkeys(range(4), "a"), dict(enumerate("abcd"))
UNKNOWN: dict[int, str | None] = dict.fromkeys(range(4))


@pytest.mark.parametrize(
    ("hosts", "away_ms", "method"),
    [
        (ONE_HOST, 0, "shared_clock"),
        (UNKNOWN, 0, "shared_clock"),
        (UNKNOWN, 3000, "collective_ends"),
        (UNKNOWN, -9, "collective_ends"),
        (HOSTS, 0, "collective_ends"),
        (HOSTS, 3000, "collective_ends"),
    ],
)
def test_noisy_ends_of_ranks_that_steps_match(hosts: dict[int, str | None], away_ms: int, method: str) -> None:
    lanes = job()
    lanes[2] = moved(lanes[2], away_ms * MS)
    (lane,), clocks = fit_capture(range(4), kernels(lanes), hosts=hosts)
    assert lane.refused is None and {clock.method for clock in clocks} == {method}
    offsets = [clock.clock.offset_ns if clock.clock else None for clock in clocks]
    truth = [0, 0, away_ms * MS, 0]
    assert offsets == ([0] * 4 if method == "shared_clock" else pytest.approx(truth, abs=2 * MS))
    assert lane.starts is not None
    assert (lane.starts.argmax(axis=0)[::PER_STEP] == 3).all()
    assert all(clock.clock and clock.clock.error_ns < 7 * MS for clock in clocks)


def test_noisy_ends_that_only_counts_match() -> None:
    """Calls with noisy ends are matched by their counts alone only on a shared clock.

    The clock supports the counts, because in their order all calls overlap.
    """
    lanes = [unstepped(lane) for lane in job()]
    for hosts in (ONE_HOST, UNKNOWN):
        (lane,), clocks = fit_capture(range(4), kernels(lanes), hosts=hosts)
        assert (lane.refused, {clock.method for clock in clocks}) == (None, {"shared_clock"})
    lanes[2] = moved(lanes[2], 3 * SECOND)
    for hosts in (HOSTS, UNKNOWN):
        (lane,), clocks = fit_capture(range(4), kernels(lanes), hosts=hosts)
        assert (lane.refused or "").startswith("ambiguous_shift: rank ") and lane.match.index.shape == (4, 0)
        assert {clock.refused for clock in clocks} == {lane.refused}


def test_small_noise_does_not_hide_that_clocks_of_unknown_hosts_differ() -> None:
    lanes = job(noise_ms=0.8)
    lanes[2] = moved(lanes[2], 4 * MS)
    _, clocks = fit_capture(range(4), kernels(lanes), hosts=UNKNOWN)
    assert {clock.method for clock in clocks} == {"collective_ends"}
    assert clocks[2].clock and clocks[2].clock.offset_ns == pytest.approx(4 * MS, abs=MS)


def test_collectives_that_ranks_often_leave_at_different_times() -> None:
    """Ranks that often leave collectives at different times are refused, unless they share a host.

    On one host this does not affect clocks. Otherwise the offsets cannot be determined.
    """
    lanes = job(noise_ms=0.05)
    lanes[1] = replace(lanes[1], end_ns=lanes[1].end_ns + np.tile([0, 0, 5 * MS], 6))
    for hosts, reason in ((ONE_HOST, None), (HOSTS, "too_many_dropped: 12 of 18 kept")):
        (lane,), _ = fit_capture(range(4), kernels(lanes), hosts=hosts)
        assert lane.refused == reason


def test_noise_as_long_as_the_waiting_is_refused() -> None:
    lanes = job(late_ms=0.0, noise_ms=12.0, n_steps=2)
    for hosts in (HOSTS, UNKNOWN):
        (lane,), clocks = fit_capture(range(4), kernels(lanes), hosts=hosts)
        # The steps match them, but without any support, so they are refused like calls that only ends could match.
        assert (lane.refused or "").startswith("ambiguous_shift: rank ") and lane.match.index.shape == (4, 0)
        assert all(clock.clock is None for clock in clocks)
    (lane,), _ = fit_capture(range(4), kernels(lanes), hosts=ONE_HOST)
    assert lane.refused is None
    (lane,), _ = fit_capture(range(4), kernels([numbered(lane) for lane in lanes]), hosts=HOSTS)
    assert (lane.refused or "").startswith("noisy_ends: ") and lane.match.index.shape == (
        4,
        6,
    )  # numbers need no support


def test_a_shared_clock_that_is_contradicted_is_refused() -> None:
    lanes = job()
    lanes[3] = moved(lanes[3], 200 * MS)
    _, clocks = fit_capture(range(4), kernels(lanes), one_clock=True, hosts=ONE_HOST)
    assert all("; contradiction: " in (clock.refused or "") for clock in clocks)


def test_quiet_ends_are_fitted_on_one_host_too() -> None:
    """Ends with little noise are fitted even on one host.

    The clocks of its GPUs differ by microseconds, which only ends show.
    """
    lanes = job(noise_ms=0.002)
    lanes[1] = moved(lanes[1], 40_000)
    _, clocks = fit_capture(range(4), kernels(lanes), hosts=ONE_HOST)
    assert {clock.method for clock in clocks} == {"collective_ends"}
    assert clocks[1].clock and clocks[1].clock.offset_ns == pytest.approx(40_000, abs=3_000)


def test_two_groups_are_matched_each_by_its_own_evidence() -> None:
    """Each of two groups is matched by its own evidence.

    One has sequence numbers. The other has steps, and one of its calls is missing.
    """
    first, second = [numbered(lane) for lane in job(seed=1)], job(seed=2)
    second = [replace(lane, start_ns=lane.start_ns + 7, end_ns=lane.end_ns + 7) for lane in second]
    second[0] = without(second[0], 5)
    both = kernels(first)
    for rank, own in kernels(second, "1", 9).items():
        for name, values in vars(both[rank]).items():
            if name != "rank":
                values.extend(getattr(own, name))
        order = np.argsort(both[rank].start_ns, kind="stable")
        both[rank] = both[rank].part(order.tolist())
    lanes, clocks = fit_capture(range(4), both, hosts=ONE_HOST)
    assert [(set(lane.match.evidence), lane.match.index.shape[1]) for lane in lanes] == [
        ({"sequence_number"}, 18),
        ({"step_order"}, 15),
    ]
    assert [lane.refused for lane in lanes] == [None, None] and all(clock.clock for clock in clocks)
