"""Intervals of threads compared with sets of points, and the work of other threads for an interval."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.critical_path.whatif.timeline import Stretches, Timeline
from tests.effort import examples

Time = tuple[int, int, int]
"""A thread, a start and an end."""

THREADS = 5
"""Number of threads, counted from 0. The first thread, the last thread and thread 2 have no intervals."""


def times(threads: list[int], least: int = 0, most: int = 30) -> st.SearchStrategy[list[Time]]:
    ends = st.tuples(st.integers(least, most), st.integers(least, most)).map(sorted)
    return st.lists(st.builds(lambda thread, both: (thread, *both), st.sampled_from(threads), ends), max_size=8)


def columns(rows: list[Time]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    thread, start, end = np.array(rows, dtype=np.int64).reshape(-1, 3).T
    return thread, start, end


def merged(rows: list[Time]) -> Stretches:
    return Stretches.union(*columns(rows))


def rows_of(stretches: Stretches) -> list[Time]:
    return list(zip(stretches.thread.tolist(), stretches.start.tolist(), stretches.end.tolist(), strict=True))


def points(rows: list[Time]) -> set[tuple[int, int]]:
    """Return each half nanosecond that the times contain, ends included. Odd numbers are within a nanosecond."""
    return {(thread, half) for thread, start, end in rows for half in range(2 * start, 2 * end + 1)}


def merged_slowly(rows: list[Time]) -> list[Time]:
    """Return the merged intervals, computed row by row: each row absorbs the previous one if they touch."""
    result: list[Time] = []
    for thread, start, end in sorted(rows):
        if result and result[-1][0] == thread and start <= result[-1][2]:
            result[-1] = (thread, result[-1][1], max(end, result[-1][2]))
        else:
            result.append((thread, start, end))
    return result


stretches = times([1, 3])
asked = times(list(range(THREADS)), -5, 35)


@example([(1, 0, 10), (1, 2, 3), (1, 5, 12), (1, 12, 13), (3, 0, 1)])
@settings(max_examples=examples(400), deadline=None)
@given(stretches)
def test_a_union_has_each_time_once_in_order(rows: list[Time]) -> None:
    assert rows_of(merged(rows)) == merged_slowly(rows)


@settings(max_examples=examples(400), deadline=None)
@given(stretches, stretches)
def test_and_also_is_the_union_of_both(rows: list[Time], others: list[Time]) -> None:
    assert rows_of(merged(rows).and_also(merged(others))) == merged_slowly(rows + others)


@example([(1, 0, 10), (3, 5, 20)], [(1, 5, 30), (2, 0, 30), (3, 0, 6), (0, 0, 30), (4, 0, 30)])
@settings(max_examples=examples(800), deadline=None)
@given(stretches, asked)
def test_covered_is_how_much_of_a_time_is_inside(rows: list[Time], queries: list[Time]) -> None:
    inside = points(merged_slowly(rows))
    slowly = [
        sum((thread, half) in inside for half in range(2 * start + 1, 2 * end, 2)) for thread, start, end in queries
    ]
    assert merged(rows).covered(*columns(queries)).tolist() == slowly


@example([(1, 0, 10), (3, 5, 20)], [(1, 0, 10), (1, 0, 11), (3, 5, 5), (3, 4, 5), (2, 6, 7), (4, 6, 7)])
@settings(max_examples=examples(800), deadline=None)
@given(stretches, asked)
def test_a_time_is_held_if_all_of_it_is_inside(rows: list[Time], queries: list[Time]) -> None:
    inside = points(rows)
    slowly = [points([query]) <= inside for query in queries]
    assert merged(rows).holds(*columns(queries)).tolist() == slowly


GPU = -1
Edge = tuple[int, int, int, int]
"""Source thread and time, destination thread and time."""


def line_of(edges: list[Edge]) -> Timeline:
    """Return a timeline with an event of length 0 at each end of each edge; events of thread -1 are GPU work."""
    m = len(edges)
    thread = np.array([end for src, _, dst, _ in edges for end in (src, dst)], dtype=np.int64)
    at = np.array([end for _, src_at, _, dst_at in edges for end in (src_at, dst_at)], dtype=np.int64)
    no, none = np.zeros(m, dtype=bool), np.full(m, -1)
    return Timeline(
        src=np.arange(0, 2 * m, 2),
        dst=np.arange(1, 2 * m, 2),
        src_at=at[::2],
        dst_at=at[1::2],
        to_start=~no,
        owner=none,
        is_own=no,
        is_launch=no,
        is_wait=no,
        is_earlier=no,
        at=at,
        end=at,
        thread=thread,
        is_work=thread == GPU,
        is_call=np.zeros(2 * m, dtype=bool),
        recorded_launch=np.full(2 * m, -1),
    )


CALLER: Time = (1, 0, 100)
THERE, BACK = (1, 10, 2, 20), (2, 70, 1, 80)

HELPED: list[tuple[str, list[Edge], list[Time]]] = [
    ("there and back", [THERE, BACK], [(2, 20, 70)]),
    ("never back", [THERE], []),
    ("only back", [BACK], []),
    ("back after the stretch", [THERE, (2, 70, 1, 101)], []),
    ("back at its end", [THERE, (2, 70, 1, 100)], [(2, 20, 70)]),
    ("there before the stretch", [(1, -1, 2, 20), BACK], []),
    ("there at its start", [(1, 0, 2, 20), BACK], [(2, 20, 70)]),
    ("back from another thread", [THERE, (3, 70, 1, 80)], []),
    ("back before it", [(1, 50, 2, 60), (2, 30, 1, 40)], []),
    ("twice", [THERE, (2, 30, 1, 35), (1, 36, 2, 40), BACK], [(2, 20, 70)]),
    ("a helper's helper", [THERE, (2, 30, 3, 40), (3, 50, 2, 60), BACK], [(2, 20, 70), (3, 40, 50)]),
    ("a helper's helper, not back", [THERE, (2, 30, 3, 40), BACK], [(2, 20, 70)]),
    ("the GPU", [(1, 10, GPU, 20), (GPU, 70, 1, 80)], []),
]


@pytest.mark.parametrize(("edges", "helped"), [case[1:] for case in HELPED], ids=[case[0] for case in HELPED])
def test_another_thread_helps_from_a_hand_off_until_it_hands_back(edges: list[Edge], helped: list[Time]) -> None:
    assert rows_of(line_of(edges).with_helpers(merged([CALLER]))) == [CALLER, *helped]


def test_a_return_to_another_stretch_is_no_help_for_the_first() -> None:
    later: Time = (1, 200, 300)
    edges = [THERE, (2, 70, 1, 210)]
    assert rows_of(line_of(edges).with_helpers(merged([CALLER, later]))) == [CALLER, later]


def test_each_stretch_has_the_help_that_comes_back_to_it() -> None:
    later: Time = (1, 200, 300)
    edges = [THERE, BACK, (1, 210, 2, 220), (2, 270, 1, 280)]
    line = line_of(edges)
    assert rows_of(line.with_helpers(merged([CALLER, later]))) == [CALLER, later, (2, 20, 70), (2, 220, 270)]


def test_a_hand_off_is_inside_if_both_of_its_ends_are() -> None:
    line = line_of([THERE, BACK, (1, 90, 4, 95), (4, 96, 1, 101)])
    assert line.share(line.with_helpers(merged([CALLER]))).tolist() == [1, 1, 0, 0]


def test_of_an_edge_of_a_thread_the_part_inside_counts() -> None:
    edges = [(1, 90, 1, 130), (1, 40, 1, 60), (1, 100, 1, 120), (2, 10, 2, 20), (1, 50, 1, 50), (1, 101, 1, 101)]
    assert line_of(edges).share(merged([CALLER])).tolist() == [0.25, 1, 0, 0, 1, 0]


def test_of_an_edge_between_stretches_of_a_thread_what_is_in_them_counts() -> None:
    line = line_of([(1, 50, 1, 250), (1, 100, 1, 200)])
    assert line.share(merged([CALLER, (1, 200, 300)])).tolist() == [0.5, 0]


def test_launches_and_waits_are_no_time_of_the_host() -> None:
    line = line_of([(1, 10, GPU, 20), (GPU, 70, 1, 80), (GPU, 20, GPU, 70)])
    assert line.share(merged([CALLER, (GPU, 0, 100)])).tolist() == [0, 0, 0]


def test_an_event_holds_calls_of_its_thread_after_seconds_too() -> None:
    """Captures have 32-bit thread numbers, which overflow if a thread is combined with times of seconds."""
    later = 3_000_000_000
    line = line_of([(1, 0, 1, 10), (2, 0, 2, later), (GPU, 0, 1, later)])
    line = replace(line, thread=line.thread.astype(np.int32))
    assert line.holding(np.array([3, 5])).tolist() == [False, False, False, True, False, True]
