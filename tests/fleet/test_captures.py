"""Grouping of traces into captures: which traces make a capture, and which are left out, and why."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from pipelines.fleet.captures.grouping import Capture, RankTrace, Role, find_captures
from pipelines.fleet.captures.input_tables import _capture


def trace(name: str, rank: int | None, start: int = 0, **other: object) -> RankTrace:
    rank_trace = RankTrace(name, "1", f"/jobs/a/{name}.json", "g", "a", rank, 4, start, start + 100, 10)
    return replace(rank_trace, **other)  # pyright: ignore[reportArgumentType]


def kinds(capture: Capture) -> list[tuple[str, int]]:
    return [(finding.check_name, finding.n) for finding in capture.findings]


def members(capture: Capture) -> dict[str, str | None]:
    return {member.trace.trace_id: member.left_out_reason for member in capture.members}


def test_the_ranks_of_a_folder_are_one_capture_whatever_their_clocks_show() -> None:
    year = 365 * 24 * 3600 * 10**9
    (capture,) = find_captures([trace("a", 0), trace("b", 1, year), trace("c", 2, 10**9), trace("d", 3)])
    assert (capture.capture_id, capture.job, capture.world_size, kinds(capture)) == ("g", "a", 4, [])
    assert [member.rank for member in capture.ranks] == [0, 1, 2, 3]


def test_missing_ranks_are_named() -> None:
    (capture,) = find_captures([trace("a", 0), trace("c", 2)])
    assert kinds(capture) == [("missing_ranks", 2)]
    assert capture.findings[0].detail == "2 of 4 ranks are missing (1, 3): who the others wait for is unknown"


def test_two_files_for_a_rank_the_fuller_one_counts() -> None:
    (capture,) = find_captures([trace("a", 0), trace("b", 1), trace("twin", 1, 20, n_events=11)])
    assert members(capture) == {"a": None, "b": "rank_twice", "twin": None}
    assert ("rank_twice", 1) in kinds(capture)


def test_a_rank_of_another_job() -> None:
    odd = [trace("odd", 3, world_size=16), trace("far", 4, n_events=99)]
    (capture,) = find_captures([trace("a", 0), trace("b", 1), *odd])
    assert members(capture) == {"a": None, "b": None, "odd": "other_job", "far": "other_job"}
    first, second = find_captures([trace("a", 0), replace(trace("x", 1), job="b", group_id="h")])
    assert (first.job, second.job) == ("a", "b")
    assert all(("other_jobs_in_folder", 1) in kinds(capture) for capture in (first, second))


def test_a_trace_that_does_not_tell_its_rank() -> None:
    (capture,) = find_captures([trace("a", 0), trace("x", None, 10)])
    assert members(capture) == {"a": None, "x": "no_rank"}
    (alone,) = find_captures([trace("x", None, world_size=None)])
    assert [member.rank for member in alone.ranks] == [0]


def test_a_file_that_lost_its_clock_takes_no_whole_file_s_place_and_no_capture_s_time() -> None:
    now = 1_700_000_000_000_000_000
    whole = [trace(f"r{rank}", rank, now + rank) for rank in range(4)]
    cut = trace("cut", 0, 10**12, n_events=99)  # it may be from a longer run
    (capture,) = find_captures([cut, *whole])
    assert members(capture) == {"cut": "rank_twice", **{rank_trace.trace_id: None for rank_trace in whole}}
    (capture,) = find_captures([replace(cut, rank=0), *whole[1:]])  # it is the only trace of its rank, so it is used
    assert set(members(capture).values()) == {None}
    assert (_capture(capture)["capture_start_ns"], _capture(capture)["n_ranks"]) == (now + 1, 4)
    later = [
        replace(
            rank_trace, trace_id=f"l{rank_trace.trace_id}", trace_start_ns=now + 10**9, trace_end_ns=now + 2 * 10**9
        )
        for rank_trace in whole
    ]
    captures = find_captures([*whole, *later, cut])  # it is unknown to which of the two it belongs
    assert sorted(len(capture.members) for capture in captures) == [1, 4, 4]


def test_an_inbox_of_several_captures_of_a_job() -> None:
    rounds = [[trace(f"{n}{rank}", rank, 1_000 * n + rank, batch_id=str(n)) for rank in range(4)] for n in range(3)]
    captures = find_captures([rank_trace for traces in rounds for rank_trace in traces])
    assert sorted(sorted(members(capture)) for capture in captures) == [[f"{n}{r}" for r in range(4)] for n in range(3)]
    assert not [finding for capture in captures for finding in capture.findings]
    (first,) = [capture for capture in captures if "00" in members(capture)]
    assert first.capture_id == "g"


def test_windows_back_to_back_are_told_apart_by_their_ranks() -> None:
    near = [trace(f"{n}{rank}", rank, 100 * n + 3 * rank) for n in range(2) for rank in range(4)]
    captures = find_captures(near)  # the first window of rank 3 ends after the second window of rank 0 begins
    assert sorted(sorted(members(capture)) for capture in captures) == [
        ["00", "01", "02", "03"],
        ["10", "11", "12", "13"],
    ]


def test_ids_stay_when_late_ranks_come_in_any_order() -> None:
    traces = [trace(f"{n}{rank}", rank, 1_000 * n + rank) for n in range(4) for rank in range(4)]
    Random(3).shuffle(traces)
    traces = [replace(rank_trace, batch_id=f"{i:02}") for i, rank_trace in enumerate(traces)]
    seen: dict[str, str] = {}
    for n in range(1, len(traces) + 1):
        for capture in find_captures(traces[:n]):
            for trace_id in members(capture):
                if n > 12:  # every capture has ranks that distinguish it from the others
                    assert seen.setdefault(trace_id, capture.capture_id) == capture.capture_id
    assert len(set(seen.values())) == 4


def test_no_later_capture_takes_over_the_id_of_a_removed_one() -> None:
    day0, day1 = ([trace(f"{n}{rank}", rank, 1_000 * n, batch_id=str(n)) for rank in range(2)] for n in range(2))
    first, later = sorted(find_captures([*day0, *day1]), key=lambda capture: "10" in members(capture))
    assert (first.capture_id, "00" in members(first)) == ("g", True)
    (left,) = find_captures(day1, removed={"g": ("0", "00")})
    assert left == later
    assert [capture.capture_id for capture in find_captures(day1, removed={"h": ("0", "00")})] == ["g"]
    # If a removed trace was not the first, the capture with the first trace keeps the id.
    assert first in find_captures([*day0, day1[0]], removed={"g": ("1", "11")})
    again = [replace(rank_trace, batch_id="2") for rank_trace in day0]
    captures = find_captures([*day1, *again], removed={"g": ("0", "00")})
    assert {capture.capture_id: set(members(capture)) for capture in captures} == {
        "g": {"00", "01"},
        later.capture_id: {"10", "11"},
    }


def test_an_id_is_kept_unless_another_capture_has_it() -> None:
    day0, day1 = ([trace(f"{n}{rank}", rank, 1_000 * n, batch_id=str(n)) for rank in range(2)] for n in range(2))
    both = {frozenset(members(capture)): capture.capture_id for capture in find_captures([*day0, *day1])}
    kept = find_captures([*day0, *day1], kept={"10": "g", "01": "h"})
    assert {frozenset(members(capture)): capture.capture_id for capture in kept} == both
    for removed in ({}, {"g": ("0", "00")}):
        captures = find_captures([day0[1], *day1], removed=removed, kept={"01": "g"})
        assert [capture.capture_id for capture in captures if "01" in members(capture)] == ["g"]
        assert len({capture.capture_id for capture in captures}) == len(captures)


def test_an_id_that_traces_of_two_captures_kept_stays_with_the_first_ingested_of_them() -> None:
    late, early = ([trace(f"{n}{rank}", rank, 1_000 * n, batch_id=str(2 - n)) for rank in range(2)] for n in range(2))
    kept = {rank_trace.trace_id: "h" for rank_trace in (*late, *early)}
    captures = find_captures([*late, *early], removed={"g": ("0", "x")}, kept=kept)
    ids = {frozenset(members(capture)): capture.capture_id for capture in captures}
    assert ids[frozenset({"10", "11"})] == "h" and ids[frozenset({"00", "01"})] not in ("g", "h")


def test_content_changes_with_what_the_user_tells() -> None:
    (plain,) = find_captures([trace("a", 0), trace("b", 1)])
    roles = [Role("a", 0, "dp", "x"), Role(None, 1, "dp", "y"), Role("b", 0, "dp", "z"), Role(None, 9, "dp", "z")]
    (with_roles,) = find_captures([trace("a", 0), trace("b", 1)], roles)
    assert {(role.rank, role.group) for role in with_roles.roles} == {(0, "x"), (1, "y")}
    assert with_roles.content != plain.content


def test_a_role_for_any_job_and_the_same_for_one_count_once() -> None:
    both = [Role(job, rank, "node", group) for job in (None, "a") for rank, group in ((0, "x"), (1, "y"))]
    (capture,) = find_captures([trace("a", 0), trace("b", 1)], [*both, Role("a", 1, "node", "z")])
    assert [(role.rank, role.group) for role in capture.roles] == [(0, "x"), (1, "y"), (1, "z")]


def test_traces_without_times_that_share_a_folder() -> None:
    """Traces without timed events are grouped like others.

    Such a trace sorts before all others, so it may be the first of a folder.
    """
    nothing = {"trace_start_ns": None, "trace_end_ns": None, "n_events": 0}
    captures = find_captures([trace("a", 0), trace("empty", None, **nothing), trace("bare", None, **nothing)])
    assert sorted(name for capture in captures for name in members(capture)) == ["a", "bare", "empty"]
    assert len(find_captures([trace("empty", 0, **nothing), trace("bare", 0, **nothing)])) == 1


def test_any_world_size_that_a_file_says() -> None:
    """Missing ranks are counted but not enumerated, because a file may state a world size of 2^62."""
    (capture,) = find_captures([trace("a", 0, world_size=2**62)])
    assert kinds(capture) == [("missing_ranks", 2**62 - 1)]
    assert capture.findings[0].detail.endswith(
        f"are missing (1, 2, 3, 4, 5 and {2**62 - 6} more): who the others wait for is unknown"
    )
    (capture,) = find_captures([trace("a", -1, world_size=3), trace("b", 1, world_size=3)])
    assert ("missing_ranks", 2) in kinds(capture)


def test_another_job_in_the_folder_changes_the_content_of_a_capture() -> None:
    """Another job in the folder changes the content of a capture.

    Otherwise the capture would not be recomputed, and its finding would not be written.
    """
    alone, other = trace("a", 0), replace(trace("x", 1), job="b", group_id="h")
    before, after = find_captures([alone]), find_captures([alone, other])
    assert before[0].content != after[0].content
    assert before[0].content == find_captures([alone])[0].content
