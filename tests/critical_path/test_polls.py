"""Loops of event queries that wait until GPU work has ended, and similar loops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from pipelines.critical_path.graph.host_nodes import HostNodes, nodes_without
from tests.batch import Batch
from tests.critical_path.test_covers import TABLES, frame, owners_in, path_in
from tests.harness import call, each, kernel, op, x

Events = list[dict[str, Any]]
KERNEL = 1  # the index of the kernel that ends at 500 us
TRACES = Batch(*TABLES, "critical_path_nodes", "critical_path_events", steps_of="_call_claims")
"""The traces of all tests of this file."""


def polls(since: int, until: int, every: int = 3, name: str = "cudaEventQuery", tid: int = 1) -> Events:
    return [call(name, at, 1, 10_000 * tid + at, tid=tid) for at in range(since, until, every)]


def launched(*, record: str = "cudaEventRecord") -> Events:
    """Return a kernel from 20 to 500 us, and an event recorded after it."""
    return [call("cudaLaunchKernel", 10, 5, 1), kernel("gemm", 20, 480, 1), call(record, 16, 2, 2)]


LOOPS = {
    "cuda": [*launched(), *polls(30, 504)],
    "hip": [*launched(record="hipEventRecord"), *polls(30, 504, name="hipEventQuery")],
    "a stream": [*launched(record="cudaEventCreate"), *polls(30, 504, name="cuStreamQuery")],
    "with a sleep": [*launched(), *polls(30, 531, 100)],
    "two calls": [*launched(), *polls(460, 510, 45)],
    "another thread asks, too": [*launched(), *polls(30, 504), *polls(32, 900, 50, tid=2)],
}
EARLIER: Events = [
    *(*launched(), call("cudaLaunchKernel", 20, 5, 3), kernel("later", 501, 400, 3), call("cudaEventRecord", 26, 2, 4)),
    *polls(40, 504),
]
NO_LOOPS = {
    "all that was recorded goes on": [*launched(), *polls(30, 300)],
    "it ended long before the last call": [*launched(), *polls(30, 604)],
    "only asked once": [*launched(), *polls(501, 502)],
    "something else is done in between": [*launched(), *polls(30, 480), op("decode", 481, 1), *polls(501, 504)],
    "an operator ends in between": [*launched(), op("decode", 29, 462), *polls(30, 490), *polls(501, 504)],
    "rarely": [*launched(), *polls(30, 9000, 2500), kernel("more", 600, 7000, 1)],
    "two calls, far apart": [*launched(), *polls(400, 510, 100)],
    "launched when the loop had begun": [
        *(launched()[0], kernel("gemm", 20, 5, 1), *launched()[2:], *polls(30, 504)),
        *(call("cudaLaunchKernel", 40, 2, 9, tid=2), kernel("other", 50, 450, 9), call("cudaEventRecord", 45, 2, 8, tid=2)),
    ],
    "an earlier event, asked for briefly": [*EARLIER[:-155], *polls(484, 504)],
    "an earlier event, asked for rarely": [*EARLIER[:-155], *polls(330, 511, 30)],
    "a thread that mostly asks for other things": [*launched(), *polls(470, 504), op("a", 600, 1), *polls(700, 760)],
    "a watchdog": [*launched(), *polls(32, 504, tid=2)],
}  # fmt: skip


@pytest.mark.slow  # 6 s
def test_a_loop_waited_for_what_ended_before_its_last_call() -> None:
    loops = [
        con.execute("SELECT DISTINCT source_event_id, last_event_id FROM _poll_loops WHERE has_waited").fetchall()
        for con in each([*LOOPS.values(), EARLIER, *NO_LOOPS.values()], "_profiles", "_poll_loops")
    ]
    last = [len(trace) - 1 for trace in LOOPS.values()]
    last[-1] = len(LOOPS["cuda"]) - 1
    assert dict(zip(LOOPS, loops, strict=False)) == {name: [(KERNEL, at)] for name, at in zip(LOOPS, last, strict=True)}
    assert loops[len(LOOPS)] == [(KERNEL, len(EARLIER) - 1)]
    assert dict(zip(NO_LOOPS, loops[len(LOOPS) + 1 :], strict=True)) == {name: [] for name in NO_LOOPS}


TRACES.add(
    "a loop",
    [
        op("a", 0, 10),
        *launched(),
        *polls(30, 480, 25),
        *(frame("<built-in function sleep>", at + 2, 22) for at in range(30, 480, 25)),
        *polls(500, 504),
        *(op("worker", 40, 455, tid=2), op("b", 510, 100)),
    ],
)


def test_the_time_of_the_loop_belongs_to_what_it_waited_for() -> None:
    """Frames that begin and end in the loop, and another thread that works at the time, are not on the path."""
    con = TRACES.show("a loop")
    assert path_in(con)[-5:] == [
        ("gemm", 480, "gpu_compute_bound"),
        ("cudaEventQuery", 3, "cpu_bound"),
        ("cudaEventQuery", 1, "cpu_bound"),
        ("outside operators, thread 1", 6, "host_gap"),
        ("b", 100, "cpu_bound"),
    ]
    # The graph has no frames, because their ends would hold the loop in place when the work gets faster.
    assert con.execute("SELECT count(*) FROM critical_path_nodes WHERE side = 'frame'").fetchall() == [(0,)]
    left_out = "FROM critical_path_events ANTI JOIN critical_path_nodes USING (event_id) WHERE class <> 'HOST'"
    assert con.execute(left_out).fetchall() == []


LONG_LAST = [*launched(), *polls(30, 497, 4), call("cudaEventQuery", 498, 4, 7), op("b", 510, 90)]
TRACES.add("a long last call", LONG_LAST)


def test_a_call_that_began_before_the_work_ended_follows_its_start() -> None:
    """A call returned that the work had ended, although it began before that end by the clocks.

    The edge leads from the start of the work, so the time belongs to the work and changes with it.
    """
    con = TRACES.show("a long last call")
    assert owners_in(path_in(con))[-4:] == [
        ("gemm", 478),
        ("cudaEventQuery", 4),
        ("outside operators, thread 1", 8),
        ("b", 90),
    ]
    query = "SELECT src_is_start, edge_type, path_weight_ns FROM critical_path_edges WHERE src_event_id = {} AND dst_event_id = {}"
    assert con.execute(query.format(KERNEL, len(LONG_LAST) - 2)).fetchall() == [(True, "OPERATOR_KERNEL", 478_000)]


TRACES.add(
    "work of the step before",
    [
        *(*launched(), x("user_annotation", "ProfilerStep#1", 0, 25)),
        *(x("user_annotation", "ProfilerStep#2", 25, 600), *polls(30, 504), op("b", 510, 100)),
    ],
    "ProfilerStep#2",
)


def test_a_loop_for_work_of_the_step_before() -> None:
    path = path_in(TRACES.show("work of the step before"))
    assert ("earlier work, not in the window", 476, "gpu_earlier_work") in path


TRACES.add(
    "a cut loop",
    [
        *(*launched(), *polls(30, 504), op("b", 510, 100)),
        *(x("user_annotation", f"ProfilerStep#{n}", 300 * n, 300) for n in range(2)),
    ],
    "ProfilerStep#0",
    "ProfilerStep#1",
)


def test_a_window_that_cuts_a_loop() -> None:
    """If the window ends in the loop, the result of the loop is unknown.

    If it starts in the loop, the remaining calls are removed.
    """
    for step, n_waits, n_left_out in (("ProfilerStep#0", 0, 0), ("ProfilerStep#1", 1, len(polls(300, 504)) - 1)):
        con = TRACES.show_step("poll_waits", "a cut loop", step)
        assert con.execute("SELECT count(*) FROM poll_waits").fetchall() == [(n_waits,)]
        assert con.execute("SELECT count(*) FROM _left_out").fetchall() == [(n_left_out,)]


def loops_in_functions() -> Iterator[tuple[str, Events]]:
    """Yield traces with a loop in Python functions, and the same traces without the functions."""
    queries = polls(200, 523, 46, tid=2)
    sleeps = [frame("<built-in function sleep>", at + 4, 40, tid=2) for at in range(200, 520, 46)]
    launch = [call("cudaLaunchKernel", 0, 2, 1, tid=2), call("cudaEventRecord", 4, 2, 2, tid=2)]
    short, long = kernel("short", 5, 5, 1, 20), kernel("long", 5, 495, 1, 20)
    step = x("user_annotation", "step", 100, 600)
    own = [step, op("a", 110, 100), call("cudaLaunchKernel", 120, 2, 3), op("b", 300, 390)]
    record = call("cudaEventRecord", 125, 2, 4)
    traces = [
        [*launch, long, *queries, op("after", 540, 20, tid=2), *own, kernel("own", 130, 20, 3)],
        [launch[0], short, *queries, op("after", 525, 65, tid=2), *own, kernel("own", 130, 370, 3), record],
        [*launch, long, *queries, op("after", 525, 65, tid=2), {**step, "tid": 9}],
    ]

    for number, trace in enumerate(traces):
        yield f"a loop alone {number}", trace
        yield f"a loop in a function {number}", [*trace, *sleeps]


TRACES.add_all(loops_in_functions(), "step")


def test_a_loop_that_begins_in_a_function_joins_no_threads() -> None:
    """The function is its thread's first node in the window. It is removed with the loop, and so are its edges."""

    def edges_and_path(name: str) -> tuple[list[tuple], Any]:
        con = TRACES.show(name)
        query = "SELECT edge_type, src_node_id, dst_node_id, path_weight_ns FROM critical_path_edges ORDER BY ALL"
        return con.execute(query).fetchall(), path_in(con)

    for number in range(3):
        edges, path = edges_and_path(f"a loop alone {number}")
        assert edges_and_path(f"a loop in a function {number}") == (edges, path)
        assert number == 2 or sum(us for _, us, _ in path) == 600


SECOND = [
    *(call("cudaLaunchKernel", 600, 5, 5), kernel("short", 610, 10, 5), call("cudaEventRecord", 606, 2, 6)),
    *(*polls(700, 701), op("b", 710, 10)),
]
LOOP, PLAIN = [*launched(), *polls(30, 504), *SECOND], [*launched(), op("c", 100, 30), *SECOND]
TRACES.add_all([("a loop before", LOOP), ("no loop before", PLAIN)])


def test_one_call_that_found_the_work_done_may_have_had_to_wait() -> None:
    """A single call that finds the work done may have waited for it if its thread also has loops.

    The edge from the work then claims the shortest time that a loop took to notice the end.
    """
    for name, trace, expected in (("a loop before", LOOP, [(len(LOOP) - 4, 1000)]), ("no loop before", PLAIN, [])):
        edges = TRACES.show(name).execute(
            "SELECT src_event_id, path_weight_ns FROM critical_path_edges WHERE dst_is_start AND is_inferred "
            f"AND dst_event_id = {len(trace) - 2}"
        )
        assert edges.fetchall() == expected


def test_no_first_node_of_a_thread_ends_a_gap() -> None:
    """The gap began at a node that was removed, and the node before it in the arrays belongs to another thread."""
    ints, no = np.arange(4, dtype=np.int64), np.zeros(4, dtype=bool)
    both = np.array([False, True, False, True])
    threads = np.array([0, 0, 1, 1])
    nodes = HostNodes(threads, ints, ints, ints, both, ints, both, both, no)
    kept = nodes_without(nodes, np.array([False, False, True, False]))
    assert kept.node.tolist() == [0, 1, 3]
    assert kept.before.tolist() == kept.in_gap.tolist() == kept.waits.tolist() == [False, True, False]
