"""Both sides of each threshold that separates waits from other gaps: at the value, and one unit beyond it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.critical_path.test_covers import frame
from tests.critical_path.test_full_queue import launches
from tests.critical_path.test_polls import KERNEL, polls
from tests.harness import call, connect_all, create_step, each, kernel, op

Trace = list[dict[str, Any]]


def asks(ends: float, *at: float, last: float = 1) -> Trace:
    """Return a kernel that ends at `ends`, an event after it, and calls that query the event.

    The calls take 1 us each, and the last one `last`.
    """
    calls = [call("cudaEventQuery", us, 1, 100 + i) for i, us in enumerate(at)]
    calls[-1]["dur"] = last
    return [
        *(call("cudaLaunchKernel", 10, 5, 1), kernel("gemm", 20, ends - 20, 1), call("cudaEventRecord", 16, 2, 2)),
        *calls,
    ]


def earlier(first: float, *at: float) -> Trace:
    """Return a loop that waits for a kernel that ends at 500 us, although another event was recorded later."""
    trace = asks(500, first, *at)
    later = [call("cudaLaunchKernel", 20, 5, 3), kernel("later", 501, 400, 3), call("cudaEventRecord", 26, 2, 4)]
    return [*trace[:3], *later, *trace[3:]]


def mostly_asks(other: float) -> Trace:
    """Return a loop of 34 us that waits, and a loop of `other` us that does not."""
    return [
        *asks(500, 470),
        *polls(473, 504),
        op("a", 600, 1),
        *polls(700, 730),
        call("cudaEventQuery", 732, other - 32, 9),
    ]


# threshold's name[/use]: a trace with a loop that waited, and a trace without
POLLS = {
    "poll_pause_ns": (asks(4000, 30, 2031, 4032), asks(4000, 30, 2031, 4032.001)),
    "poll_pause_of_two_ns": (asks(410, 400, 451), asks(410, 400, 451.001)),
    "polls_of_two_ns": (asks(410, 400, 419.001), asks(410, 400, 419)),
    "long_loop_polls": (earlier(*range(363, 504, 20)), earlier(*range(383, 504, 20))),
    "long_loop_ns": (earlier(404, *range(419, 504, 14)), earlier(404.001, *range(419, 504, 14))),
    "poll_waiting_percent": (mostly_asks(34), mostly_asks(34.001)),
}


@pytest.mark.slow  # 4 s
def test_loops_on_both_sides() -> None:
    query = f"SELECT count(DISTINCT last_event_id) FROM _poll_loops WHERE has_waited AND source_event_id = {KERNEL}"
    traces = [trace for pair in POLLS.values() for trace in pair]
    counts = [con.execute(query).fetchall()[0][0] for con in each(traces, "_profiles", "_poll_loops")]
    assert dict(zip(POLLS, zip(counts[::2], counts[1::2], strict=True), strict=True)) == dict.fromkeys(POLLS, (1, 0))


def deeper(launched_earlier: int) -> Trace:
    """Return a full queue in which one call begins `launched_earlier` kernels earlier.

    The queue is then deeper by as many launches.
    """
    trace = launches(200, 120)
    us = 51 * launched_earlier
    moved = trace[2 * 180]
    return [*trace[: 2 * 180], {**moved, "ts": moved["ts"] - us, "dur": moved["dur"] + us}, *trace[2 * 180 + 1 :]]


def later(n: int) -> Trace:
    """Return a full queue that held up 100 calls, of which `n` return late."""
    return [
        {**event, "dur": event["dur"] + 20} if event["name"] != "k" and i // 2 in range(150, 150 + n) else event
        for i, event in enumerate(launches(236, 120))
    ]


# threshold's name: a trace with a full queue, and a trace without
QUEUES = {
    "queue_return_ns": (launches(200, 120, late=16), launches(200, 120, late=16.001)),
    "queue_return_percent": (
        launches(200, 120, late=26, kernel_us=100), launches(200, 120, late=26.001, kernel_us=100)
    ),
    "queue_return_most_ns": (
        launches(200, 120, late=51, kernel_us=400), launches(200, 120, late=51.001, kernel_us=400)
    ),
    "full_queue_deeper": (deeper(2), deeper(3)),
    "full_queue_percent": (later(10), later(11)),
}  # fmt: skip


@pytest.mark.slow  # 4 s
def test_full_queues_on_both_sides() -> None:
    traces = [trace for pair in QUEUES.values() for trace in pair]
    query = "SELECT count(*) > 0 FROM _queue_waits"
    has_waits = [con.execute(query).fetchall()[0][0] for con in each(traces, "_profiles", "_queue_waits")]
    expected = dict.fromkeys(QUEUES, (True, False))
    assert dict(zip(QUEUES, zip(has_waits[::2], has_waits[1::2], strict=True), strict=True)) == expected


def work(*pieces: tuple[float, float]) -> Trace:
    """Return kernels of 100 us on one stream, each defined by its gap and its latency in us.

    The gap counts from the end of the previous kernel (the first: from 1 ms), and the latency from its launch.
    """
    trace, free = [], 1000.0
    for number, (gap, latency) in enumerate(pieces):
        start = free + gap
        trace += [call("cudaLaunchKernel", start - latency, 2, number + 1), kernel("k", start, 100, number + 1)]
        free = start + 100
    return trace


def graph(latency: float) -> Trace:
    """Return a launch of a graph of two kernels."""
    return [call("cudaGraphLaunch", 10, 5, 1), kernel("a", 10 + latency, 5, 1), kernel("b", 20 + latency, 5, 1)]


FIRST = (0, 5)
"""A first kernel whose latency of 5 us is the device's shortest. The shortest gap is 1 us after a piece (1, …)."""
# threshold's name[/use]: a figure of a device, and a pair (trace, value) on each side
FLOORS = {
    "launch_floor_ns": ("launch_ns", (work((0, 20)), 20_000), (work((0, 20.001)), 5000)),
    "graph_floor_ns": ("launch_ns", (graph(100), 100_000), (graph(100.001), 5000)),
    "launch_usual_ns": ("launch_ns", (work((0, 30)), 5000), (work((0, 4.999)), 4999)),
    "gap_floor_ns": ("gap_ns", (work(FIRST, (2, 60)), 2000), (work(FIRST, (2.001, 60)), 1000)),
    "gap_usual_ns": ("gap_ns", (work(FIRST), 1000), (work(FIRST, (0.999, 60)), 999)),
    "surely_held_up_ns": (
        "launch_spread_ns", (work(FIRST, (1, 60), (51.001, 15)), 10_000), (work(FIRST, (1, 60), (51, 15)), 3000)
    ),
    "surely_held_up_ns/gaps": (
        "gap_spread_ns", (work(FIRST, (1, 20), (4, 55.001)), 3000), (work(FIRST, (1, 20), (4, 55)), 1000)
    ),
    "launch_spread_most_ns": (
        "launch_spread_ns", (work(FIRST, (1, 60), (80, 25)), 20_000), (work(FIRST, (1, 60), (80, 25.001)), 3000)
    ),
    "launch_spread_usual_ns": ("launch_spread_ns", (work(FIRST), 3000), (work(FIRST, (1, 60), (80, 7.999)), 2999)),
    "launch_spread_least_ns": (
        "launch_spread_ns", (work(FIRST, (1, 60), (80, 5.999)), 1000), (work(FIRST, (1, 60), (80, 6.001)), 1001)
    ),
    "gap_spread_most_ns": (
        "gap_spread_ns", (work(FIRST, (1, 20), (6, 60)), 5000), (work(FIRST, (1, 20), (6.001, 60)), 1000)
    ),
    "gap_spread_usual_ns": ("gap_spread_ns", (work(FIRST), 1000), (work(FIRST, (1, 20), (1.999, 60)), 999)),
    "gap_spread_least_ns": (
        "gap_spread_ns", (work(FIRST, (1, 20), (1.199, 60)), 200), (work(FIRST, (1, 20), (1.201, 60)), 201)
    ),
}  # fmt: skip


@pytest.mark.slow  # 4 s
def test_what_devices_take_on_both_sides() -> None:
    con, traces = connect_all(trace for _, *pair in FLOORS.values() for trace, _ in pair)
    create_step(con, "_gpu_claims", "device_floors")
    ids = iter(traces)
    for name, (column, *pair) in FLOORS.items():
        query = f"SELECT trace_id, {column} FROM device_floors JOIN _profiles USING (trace_profile_id)"
        by_trace = dict(con.execute(query).fetchall())
        assert [by_trace[next(ids)] for _ in pair] == [value for _, value in pair], name


# threshold's name: a trace whose last kernel follows the work before it, and a trace whose launch held it up
FOLLOWS = {
    "launched_before_spreads": (work(FIRST, (10, 27.001)), work(FIRST, (10, 27))),
    "launched_before_most_ns": (
        work(FIRST, (1, 60), (80, 11), (10, 35.001)), work(FIRST, (1, 60), (80, 11), (10, 35))
    ),
}  # fmt: skip


@pytest.mark.slow  # 3 s
def test_what_was_launched_before_on_both_sides() -> None:
    traces = [trace for pair in FOLLOWS.values() for trace in pair]
    con, trace_ids = connect_all(traces)
    create_step(con, "_gpu_claims", "bound_work")
    query = "SELECT trace_id, arg_max(b.bound_by, b.start_ns) FROM bound_work AS b JOIN _asked_windows USING (window_no) GROUP BY ALL"
    bound_by = dict(con.execute(query).fetchall())
    assert [bound_by[trace_id] for trace_id in trace_ids] == ["last", "launch"] * len(FOLLOWS)


def waits(returns: float) -> Trace:
    """Return the only call of its window, which returns `returns` us after the awaited work."""
    return [
        *(call("cudaLaunchKernel", 0, 5, 1), kernel("k", 10, 100, 1)),
        *(call("cudaDeviceSynchronize", 20, 90 + returns, 2), op("b", 300, 10)),
    ]


# threshold's name: the time that a call needs without a wait, by how late it returns
NEEDS = {"call_usual_ns": {2: 3000}, "call_own_ns": {50: 3000, 50.001: 50_001}}


@pytest.mark.slow  # 4 s
def test_what_calls_need_on_both_sides() -> None:
    con, traces = connect_all(waits(late) for by_return in NEEDS.values() for late in by_return)
    create_step(con, "_call_claims", "bound_calls")
    query = "SELECT trace_id, need_ns FROM bound_calls JOIN _asked_windows USING (window_no)"
    needs = [need for by_return in NEEDS.values() for need in by_return.values()]
    assert dict(con.execute(query).fetchall()) == dict(zip(traces, needs, strict=True))


RETURNS = {"call_return_usual_ns": 2000}


@pytest.mark.slow  # 2 s: tests/critical_path/test_covers.py
def test_what_a_call_claims_that_found_the_work_done() -> None:
    trace = [*waits(0)[:2], call("cudaDeviceSynchronize", 200, 30, 2), op("b", 300, 10)]
    (con,) = each([trace], "critical_path_edges", "critical_path_windows")
    query = "SELECT path_weight_ns FROM critical_path_edges WHERE (src_event_id, dst_event_id) = (1, 2)"
    assert con.execute(query).fetchall() == [(RETURNS["call_return_usual_ns"],)]


# threshold's name: the length of a frame that may own host time, and of a frame that may not
FRAMES = {"frame_ns": (10, 9.999)}


@pytest.mark.slow  # 1 s
def test_frames_on_both_sides() -> None:
    traces = [[op("a", 0, 100), frame("f", 110, us), op("b", 200, 100)] for us in FRAMES["frame_ns"]]
    query = "SELECT count(*) FROM _clip WHERE event_id = 1"
    counts = [con.execute(query).fetchall() for con in each(traces, "_clip", "critical_path_windows")]
    assert counts == [[(1,)], [(0,)]]


BOUNDARIES = (POLLS, QUEUES, FLOORS, FOLLOWS, NEEDS, RETURNS, FRAMES)
