"""The rule of the default path, each part of it on a trace that can be added up by hand.

The path covers the window, and every interval of it has an owner. `test_invariants.py` asserts the rule itself for
every trace.
"""

from __future__ import annotations

from typing import Any

import duckdb
import pytest

from pipelines.critical_path.graph import hand_offs
from tests.batch import Batch
from tests.harness import call, each, kernel, op, sync, x

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def frame(name: str, ts: float, dur: float, tid: Any = 1) -> dict[str, Any]:
    return x("python_function", name, ts, dur, tid)


Path = list[tuple[str, float, str]]
"""Owner, microseconds and label of each edge that takes time."""
TABLES = ["critical_path", "critical_path_edges", "critical_path_windows"]


TRACES = Batch(*TABLES, "_kernel_nodes", "_clip", "streams", steps_of="_gpu_claims")
"""The traces of all tests of this file."""


def path_in(con: duckdb.DuckDBPyConnection) -> Path:
    rows = con.execute(
        "SELECT owner, duration_ns / 1000, bound_by FROM critical_path WHERE duration_ns > 0 ORDER BY seq"
    ).fetchall()
    query = "SELECT (path_end_ns - path_start_ns) / 1000 FROM critical_path_windows"
    ((length,),) = con.execute(query).fetchall()
    assert sum(us for _, us, _ in rows) == length
    return rows


def owners_in(path: Path) -> list[tuple[str, float]]:
    """Return owners and microseconds, without labels."""
    return [(owner, us) for owner, us, _ in path]


def owners(name: str) -> list[tuple[str, float]]:
    return owners_in(path_in(TRACES.show(name)))


TRACES.add(
    "gaps",
    [
        x("user_annotation", "ProfilerStep#1", 0, 1000),
        x("user_annotation", LOADER, 100, 200),
        *(frame("data.py(5): read", 150, 100), op("aten::a", 400, 50)),
        *(frame("data.py(9): normalize", 500, 200), frame("<built-in function zoom_shift>", 550, 100)),
        op("aten::b", 800, 150),
    ],
)


def test_a_gap_belongs_to_what_spans_it() -> None:
    """A gap's owner is the annotation, or the user's function around a library's function.

    The step is the owner if it contains nothing else.
    """
    assert path_in(TRACES.show("gaps")) == [
        ("ProfilerStep#1", 100, "host_gap"),
        *((LOADER, us, "host_gap") for us in (50, 100, 50)),
        ("ProfilerStep#1", 100, "host_gap"),
        ("aten::a", 50, "cpu_bound"),
        ("ProfilerStep#1", 50, "host_gap"),
        *(("data.py(9): normalize", us, "host_gap") for us in (50, 100, 50)),
        ("ProfilerStep#1", 100, "host_gap"),
        ("aten::b", 150, "cpu_bound"),
        ("ProfilerStep#1", 50, "host_gap"),
    ]


TRACES.add(
    "open before the step",
    [
        *(x("user_annotation", "ProfilerStep#1", 100, 500), op("aten::a", 100, 20)),
        *(op("aten::before", 10, 20, tid=2), x("user_annotation", "prefetch", 40, 400, 2)),
        frame("queue.py(7): fill", 60, 300, 2),
        *(call("cudaLaunchKernel", 480, 2, 1, tid=2), kernel("gemm", 485, 100, 1)),
        call("cudaDeviceSynchronize", 500, 90, 9),
    ],
    "ProfilerStep#1",
)


def test_what_began_before_the_window_spans_its_gaps() -> None:
    """When the step begins, a function is open on another thread, inside an annotation.

    After the function has ended, the time there belongs to the annotation.
    """
    path = path_in(TRACES.show("open before the step"))
    gaps = [(owner, us) for owner, us, label in path if label == "host_gap"]
    assert gaps[1:3] == [("prefetch", 80), ("outside operators, thread 2", 40)]


TRACES.add(
    "leaves",
    [
        op("a", 0, 10),
        frame("train.py(3): fit", 5, 400),
        frame("<built-in method get>", 50, 300),
        op("b", 500, 10),
    ],
)


def test_rows_keep_the_leaf() -> None:
    rows = TRACES.show("leaves").execute(
        "SELECT name, owner, duration_ns / 1000 FROM critical_path WHERE edge_type = 'HOST_GAP' ORDER BY seq"
    )
    assert [row for row in rows.fetchall() if row[0]] == [
        ("train.py(3): fit", "train.py(3): fit", 40),
        ("<built-in method get>", "train.py(3): fit", 300),
        ("train.py(3): fit", "train.py(3): fit", 55),
    ]


TRACES.add(
    "processes",
    [*(x("cpu_op", name, ts, 100, 1, pid) for name, ts, pid in (("a", 0, 100), ("b", 50, 200), ("c", 300, 100)))],
)


def test_a_thread_is_named_after_its_process_where_another_has_its_number() -> None:
    assert owners("processes") == [("a", 100), ("outside operators, thread 1, process 100", 200), ("c", 100)]


BACKWARD = "autograd::engine::evaluate_function: MmBackward0"


def launch(number: int, ts: float, tid: Any = 1) -> list[dict[str, Any]]:
    return [call("cudaLaunchKernel", ts, 2, number, tid=tid), kernel("tiny", ts + 5, 1, number)]


def step_of_autograd(ts: int) -> list[dict[str, Any]]:
    return [
        *(op("aten::forward", ts, 200), *launch(1 + ts, ts + 10)),
        *(op(BACKWARD, ts + 230, 300, tid=2), *launch(2 + ts, ts + 240, tid=2)),
        *(op("aten::optimizer", ts + 550, 250), *launch(3 + ts, ts + 600)),
    ]


TRACES.add("autograd", step_of_autograd(0) + step_of_autograd(1000))


def test_autograds_threads_hand_over_both_ways() -> None:
    """The operators' names identify the hand-offs, so nothing is inferred.

    Between two passes, the idle thread owns nothing.
    """
    con = TRACES.show("autograd")
    times = owners_in(path_in(con))
    assert [(who, us) for who, us in times if us >= 100 and who.startswith("outside")] == [
        ("outside operators, thread 1", 200)
    ]
    assert [us for who, us in times if who.startswith("hand-off")] == [30, 20, 30, 20]
    query = "SELECT DISTINCT is_inferred FROM critical_path_edges WHERE edge_type = 'THREAD_HAND_OFF'"
    assert con.execute(query).fetchall() == [(False,)]


TRACES.add("another thread works", [op("a", 0, 100), op("worker", 110, 480, tid=2), op("b", 600, 100)])


def test_what_another_thread_does_and_then_stops_is_inferred() -> None:
    con = TRACES.show("another thread works")
    assert owners_in(path_in(con)) == [
        ("a", 100),
        ("hand-off, thread 2", 10),
        ("worker", 480),
        ("hand-off, thread 1", 10),
        ("b", 100),
    ]
    rows = con.execute("SELECT is_inferred FROM critical_path WHERE edge_type = 'THREAD_HAND_OFF'").fetchall()
    assert rows == [(True,), (True,)]


TRACES.add(
    "cudaFree twice",
    [
        *launch(1, 10),
        op("a", 30, 60),
        call("cudaFree", 100, 80, 2),
        call("cudaFree", 200, 30, 3),
        op("b", 240, 9),
    ],
)


def test_a_call_that_found_the_work_done_takes_its_own_time_after_it() -> None:
    """The time of cudaFree after the awaited work is its own, because it then frees memory.

    A short time after the work may be only the return from the wait.
    """
    con = TRACES.show("cudaFree twice")
    query = "SELECT dst_event_id, edge_type, path_weight_ns FROM critical_path_edges WHERE src_event_id = 1 AND is_inferred ORDER BY ALL"
    assert con.execute(query).fetchall() == [(3, "OPERATOR_KERNEL", 80_000), (4, "SYNC_DEPENDENCY", 2000)]


STOPS = [op("a", 0, 100), op("worker", 110, 470, tid=2), op("b", 600, 100), op("c", 110, 480, tid=3)]
TRACES.add("another thread stops", STOPS)
TRACES.add("another thread pauses", [*STOPS, op("d", 605, 30, tid=3)])


def test_a_thread_that_only_pauses_is_rather_not_what_was_waited_for() -> None:
    """The pausing thread stops last but soon continues, so the thread that stopped before it for good handed over."""
    assert owners("another thread pauses") == [
        ("a", 100),
        ("hand-off, thread 2", 10),
        ("worker", 470),
        ("hand-off, thread 1", 20),
        ("b", 100),
    ]
    assert ("c", 480) in owners("another thread stops")


WORKS = [op("b", 200, 100, tid=2), *launch(2, 210, tid=2)]
TRACES.add("a logger stops last", [op("a", 0, 150), *launch(1, 10), op("log", 160, 30, tid=3), *WORKS])
TRACES.add("only a logger stops", [op("log", 0, 150, tid=3), *WORKS])


def test_a_thread_that_works_begins_after_one_that_works() -> None:
    """Thread 3 only logs. That it was active last does not mean that it started thread 2, which launches work."""
    assert ("hand-off, thread 2", 50) in owners("a logger stops last")
    assert owners("only a logger stops")[:2] == [("log", 150), ("hand-off, thread 2", 50)]


@pytest.mark.slow  # 4 s
def test_many_threads_cost_no_more_each_than_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that stopped last is identified among any number of threads.

    Only a limited number of the other threads is examined.
    """
    threads, asked = 200, []
    trace = [op("a", 0, 50), op("b", 100_000, 100)]
    for tid in range(2, threads):
        trace += [op("c", 50 * tid + j * 20_000, 10, tid=tid) for j in range(4)]
    trace.append(op("worker", 60, 99_930, tid=threads))
    infer = hand_offs._infer

    def counted(*arguments: Any) -> None:
        asked.append(len(arguments[2]))
        infer(*arguments)

    monkeypatch.setattr(hand_offs, "_infer", counted)
    (con,) = each([trace], *TABLES)
    assert owners_in(path_in(con)) == [
        ("a", 50),
        (f"hand-off, thread {threads}", 10),
        ("worker", 99_930),
        ("hand-off, thread 1", 10),
        ("b", 100),
    ]
    gaps = len(trace) - threads
    assert threads < sum(asked) <= hand_offs._NEAR * gaps


COINCIDENCES = {
    "it stopped long before": (110, 100),
    "it worked for less than half of the time": (400, 190),
    "it goes on": (110, 900),
}
TRACES.add_all(
    (why, [op("a", 0, 100), op("worker", start, dur, tid=2), op("b", 600, 500)])
    for why, (start, dur) in COINCIDENCES.items()
)


def test_a_coincidence_is_no_hand_off() -> None:
    for why in COINCIDENCES:
        assert ("outside operators, thread 1", 500) in owners(why), why


def goes_on(name: str) -> list[dict[str, Any]]:
    return [op(name, 120, 180, tid=2), op(name, 400, 900, tid=2)]


TRACES.add(
    "a wait beside a worker",
    [op("a", 0, 100), frame("threading.py(320): wait", 100, 490), op("b", 600, 1000), *goes_on("worker")],
)
TRACES.add(
    "a pause beside autograd",
    [
        *(op("aten::forward", 0, 100), *launch(1, 10), op("aten::optimizer", 600, 1000), *launch(2, 610)),
        *(*goes_on(BACKWARD), *launch(3, 410, tid=2)),
    ],
)


def test_a_wait_beside_a_thread_that_goes_on_is_not_for_what_it_did_before() -> None:
    for name in ("a wait beside a worker", "a pause beside autograd"):
        assert "hand-off, thread 1" not in dict(owners(name))


TRACES.add(
    "arrows",
    [
        *(op("aten::forward", 0, 200), *launch(1, 10), op("aten::optimizer", 600, 200), *launch(2, 610)),
        *(op("aten::other", 0, 215, tid=3), *launch(3, 20, tid=3), *launch(4, 700, tid=3)),
        *(op(BACKWARD, 230, 300, tid=2), *launch(5, 240, tid=2)),
        {"ph": "s", "id": 1, "pid": 100, "tid": 1, "ts": 1, "cat": "fwdbwd", "name": "fwdbwd"},
        {"ph": "f", "id": 1, "pid": 100, "tid": 2, "ts": 231, "cat": "fwdbwd", "name": "fwdbwd", "bp": "e"},
    ],
)


def test_autograd_works_for_the_thread_that_its_arrows_come_from() -> None:
    """Autograd's thread works for the thread from which its arrows start.

    Another thread also launches work and is active later.
    """
    times = owners("arrows")
    begins = [who for who, _ in times].index(BACKWARD)
    assert times[begins - 2 : begins] == [("aten::forward", 188), ("hand-off, thread 2", 30)]


FRAMES = ("threading.py(320): wait", "run_backward", "train.py(7): think")
TRACES.add_all(
    (name, [op("a", 0, 100), frame(name, 100, 490), op("worker", 400, 180, tid=2), op("b", 600, 100)])
    for name in FRAMES
)


def test_a_frame_named_after_a_wait_is_what_was_waited_for() -> None:
    """A frame named after a wait waits for another thread, even if that works for less than half of the frame.

    Without the frame's name, the other thread's work would count as a coincidence.
    """
    for name in FRAMES:
        inside = [(name, 490)]
        if "think" not in name:
            inside = [(name, 300), ("worker", 180), ("hand-off, thread 1", 10)]
        assert owners(name) == [("a", 100), *inside, ("outside operators, thread 1", 10), ("b", 100)]


WATCHDOG = [
    *(op("a", 0, 100), *launch(1, 10), op("b", 1200, 100), *launch(2, 1210)),
    x("user_annotation", "# running sparse arch", 90, 1115),
    *(call("cudaEventQuery", ts, 90, 900 + ts, tid=9) for ts in range(100, 1900, 100)),
]
EXCHANGES = [
    call("cudaThreadExchangeStreamCaptureMode", ts + at, 2, 5000 + ts + at, tid=9)
    for ts in range(100, 1900, 100)
    for at in (-4, 92)
]
TRACES.add("a watchdog", WATCHDOG)
TRACES.add("a watchdog and its other calls", [*WATCHDOG, *EXCHANGES])


def test_a_thread_that_only_polls_hands_nothing_over() -> None:
    """NCCL's watchdog hands nothing over, although it queries an event just before the main thread resumes.

    The watchdog may also make other calls.
    """
    for name in ("a watchdog", "a watchdog and its other calls"):
        path = owners(name)
        assert ("# running sparse arch", 1100) in path
        # The polling continues after the window has ended.
        assert sum(us for _, us in path) == 1300


NOBODY_ELSE: dict[str, list[dict[str, Any]]] = {
    "what nothing spans is the thread's": [op("a", 0, 100, tid=7), op("b", 300, 100, tid=7)],
    "what runs in the background ends no window": [
        op("a", 0, 100),
        *launch(1, 10),
        frame("tqdm/_monitor.py(60): run", 0, 9000, tid=5),
        op("log", 50, 5000, tid=6),
    ],
    "what a call takes beyond its wait is its own": [  # hipFree blocks for 3 ms, of which GPU work explains 100 us
        *(call("hipLaunchKernel", 0, 5, 1), kernel("k", 10, 100, 1)),
        call("hipFree", 20, 3000, 2),
        op("next", 3020, 10),
    ],
    # The call blocks for 463 ms, and no recorded GPU work ends in this time.
    "a copy waits for what is not in the trace": [
        *(op("a", 0, 100), call("cudaLaunchKernel", 10, 5, 1), kernel("k", 16, 10, 1)),
        call("hipMemcpyWithStream", 200, 463_000, 2),
        kernel("Memcpy DtoH", 463_100, 50, 2, cat="gpu_memcpy"),
        op("b", 463_210, 10),
    ],
}
TRACES.add_all(NOBODY_ELSE.items())


def test_time_of_nobody_else() -> None:
    spanned, background, own, copy = map(owners, NOBODY_ELSE)
    assert spanned == [("a", 100), ("outside operators, thread 7", 200), ("b", 100)]
    assert sum(us for _, us in background) == 100
    assert own[-3:] == [("k", 100), ("hipFree", 2910), ("next", 10)]
    assert ("earlier work, not in the trace", 462_900) in copy


TRACES.add(
    "a late graph",
    [
        *(op("a", 0, 1000), call("cudaGraphLaunch", 100, 5, 1)),
        *(kernel("k1", 600, 50, 1), kernel("k2", 660, 2000, 1)),
    ],
)
TRACES.add(
    "hipFree twice",
    [
        *(op("a", 0, 15), call("hipLaunchKernel", 1, 5, 1), kernel("k", 10, 100, 1)),
        *(op("b", 0, 15, tid=2), call("hipLaunchKernel", 2, 5, 2, tid=2), kernel("k", 12, 90, 2, stream=8)),
        *(call("hipFree", 20, 3000, 3), call("hipFree", 20, 2900, 4, tid=2), op("next", 3020, 10)),
    ],
)


def test_traps_of_a_prototype() -> None:
    """A graph's kernels begin long after its launch, while the host does something else.

    In another trace, two threads call hipFree at the same time.
    """
    assert owners("a late graph")[:2] == [("a", 100), ("launch delay, stream 7", 500)]
    assert owners("hipFree twice")[-3:] == [("k", 100), ("hipFree", 2910), ("next", 10)]


TRACES.add(
    "a stream",
    [
        *(op("a", 0, 1000), call("cudaLaunchKernel", 10, 5, 1), kernel("k1", 15, 100, 1)),
        *(call("cudaLaunchKernel", 20, 5, 2), kernel("k2", 117, 100, 2)),
        *(call("cudaLaunchKernel", 400, 5, 3), kernel("k3", 406, 700, 3)),
    ],
)


def test_a_stream_keeps_its_order() -> None:
    """Neighbours on a stream have an edge even if the launch held the second one up.

    The edge that binds claims all of the time.
    """
    con = TRACES.show("a stream")
    query = (
        "SELECT src_event_id, dst_event_id, edge_type, path_weight_ns FROM critical_path_edges WHERE dst_is_start "
        "AND edge_type IN ('KERNEL_LAUNCH_DELAY', 'KERNEL_KERNEL_DELAY') ORDER BY ALL"
    )
    assert con.execute(query).fetchall() == [
        (1, 2, "KERNEL_LAUNCH_DELAY", 5000),
        (2, 4, "KERNEL_KERNEL_DELAY", 2000),  # binds, so it claims all of the time
        (3, 4, "KERNEL_LAUNCH_DELAY", 5000),  # the device's shortest launch latency
        (4, 6, "KERNEL_KERNEL_DELAY", 2000),  # the device's shortest gap
        (5, 6, "KERNEL_LAUNCH_DELAY", 6000),  # bound
    ]
    assert owners_in(path_in(con))[-2:] == [("launch delay, stream 7", 6), ("k3", 700)]


TRACES.add_all(
    (
        f"overlaps, launched {when}",
        [
            *(op("a", 0, 1500), call("cudaLaunchKernel", 10, 5, 1), kernel("k1", 100, 915, 1)),
            *(call("cudaLaunchKernel", at, 5, 2), kernel("k2", 505, 900, 2)),
        ],
    )
    for when, at in (("late", 500), ("early", 16))
)


def test_work_that_overlaps_the_work_before_it_follows_what_held_it_up() -> None:
    """The launch binds if it came after the overlapped work began, otherwise the overlapped work binds."""
    query = "SELECT bound_by FROM bound_work WHERE overlaps_last"
    for when, bound_by in (("late", "launch"), ("early", "last")):
        assert TRACES.show_step("bound_work", f"overlaps, launched {when}").execute(query).fetchall() == [(bound_by,)]


TRACES.add(
    "ended a little later",
    [
        *(op("a", 0, 300), call("cudaLaunchKernel", 10, 5, 1), kernel("k1", 16, 100, 1, stream=20)),
        *(call("cudaEventRecord", 20, 2, 2), call("cudaStreamWaitEvent", 24, 2, 3)),
        sync(
            "Stream Wait Event",
            26,
            84,
            3,
            7,
            wait_on_stream=20,
            wait_on_cuda_event_record_corr_id=2,
            wait_on_cuda_event_id=1,
        ),
        *(call("cudaLaunchKernel", 30, 5, 4), kernel("k2", 111, 100, 4)),
    ],
)


def test_a_wait_for_work_that_ended_a_little_later_claims_no_time() -> None:
    """The awaited work ends 5 us after the waiting work starts, because clocks may disagree by that much.

    Weights are never below 0.
    """
    con = TRACES.show_step("bound_work", "ended a little later")
    assert con.execute("SELECT max(since_wait_ns) FROM bound_work").fetchall() == [(0,)]
    assert con.execute("SELECT min(path_weight_ns) >= 0 FROM critical_path_edges").fetchall() == [(True,)]


TRACES.add(
    "first of a stream",
    [
        *(op("a", 0, 300), call("cudaLaunchKernel", 10, 5, 1), kernel("k1", 16, 100, 1, stream=20)),
        *(call("cudaEventRecord", 20, 2, 2), call("cudaStreamWaitEvent", 24, 2, 3)),
        sync("Stream Wait Event", 26, 84, 3, 7, wait_on_stream=20, wait_on_cuda_event_record_corr_id=2),
        *(call("cudaLaunchKernel", 30, 5, 4), kernel("k2", 500, 100, 4)),
    ],
)


def test_the_first_work_of_a_stream_is_behind_no_other() -> None:
    """The launch and the end of the awaited work are both 384 us before the first work of a stream.

    The launch counts as its bound.
    """
    con = TRACES.show_step("bound_work", "first of a stream")
    query = "SELECT bound_by FROM bound_work WHERE last_event_id IS NULL AND since_wait_ns IS NOT NULL"
    assert con.execute(query).fetchall() == [("launch",)]


TRACES.add(
    "a short return",
    [
        *(call("cudaLaunchKernel", 0, 5, 1), kernel("k", 10, 100, 1)),
        *(call("cudaDeviceSynchronize", 20, 97, 2), sync("Context Sync", 21, 95, 2), op("next", 117, 10)),
    ],
)


def test_a_short_return_is_the_calls_time_too() -> None:
    assert path_in(TRACES.show("a short return"))[-3:] == [
        ("k", 100, "gpu_compute_bound"),
        ("cudaDeviceSynchronize", 7, "cpu_bound"),
        ("next", 10, "cpu_bound"),
    ]


def copy_without_stream(at: float, dur: float, correlation: int, device: int) -> dict[str, Any]:
    args = {"correlation": correlation, "device": device}
    return {"ph": "X", "cat": "gpu_memcpy", "name": "CopyHostToDevice", "ts": at, "dur": dur, "args": args}


TRACES.add(
    "no streams",
    [
        *(call("hipMemcpyAsync", 0, 5, 1), copy_without_stream(10, 100, 1, 0)),
        *(
            call("hipMemcpyAsync", 6, 5, 2),
            copy_without_stream(20, 300, 2, 1),
            call("hipMemcpyAsync", 12, 5, 3),
            copy_without_stream(330, 50, 3, 1),
        ),
        call("hipDeviceSynchronize", 18, 370, 4),
    ],
)


def test_gpu_work_without_a_stream_is_on_the_path_and_has_a_stream_per_device() -> None:
    """AMD records some copies without a queue, and some of these without a row (`tid`)."""
    con = TRACES.show("no streams")
    assert con.execute("SELECT device, stream, n_kernels FROM streams").fetchall() == [(0, None, 1), (1, None, 2)]
    query = "SELECT event_id, last_event_id FROM _kernel_nodes ORDER BY event_id"
    assert con.execute(query).fetchall() == [(1, None), (3, None), (5, 3)]
    assert owners_in(path_in(con)) == [
        *(("hipMemcpyAsync", 5), ("outside operators, thread 1", 1), ("launch delay", 14), ("CopyHostToDevice", 300)),
        *(("kernel-kernel delay", 10), ("CopyHostToDevice", 50), ("hipDeviceSynchronize", 8)),
    ]


TRACES.add(
    "before their launch",
    [
        *(op("a", 0, 300), call("cudaLaunchKernel", 100, 5, 1), kernel("k1", 56, 10, 1)),
        *(call("cudaLaunchKernel", 200, 5, 2), kernel("k2", 156, 300, 2)),
    ],
)


def test_kernels_before_their_launch_do_not_break_the_path() -> None:
    """The GPU's clock is 50 us behind.

    So the second kernel is bound by the activity of its thread before the kernel's start.
    """
    times = owners("before their launch")
    assert times[-1] == ("k2", 300) and sum(us for _, us in times) == 456
    assert ("a", 95) in times or ("a", 100) in times


TRACES.add(
    "a step",
    [
        x("user_annotation", "ProfilerStep#1", 0, 100),
        *(op("a", 10, 50), call("cudaLaunchKernel", 20, 5, 1), kernel("k", 30, 300, 1)),
        op("later", 200, 500),
    ],
    "ProfilerStep#1",
)


def test_a_step_ends_with_the_work_that_it_launched() -> None:
    assert owners("a step") == [
        ("ProfilerStep#1", 10),
        ("a", 10),
        ("launch delay, stream 7", 10),
        ("k", 300),
    ]


LOST = [op("x", 0.5, 5), kernel("K", 6, 494, 1), call("cudaLaunchKernel", 8, 2, 2), kernel("L", 501, 5, 2)]
TRACES.add("a lost launch", LOST)
TRACES.add("a negative launch", [LOST[0], call("cudaLaunchKernel", 0, -1, 1), *LOST[1:]])


def test_work_whose_launch_has_a_negative_duration_is_on_the_path() -> None:
    """A call with a negative duration is not in the graph, so the path is the same as without the call."""
    lost, path = (path_in(TRACES.show(name)) for name in ("a lost launch", "a negative launch"))
    assert path == lost and ("K", 494, "gpu_compute_bound") in path


WAIT = [
    *(op("x", 0.5, 5), call("cudaLaunchKernel", 2, 2, 1), kernel("K", 6, 494, 1), op("y", 600, 5)),
    sync("Context Sync", 10, 490, 2),
]
TRACES.add("a wait without a call", WAIT)
TRACES.add("a negative wait", [*WAIT, call("cudaDeviceSynchronize", 9, -1, 2)])


def test_the_row_of_a_wait_with_a_negative_duration_is_not_on_the_path() -> None:
    """If the call of a wait has a negative duration, the row of the wait is dropped, as if there were no call."""
    for name in ("a wait without a call", "a negative wait"):
        query = "SELECT side, event_id FROM _clip WHERE side = 'sync' ORDER BY ALL"
        assert TRACES.show(name).execute(query).fetchall() == []
