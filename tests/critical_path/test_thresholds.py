"""Both sides of each threshold of the critical path and its causes: at the value, and one unit beyond it."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.critical_path.graph.skippable_models import unneeded
from pipelines.critical_path.graph.windows import WindowRequest
from tests.harness import call, connect_all, each, kernel, op

from .causes.answered import answers_of_all
from .test_caveats import caveats_of_all, caveats_of_windows, launched

Trace = list[dict[str, Any]]


def handed_over(lasted: float, works: float, stops: float, again: float | None = None) -> Trace:
    """Return thread 1, which pauses for `lasted` us, and thread 2, which works for `works` us in the pause.

    Thread 2 stops `stops` us before the pause ends, and may continue `again` us after it. Thread 3 stopped earlier, so
    it handed over if thread 2 continues too soon.
    """
    end = 100 + lasted
    trace = [op("a", 0, 100), op("worker", end - stops - works, works, tid=2), op("b", end, 1000)]
    if again is not None:
        trace += [op("worker", end + again, 10, tid=2), op("other", 101, lasted - stops - 2, tid=3)]
    return trace


# threshold's name[/use]: a trace with a hand-off from the end of event 1 to event 2, and a trace without it
HAND_OFFS = {
    "hand_off_short_ns": (handed_over(2000, 1500, 100), handed_over(2000, 1500, 100.001)),
    "hand_off_gap_ns": (handed_over(20, 15, 2), handed_over(19.999, 15, 2)),
    "hand_off_gap_ns/stops": (handed_over(150, 100, 20), handed_over(150, 100, 20.001)),
    "hand_off_gap_ns/goes on": (handed_over(1000, 600, 50, 20), handed_over(1000, 600, 50, 19.999)),
    "hand_off_right_before": (handed_over(900, 500, 90), handed_over(900, 500, 90.001)),
    "hand_off_working": (handed_over(1000, 500, 10), handed_over(1000, 499.999, 10)),
}


@pytest.mark.slow  # 5 s
def test_hand_offs_on_both_sides() -> None:
    query = "SELECT count(*) FROM critical_path_edges WHERE edge_type = 'THREAD_HAND_OFF' AND (src_event_id, dst_event_id) = (1, 2)"
    traces = [trace for pair in HAND_OFFS.values() for trace in pair]
    counts = [con.execute(query).fetchall()[0][0] for con in each(traces, "critical_path_edges")]
    assert dict(zip(HAND_OFFS, zip(counts[::2], counts[1::2], strict=True), strict=True)) == dict.fromkeys(
        HAND_OFFS, (1, 0)
    )


LAST = [op("aten::mm", 9900, 40), call("cudaLaunchKernel", 9910, 10, 2), kernel("gemm", 9930, 20, 2)]


def first_call(first: float, *others: float) -> Trace:
    return [op("aten::conv", 50, first), *(op("aten::conv", 9000 + 200 * i, us) for i, us in enumerate(others)), *LAST]


def first_launch(us: float) -> Trace:
    """Return the first launch of a kernel's module, and two later launches that take as long."""
    calls = [(100, us, 1, "gemm"), (4000, us, 2, "gemm"), (7000, us, 3, "gemm")]
    return [
        event
        for at, dur, number, name in calls
        for event in (call("cudaLaunchKernel", at, dur, number), kernel(name, at + dur + 5, 20, number))
    ]


def pieces(gap: float) -> Trace:
    """Return two kernels of a trace without host events, `gap` us apart."""
    return [kernel("gemm", 0, 100, 1), kernel("gemm", 100 + gap, 100, 2)]


# threshold's name[/use]: a cause, a trace that has it, and a trace that does not
CAUSES = {
    "queued_gap_ns": ("unknown", pieces(20.001), pieces(20)),
    "first_call_ns": ("initialization", first_call(2000, 90, 90, 90), first_call(1999.999, 90, 90, 90)),
    "first_call_ns/loads": ("initialization", first_launch(2000), first_launch(1999.999)),
    "first_call_times": ("initialization", first_call(3000, 150, 150, 150), first_call(2999.999, 150, 150, 150)),
}


@pytest.mark.slow  # 6 s
def test_causes_on_both_sides() -> None:
    whys = answers_of_all(trace for _, *pair in CAUSES.values() for trace in pair)
    has = [{row["cause"] for row in why.rows} for why in whys]
    for place, (name, (cause, *_)) in enumerate(CAUSES.items()):
        assert [cause in causes for causes in has[2 * place : 2 * place + 2]] == [True, False], name


def queue(work: int, slow: int, us: float) -> Trace:
    calls = [call("cudaLaunchKernel", 100 * i, us if i < slow else 5, i + 1) for i in range(work)]
    return [*calls, *(kernel("gemm", 100 * i + 60, 20, i + 1) for i in range(work))]


# threshold's name: a trace whose queue may be full, and a trace whose queue is not
QUEUES = {
    "full_queue_work": (queue(100, 20, 50), queue(99, 20, 50)),
    "full_queue_slow_launches": (queue(120, 8, 50), queue(120, 7, 50)),
    "slow_launch_ns": (queue(120, 8, 20.001), queue(120, 8, 20)),
}


@pytest.mark.slow  # 2 s
def test_queues_on_both_sides() -> None:
    con, ids = connect_all(trace for pair in QUEUES.values() for trace in pair)
    may = ["_queue_waits" not in unneeded(con, WindowRequest(trace_id), {}) for trace_id in ids]
    assert dict(zip(QUEUES, zip(may[::2], may[1::2], strict=True), strict=True)) == dict.fromkeys(QUEUES, (True, False))


def idle(length: float, gap: float = 2000) -> Trace:
    """Return a trace with a path of this length and a gap in which nothing runs, in us."""
    return [*launched("gemm", 10, 20, length - gap - 110, 1), *launched("gemm", 20, length - 90, 100, 2)]


def communicates(length: float, us: float) -> Trace:
    return [op("slow", 0, length), *launched("ncclDevKernel_AllReduce", 10, 100, us, 1, stream=20)]


def covers(us: float) -> Trace:
    """Return a trace with a path of `us` in a window of 1 ms if gaps weigh nothing."""
    return [op("a", 0, us - 100), op("b", 900, 100)]


# threshold's name[/use]: the caveat, and two traces by its severity; None if the caveat is absent
CAVEATS = {
    "idle_gap_ns": ("idle_gaps", {"warning": idle(5000, 1000.001), None: idle(5000, 1000)}),
    "beside_percent": ("idle_gaps", {"info": idle(199_999.999), None: idle(200_000)}),
    "beside_warning_percent": ("idle_gaps", {"warning": idle(19_999.999), "info": idle(20_000)}),
    "beside_percent/communicates": (
        "only_communication", {"info": communicates(999.999, 10), None: communicates(1000, 10)}
    ),
    "beside_warning_percent/communicates": (
        "only_communication", {"warning": communicates(999.999, 100), "info": communicates(1000, 100)}
    ),
    "coverage_percent": ("coverage", {"info": covers(799.999), None: covers(800)}),
    "coverage_warning_percent": ("coverage", {"warning": covers(499.999), "info": covers(500)}),
}  # fmt: skip


@pytest.mark.slow  # 6 s
@pytest.mark.parametrize("covers_window", ["true", "false"])
def test_caveats_on_both_sides(covers_window: str) -> None:
    these = {name: row for name, row in CAVEATS.items() if (row[0] == "coverage") == (covers_window == "false")}
    traces = [trace for _, by_severity in these.values() for trace in by_severity.values()]
    all_caveats = iter(caveats_of_all(*traces, covers_window=covers_window))
    for name, (caveat, by_severity) in these.items():
        severities = [next(all_caveats).get(caveat, {}).get("severity") for _ in by_severity]
        assert severities == [*by_severity], name


PAST = {"past_window_percent": (10.001, 10)}


@pytest.mark.slow  # 5 s
def test_work_past_the_window_on_both_sides() -> None:
    step = {"ph": "X", "cat": "user_annotation", "name": "step", "pid": 100, "tid": 1, "ts": 0, "dur": 1000, "args": {}}
    has_caveat = []
    for past in PAST["past_window_percent"]:
        (caveats,) = caveats_of_windows([step, op("a", 0, 1000), *launched("gemm", 10, 20, 980 + past, 1)], "step")
        has_caveat.append("runs_past_window" in caveats)
    assert has_caveat == [True, False]


BOUNDARIES = (HAND_OFFS, CAUSES, QUEUES, CAVEATS, PAST)
