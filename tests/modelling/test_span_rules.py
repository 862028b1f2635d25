"""The rules of spans on a few events, each worked out by hand, and the stack compared with its definition."""

from __future__ import annotations

from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.modelling.stacks import parents
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.effort import LISTS, at_once, examples
from tests.harness import call, connect, each, kernel, op, x
from tests.modelling.span_walk import Walk


def module(name: str, ts: float, dur: float, tid: Any = 1) -> dict:
    return x("python_function", f"nn.Module: {name}", ts, dur, tid)


def note(name: str, ts: float, dur: float, tid: Any = 1, pid: Any = 100) -> dict:
    return x("user_annotation", name, ts, dur, tid, pid)


def numbered(name: str, ts: float, dur: float, sequence: int, tid: Any = 1, forward_thread: int = 0) -> dict:
    """Return an operator with a sequence number.

    A backward operator contains the profiler's number of the forward's thread.
    """
    return x("cpu_op", name, ts, dur, tid, **{"Sequence number": sequence, "Fwd thread id": forward_thread})


def backward(ts: float, dur: float, sequence: int, tid: Any = 2, forward_thread: int = 1) -> list[dict]:
    """Return a backward operator inside the engine's event, which has the same sequence number."""
    wrapper = "autograd::engine::evaluate_function: MulBackward0"
    return [
        numbered(wrapper, ts, dur, sequence, tid, forward_thread),
        numbered("MulBackward0", ts, dur - 1, sequence, tid, forward_thread),
    ]


def arrow(flow: int, from_ts: float, from_tid: Any, to_ts: float, to_tid: Any) -> list[dict]:
    start = {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "id": flow, "pid": 100, "tid": from_tid, "ts": from_ts}
    return [start, {**start, "ph": "f", "bp": "e", "tid": to_tid, "ts": to_ts}]


def launch(correlation: int, ts: float, tid: Any = 1, at: float | None = None, dur: float = 1) -> list[dict]:
    """Return a launch and its kernel, named after its correlation."""
    return [
        call("cudaLaunchKernel", ts, 1, correlation, tid),
        kernel(f"k{correlation}", 1000 + 10 * correlation if at is None else at, dur, correlation),
    ]


def computed(events: list[dict], *tables: str) -> duckdb.DuckDBPyConnection:
    con, _ = connect(events)
    run_models(con, load_catalog(), tables)
    return con


OWNERS = ("span_gpu_work", "spans", "kernels")


def owners(events: list[dict]) -> set[tuple]:
    """Return the set of (kernel, span, start of the span in µs, phase)."""
    return owners_in(computed(events, *OWNERS))


def owners_in(con: duckdb.DuckDBPyConnection) -> set[tuple]:
    return set(
        con.execute(
            "SELECT k.name, s.name, s.start_ns // 1000, w.phase FROM span_gpu_work AS w "
            "JOIN spans AS s USING (trace_id, span_id) JOIN kernels AS k USING (trace_id, event_id)"
        ).fetchall()
    )


def table(events: list[dict], name: str, columns: str) -> list[tuple]:
    return table_in(computed(events, name), name, columns)


def table_in(con: duckdb.DuckDBPyConnection, name: str, columns: str) -> list[tuple]:
    return con.execute(f"SELECT {columns} FROM {name} ORDER BY ALL").fetchall()


CHECKPOINTED = [
    module("Wrapper_0", 0, 100),
    module("Sequential_0", 10, 80),
    numbered("aten::mul", 20, 20, 5),
    *launch(1, 30),
    *backward(200, 100, 5),
    module("Sequential_0", 220, 30, tid=2),
    *launch(2, 230, tid=2),
    *launch(3, 260, tid=2),
]


@pytest.mark.slow  # test_spans.py has real traces
def test_recomputed_work_belongs_to_the_recomputed_call_and_to_what_is_above_it_in_the_forward() -> None:
    assert owners(CHECKPOINTED) == {
        ("k1", "Sequential_0", 10, "fwd"),
        ("k1", "Wrapper_0", 0, "fwd"),
        ("k2", "Sequential_0", 220, "recompute"),
        ("k2", "Wrapper_0", 0, "recompute"),
        ("k3", "Sequential_0", 10, "bwd"),
        ("k3", "Wrapper_0", 0, "bwd"),
    }


def test_backward_of_a_recomputed_operator_belongs_to_the_checkpoint_s_modules_too() -> None:
    """The backward of a recomputed operator belongs to its module and to the modules around the checkpoint.

    The checkpoint is an autograd function. Its backward recomputes the forward and runs a nested backward.
    """
    events = [
        module("Wrapper_0", 0, 100),
        numbered("CheckpointFunction", 10, 80, 5),
        module("Sequential_0", 20, 60),
        *backward(200, 200, 5),
        module("Sequential_0", 220, 40, tid=2),
        numbered("aten::mul", 230, 10, 9, tid=2),
        *backward(300, 50, 9, forward_thread=2),
        *launch(1, 320, tid=2),
        *arrow(1, 10, 1, 200, 2),
        *arrow(2, 230, 2, 300, 2),
    ]
    assert owners(events) == {("k1", "Sequential_0", 220, "bwd"), ("k1", "Wrapper_0", 0, "bwd")}


def test_of_several_forward_operators_with_a_number_the_last_is_meant() -> None:
    events = [
        *(module("First_0", 0, 20), numbered("aten::mul", 5, 10, 7)),
        *(module("Second_0", 30, 20), numbered("aten::mul", 35, 10, 7)),
        *backward(100, 20, 7),
        *launch(1, 110, tid=2),
        *(module("After_0", 200, 20), numbered("aten::mul", 205, 10, 7)),
    ]
    con = computed(events, *OWNERS, "backward_links")
    assert owners_in(con) == {("k1", "Second_0", 30, "bwd")}
    links = table_in(con, "backward_links", "backward_event_id, forward_event_id, how")
    assert links == [(4, 3, "sequence"), (5, 3, "sequence")]


def test_the_number_of_the_forward_thread_is_no_tid() -> None:
    """The profiler's number of the forward thread is not a tid.

    Another pair's arrow shows that number 1 is thread 77. Thread 1 has a later operator with the same sequence number.
    """
    events = [
        *(module("Right_0", 0, 40, tid=77), numbered("aten::mul", 5, 10, 7, tid=77)),
        numbered("aten::add", 20, 10, 8, tid=77),
        *(module("Wrong_0", 50, 20, tid=1), numbered("aten::mul", 55, 10, 7, tid=1)),
        *backward(100, 20, 7),
        *launch(1, 110, tid=2),
        *backward(130, 20, 8),
        *launch(2, 140, tid=2),
        *arrow(1, 20, 77, 130, 2),
    ]
    con = computed(events, *OWNERS, "span_attribution")
    assert owners_in(con) == {("k1", "Right_0", 0, "bwd"), ("k2", "Right_0", 0, "bwd")}
    how = "n_by_flow, n_by_sequence, n_backward_linked, n_in_backward_module"
    assert table_in(con, "span_attribution", how) == [(1, 1, 2, 2)]


def test_without_arrows_a_forward_is_looked_for_on_other_threads_only() -> None:
    events = [
        *(module("Other_0", 0, 20, tid=1), numbered("aten::mul", 5, 10, 7, tid=1)),
        *(module("Same_0", 30, 20, tid=2), numbered("aten::mul", 35, 10, 7, tid=2)),
        *backward(100, 20, 7, tid=2),
        *launch(1, 110, tid=2),
    ]
    assert owners(events) == {("k1", "Other_0", 0, "bwd")}


def test_what_starts_in_a_crossing_event_belongs_to_the_spans_around_it() -> None:
    events = [module("Outer_0", 0, 10), op("aten::mul", 5, 15), *launch(1, 15), *launch(2, 30)]
    con = computed(events, *OWNERS, "span_attribution")
    assert owners_in(con) == {("k1", "Outer_0", 0, "fwd")}
    assert table_in(con, "span_attribution", "n_crossing_pairs, n_outside_spans") == [(1, 1)]


def test_work_without_launch_span_or_forward_is_counted_and_given_to_no_span() -> None:
    events = [
        *(note("ProfilerStep#1", 0, 400), note("around", 90, 60, tid=2)),
        *backward(100, 20, 7),
        *launch(1, 110, tid=2, dur=3),
        *launch(2, 500, dur=4),
        kernel("k9", 2000, 5, 99),
    ]
    con = computed(events, *OWNERS, "unattributed_gpu_work")
    assert owners_in(con) == {
        ("k1", "ProfilerStep#1", 0, "window"),
        ("k1", "around", 90, "bwd_direct"),
        ("k1", "around", 90, "window"),
    }
    rows = table_in(con, "unattributed_gpu_work", "reason, n, sum_ns")
    assert rows == [("backward_without_forward", 1, 3000), ("no_launch", 1, 5000), ("outside_spans", 1, 4000)]


@pytest.mark.slow  # test_spans.py has windows of real traces
def test_a_window_takes_launches_of_all_threads_of_its_process_from_its_start_to_before_its_end() -> None:
    events = [
        *(note("ProfilerStep#1", 10, 10), note("ProfilerStep#2", 20, 10)),
        *(note("ProfilerStep#2", 18, 12, tid=3), note("ProfilerStep#9", 0, 100, pid=200)),
        *(launch(1, 10, tid=2) + launch(2, 20, tid=2) + launch(3, 30, tid=2) + launch(4, 19, tid=3) + launch(5, 19)),
    ]
    windows = {row[:3] for row in owners(events) if row[3] == "window"}
    assert windows == {
        ("k1", "ProfilerStep#1", 10),
        ("k2", "ProfilerStep#2", 20),  # the step has two spans, and one of them owns it
        ("k4", "ProfilerStep#2", 18),  # its own thread is already in step 2
        ("k5", "ProfilerStep#1", 10),
    }


def test_a_call_of_the_hip_runtime_is_a_launch() -> None:
    hip = call("hipLaunchKernel", 5, 1, 1, cat="hip_runtime")
    assert owners([module("Net_0", 0, 10), hip, kernel("k1", 20, 5, 1)]) == {("k1", "Net_0", 0, "fwd")}


def test_kinds_names_numbers_and_parents() -> None:
    events = [
        *(note("ProfilerStep#12", 0, 100), note("SWP/Load/iter3", 10, 20), note("loss", 40, 10)),
        note("SWP_serial/Load/iter4", 30, 5),
        *(module("Net_0", 50, 40), module("Linear_11", 60, 10), module("Linear_11", 200, 5, tid=4)),
    ]
    rows = table(events, "spans", "span_id, parent_id, kind, name, family, number, duration_ns")
    assert rows == [
        (0, None, "step", "ProfilerStep#12", "ProfilerStep", 12, 100_000),
        (1, 0, "task", "SWP/Load/iter3", "Load", 3, 20_000),
        (2, 0, "annotation", "loss", "loss", None, 10_000),
        (3, 0, "task", "SWP_serial/Load/iter4", "Load", 4, 5_000),
        (4, 0, "module", "Net_0", "Net", 0, 40_000),
        (5, 4, "module", "Linear_11", "Linear", 11, 10_000),
        (6, None, "module", "Linear_11", "Linear", 11, 5_000),
    ]


def test_busy_time_is_the_union_and_self_leaves_inner_spans_out() -> None:
    events = [
        *(module("Net_0", 0, 100), module("Linear_0", 10, 20)),
        *(launch(1, 12, at=200, dur=10) + launch(2, 50, at=205, dur=10) + launch(3, 60, at=230, dur=5)),
    ]
    columns = "span_id, phase, n, sum_ns, busy_ns, self_n, self_ns"
    assert table(events, "span_kernels", columns) == [
        (0, "fwd", 3, 25_000, 20_000, 2, 15_000),
        (1, "fwd", 1, 10_000, 10_000, 1, 10_000),
    ]


@pytest.mark.slow  # test_spans.py has sums of names of a real trace
def test_a_name_inside_of_itself_counts_its_work_once() -> None:
    events = [module("Block_0", 0, 50), module("Block_0", 10, 20), *launch(1, 15), note("idle", 60, 5)]
    assert table(events, "span_names", "name, phase, n_spans, host_ns, n, sum_ns, busy_ns") == [
        ("Block_0", "fwd", 2, 70_000, 1, 1000, 1000),
        ("idle", None, 1, 5000, 0, 0, 0),
    ]


def test_without_gpu_work_that_of_names_is_unknown() -> None:
    """In a trace with only host events, a span's GPU work is unknown.

    If GPU work exists outside the span, the span's is 0.
    """
    host = [note("idle", 0, 5)]
    columns = "name, phase, n_spans, host_ns, n, sum_ns, busy_ns"
    unknown, none = (
        table_in(con, "span_names", columns) for con in each([host, [*host, *launch(1, 15)]], "span_names")
    )
    assert unknown == [("idle", None, 1, 5000, None, None, None)]
    assert none == [("idle", None, 1, 5000, 0, 0, 0)]


def test_a_trace_without_host_events_has_no_spans() -> None:
    con = computed([kernel("k", 0, 2, 1)], "unattributed_gpu_work", "spans")
    assert table_in(con, "unattributed_gpu_work", "reason, n, sum_ns") == [("no_launch", 1, 2000)]
    assert table_in(con, "spans", "span_id") == []


def reaching_parent(rows: list[tuple[int, int, int]], i: int) -> int:
    """Return the parent by its definition: the last event before it on its thread that reaches past its start.

    If both begin at the same time, reaching the start suffices.
    """
    thread, start, _ = rows[i]
    for j in range(i - 1, -1, -1):
        on, begun, over = rows[j]
        if on == thread and (over > start or over == start == begun):
            return j
    return -1


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(0, 8)), max_size=25))
def test_parents_are_those_of_the_definition(shape: list[tuple[int, int, int]]) -> None:
    rows = sorted(((t, s, s + d) for t, s, d in shape), key=lambda r: (r[0], r[1], -r[2]))
    columns = [np.array([r[k] for r in rows], dtype=np.int64) for k in range(3)]
    assert parents(*columns).tolist() == [reaching_parent(rows, i) for i in range(len(rows))]


MAKERS = (
    lambda ts, dur, tid, n: [note(f"note{n}", ts, dur, tid)],
    lambda ts, dur, tid, n: [module(f"Net_{n}", ts, dur, tid)],
    lambda ts, dur, tid, n: [op("aten::add", ts, dur, tid)],
    lambda ts, dur, tid, n: [numbered("aten::mul", ts, dur, n, tid)],
    lambda ts, dur, tid, n: [numbered("MulBackward0", ts, dur, n, tid, forward_thread=1)],
)


SPANS = st.tuples(st.sampled_from(MAKERS), st.integers(0, 30), st.integers(0, 20), st.integers(1, 2), st.integers(0, 2))
LAUNCHES = st.tuples(st.integers(0, 40), st.integers(1, 2))


@pytest.mark.slow
@settings(max_examples=LISTS, deadline=None)
@given(at_once(st.tuples(st.lists(SPANS, max_size=18), st.lists(LAUNCHES, min_size=1, max_size=6)), 30))
def test_owners_are_those_of_a_walk_up_the_stack(drawn: list[tuple[list[tuple], list[tuple[int, int]]]]) -> None:
    traces = []
    for spans, launches in drawn:
        events = [event for make, ts, dur, tid, n in spans for event in make(ts, dur, tid, n)]
        traces.append(events + [event for i, (ts, tid) in enumerate(launches, 1) for event in launch(i, ts, tid)])
    for events, con in zip(traces, each(traces, "span_gpu_work", "kernels"), strict=True):
        rows = con.execute(
            "SELECT k.name, w.span_id, w.phase FROM span_gpu_work AS w JOIN kernels AS k USING (trace_id, event_id)"
        ).fetchall()
        assert len(rows) == len(set(rows))
        assert set(rows) == Walk(events).owners()
