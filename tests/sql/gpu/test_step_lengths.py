"""The length of a profiler step: from the end of the event that bound the step before to its own last end."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, count, pairwise
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.models.catalog import load_catalog
from tests.harness import call, each, kernel, memory, op, rows_of, x

_CORRELATIONS = count(1)


def step(number: int, start: float, length: float, tid: int = 1) -> dict:
    return x("user_annotation", f"ProfilerStep#{number}", start, length, tid)


def work(launched: float, start: float, length: float, stream: int = 7, device: int = 0, tid: int = 1) -> list[dict]:
    """Return GPU work and the call that launched it."""
    number = next(_CORRELATIONS)
    return [call("cudaLaunchKernel", launched, 1, number, tid), kernel("gemm", start, length, number, stream, device)]


def unlaunched(start: float, length: float, stream: int = 7) -> dict:
    return kernel("gemm", start, length, next(_CORRELATIONS), stream)


AHEAD = [step(1, 0, 10), step(2, 10, 10), step(3, 20, 10)]
"""Annotations of a host that has launched everything within 30 us."""

CASES: dict[str, tuple[list[dict], list[tuple[int, float, float, float]]]] = {
    # expected (step, start, length, length on the host), us
    "without GPU work, the host's": ([step(1, 0, 10), step(2, 10, 15)], [(1, 0, 10, 10), (2, 10, 15, 15)]),
    "time between annotations is the later step's": (
        [step(1, 0, 10), op("eval", 12, 3), step(2, 20, 15)],
        [(1, 0, 10, 10), (2, 10, 25, 15)],
    ),
    "the host runs ahead": (
        [*AHEAD, *work(2, 5, 100), *work(12, 105, 100), *work(22, 205, 90), x("user_annotation", "closing", 30, 270)],
        [(1, 0, 105, 10), (2, 105, 100, 10), (3, 205, 90, 10)],
    ),
    "the host is behind": (
        [step(1, 0, 50), *work(2, 5, 10), step(2, 50, 40), *work(52, 55, 10)],
        [(1, 0, 50, 50), (2, 50, 40, 40)],
    ),
    "work that other threads launch meanwhile": (
        [*AHEAD, *work(2, 5, 40, tid=2), *work(12, 45, 40), *work(25, 85, 40, tid=3)],
        [(1, 0, 45, 10), (2, 45, 40, 10), (3, 85, 40, 10)],
    ),
    "all GPUs and streams": (
        [*AHEAD, *work(2, 5, 40), *work(3, 6, 60, device=1), *work(12, 70, 20, stream=9), *work(22, 95, 20, device=1)],
        [(1, 0, 66, 10), (2, 66, 24, 10), (3, 90, 25, 10)],
    ),
    "what is launched between annotations is the later step's": (
        [step(1, 0, 10), *work(2, 5, 20), *work(12, 30, 50), step(2, 20, 10), *work(22, 80, 15)],
        [(1, 0, 25, 10), (2, 25, 70, 10)],
    ),
    "what is launched after the last is no step's": (
        [step(1, 0, 10), *work(2, 5, 20), *work(40, 45, 500)],
        [(1, 0, 25, 10)],
    ),
    "the first begins when work that was launched earlier ends": (
        [*work(0, 5, 30), step(1, 10, 10), *work(12, 35, 20)],
        [(1, 35, 20, 10)],
    ),
    "unless that outlasts it": ([*work(0, 5, 100, stream=9), step(1, 10, 10), *work(12, 35, 20)], [(1, 10, 45, 10)]),
    "work from before the trace is before the first launch of its stream": (
        [unlaunched(0, 30), step(1, 10, 10), unlaunched(30, 30), *work(12, 60, 20), step(2, 20, 10), *work(22, 80, 20)],
        [(1, 60, 20, 10), (2, 80, 20, 10)],
    ),
    "work without a launch follows its stream": (
        [*AHEAD, *work(2, 5, 40), unlaunched(45, 40), *work(12, 85, 40), *work(22, 125, 40)],
        [(1, 0, 85, 10), (2, 85, 40, 10), (3, 125, 40, 10)],
    ),
    "a stream that nothing is known to launch on has its own time": (
        [step(1, 0, 100), unlaunched(10, 95), step(2, 100, 100), unlaunched(110, 100)],
        [(1, 0, 105, 100), (2, 105, 105, 100)],
    ),
    "a stream whose first launches are lost, too": (
        [step(1, 0, 100), unlaunched(10, 20), step(2, 100, 100), *work(102, 110, 20)],
        [(1, 0, 100, 100), (2, 100, 100, 100)],
    ),
    "where a step is missing, the next begins with its annotation": (
        [step(1, 0, 10), *work(2, 5, 20), step(4, 100, 10), *work(102, 105, 20)],
        [(1, 0, 25, 10), (4, 100, 25, 10)],
    ),
    "or when work that was launched before it ends": (
        [step(1, 0, 10), *work(2, 5, 20), *work(30, 40, 70), step(4, 100, 10), *work(102, 110, 20)],
        [(1, 0, 25, 10), (4, 110, 20, 10)],
    ),
    "on two threads it is one step": (
        [step(1, 0, 10), step(1, 5, 10, tid=2), step(2, 16, 10), step(2, 15, 10, tid=2)],
        [(1, 0, 15, 15), (2, 15, 11, 11)],
    ),
    "annotations that overlap follow each other in the order of their ends": (
        [step(1, 0, 20), *work(15, 16, 30), step(2, 10, 20, tid=2), *work(25, 46, 30)],
        [(1, 0, 46, 20), (2, 46, 30, 20)],
    ),
    "one inside another, too": ([step(1, 0, 100), step(2, 20, 20)], [(1, 40, 60, 100), (2, 0, 40, 20)]),
    "no step ends before the one before it": (
        [*AHEAD, *work(2, 5, 100, stream=9), *work(12, 15, 20), *work(22, 35, 80)],
        [(1, 0, 105, 10), (2, 105, 0, 10), (3, 105, 10, 10)],
    ),
    "a trace without steps has none": ([op("mm", 0, 10), *work(2, 5, 20)], []),
}


@pytest.mark.slow  # 6 s
def test_each_rule() -> None:
    traces = [events for events, _ in CASES.values()]
    query = (
        "SELECT step, (start_ns - (SELECT min(start_ns) FROM events)) / 1000, duration_ns / 1000, host_ns / 1000 "
        "FROM step_lengths ORDER BY step"
    )
    measured = [con.execute(query).fetchall() for con in each(traces, "step_lengths", "events")]
    begins = [min(event["ts"] for event in events) for events in traces]
    steps = [
        [(n, at + begin, *lengths) for n, at, *lengths in rows] for rows, begin in zip(measured, begins, strict=True)
    ]
    assert dict(zip(CASES, steps, strict=True)) == {name: expected for name, (_, expected) in CASES.items()}


def test_a_step_whose_start_cannot_be_read_is_no_step_of_length_0() -> None:
    """A step whose start cannot be read has no row. A step of length 0 that starts at a known time is kept."""
    events = [step(1, 0, 10), step(2, 10, 15), {**step(3, 25, 10), "ts": "garbled"}, step(4, 40, 0)]
    assert rows_of(events, "step_lengths", "step, duration_ns, host_ns") == [
        (1, 10_000, 10_000),
        (2, 15_000, 15_000),
        (4, 0, 0),
    ]


class Launched(NamedTuple):
    """Work of a stream: its launch, start and end in ns."""

    at: int
    start: int
    end: int
    stream: int


def lengths_of(
    annotations: Sequence[tuple[int, int]], launched: Sequence[Launched] = ()
) -> list[tuple[int, int, float | None]]:
    """Return (start, end, factor) of steps whose annotations start and end at these times, computed by the models only.

    `factor`: how many times as long as later steps a warm-up step is, None for other steps.
    """
    con = memory()
    con.execute(
        "CREATE TABLE profiler_steps (trace_id VARCHAR, step BIGINT, start_ns BIGINT, end_ns BIGINT, duration_ns BIGINT);"
        "CREATE TABLE kernels (trace_id VARCHAR, event_id BIGINT, device BIGINT, stream BIGINT, start_ns BIGINT, end_ns BIGINT, "
        "launch_event_id BIGINT); CREATE TABLE events (trace_id VARCHAR, event_id BIGINT, start_ns BIGINT)"
    )
    for number, (start, end) in enumerate(annotations):
        con.execute(f"INSERT INTO profiler_steps VALUES ('t', {number}, {start}, {end}, {end - start})")
    for number, gpu_work in enumerate(launched):
        con.execute(
            f"INSERT INTO kernels VALUES ('t', {number}, 0, {gpu_work.stream}, {gpu_work.start}, {gpu_work.end}, {1000 + number})"
        )
        con.execute(f"INSERT INTO events VALUES ('t', {1000 + number}, {gpu_work.at})")
    for model in ("_step_marks", "_step_work", "step_lengths"):
        con.execute(f"CREATE TABLE {model} AS {load_catalog().models[model].sql}")
    return con.execute("SELECT start_ns, end_ns, warm_up_times FROM step_lengths ORDER BY step").fetchall()


@pytest.mark.parametrize(("copy_ns", "start"), [(None, 35), (54, 54), (55, 35), (106, 35)])
def test_work_that_outlasts_the_first_step_hides_no_other(copy_ns: int | None, start: int) -> None:
    """Earlier work that outlasts the first step does not hide other earlier work.

    A kernel launched before the step ends at 35, a copy on another stream at `copy_ns`. The step itself ends at 55.
    """
    launched = [Launched(0, 5, 35, 7), *([Launched(1, 6, copy_ns, 9)] if copy_ns else []), Launched(12, 35, 55, 7)]
    assert [bounds[:2] for bounds in lengths_of([(10, 20)], launched)] == [(start, 55)]


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 40)), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 250), st.integers(0, 60), st.integers(0, 90), st.integers(1, 3)), max_size=12),
)
def test_steps_follow_each_other(gaps: list[tuple[int, int]], timed: list[tuple[int, int, int, int]]) -> None:
    """The steps match the rule: a step lasts until its annotation and all work launched in it have ended."""
    annotations, at = [], 0
    for gap, length in gaps:
        annotations.append((at + gap, at + gap + length))
        at += gap + length
    first = annotations[0][0]
    launched = [
        Launched(first + at, first + at + wait, first + at + wait + length, on) for at, wait, length, on in timed
    ]
    ends, begin = [], first
    for _, end in annotations:
        ends.append(max([end, *ends[-1:], *(gpu_work.end for gpu_work in launched if begin <= gpu_work.at < end)]))
        begin = end
    rows = lengths_of(annotations, launched)
    assert [end for _, end, _ in rows] == ends
    assert [start for start, _, _ in rows] == [first, *ends[:-1]]


def flags(*lengths: int) -> list[bool]:
    """Return, for steps of the given lengths, whether each is a warm-up step."""
    ends = [0, *accumulate(lengths)]
    return [times is not None for _, _, times in lengths_of([*pairwise(ends)])]


@pytest.mark.parametrize(
    ("lengths", "n_warm_up"),
    [
        ((100, 100, 100), 0),
        ((200, 100, 100), 0),  # threshold compare_warm_up: twice
        ((201, 100, 100), 1),
        ((900, 300, 100, 110, 90), 2),
        ((35, 72, 95, 95, 95), 0),  # short steps are not warm-up steps
        ((100, 900, 100, 100), 0),  # neither is a slow step later
        ((900, 100, 100), 1),
        ((900, 100), 0),  # threshold compare_warm_up_steps: one step does not show the usual length
        ((900,), 0),
    ],
)
def test_warm_up(lengths: tuple[int, ...], n_warm_up: int) -> None:
    assert flags(*lengths) == [place < n_warm_up for place in range(len(lengths))]


def test_how_many_times_as_long_as_later_ones() -> None:
    assert [times for *_, times in lengths_of([(0, 900), (900, 1200), (1200, 1300), (1300, 1400)])] == [
        9,
        3,
        None,
        None,
    ]


BOUNDARIES = {
    "compare_warm_up": (lambda us: flags(us, 1000, 1000)[0], 2001, 2000),
    "compare_warm_up_steps": (lambda n: flags(9000, *[1000] * (n - 1))[0], 3, 2),
}


@pytest.mark.parametrize("name", BOUNDARIES)
def test_both_sides_of_thresholds(name: str) -> None:
    decide, holds, does_not = BOUNDARIES[name]
    assert (decide(holds), decide(does_not)) == (True, False)
