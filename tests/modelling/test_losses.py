"""Idle gaps, losses of steps, and the overlap of host and GPU: examples, brute force, and sums on every real trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.models.catalog import load_catalog
from pipelines.models.questions import load_questions
from pipelines.models.run import run_models
from tests.conftest import SHARED
from tests.effort import LARGE, LISTS, at_once
from tests.harness import call, connect_all, each, kernel, only, op, rows_of, x
from tests.shared_traces import is_trace

US = 1000
EVENTS = [
    x("user_annotation", "ProfilerStep#1", 0, 100),
    x("user_annotation", "forward", 5, 90),
    x("python_function", "nn.Module: Linear_0", 30, 40, **{"Python id": 1}),
    call("cudaLaunchKernel", 2, 2, 1), kernel("first", 10, 10, 1),  # 10 to 20
    x("cuda_runtime", "cudaStreamSynchronize", 18, 7),  # waits until 25
    op("aten::index", 27, 10), op("aten::sort", 28, 2), op("aten::cat", 37, 3), op("aten::linear", 40, 10),
    call("cudaLaunchKernel", 44, 2, 2), kernel("second", 50, 5, 2),  # 50 to 55: 5 + 17 + 2 + 6
    kernel("orphan", 60, 5, 9),  # without a launch
    call("cudaLaunchKernel", 47, 1, 3), kernel("third", 70, 5, 3),  # always queued
]  # fmt: skip


LAST = [
    kernel("before", 0, 10, 1),
    call("cudaLaunchKernel", 14, 1, 3, tid=2), kernel("launched last", 20, 5, 3, stream=8),
    call("cudaLaunchKernel", 12, 1, 2), kernel("launched first", 20, 5, 2),
]  # fmt: skip
WAITING = [op("aten::item", 0, 20), x("cuda_runtime", "cudaMemcpy", 5, 10), kernel("k", 3, 10, 9), op("b", 30, 0)]
STEP = x("user_annotation", "ProfilerStep#1", 0, 100)
WITHOUT_WORK = [STEP, op("aten::mm", 10, 50)]
# A step without GPU work is idle if another step shows that GPUs were traced.
ONE_OF_TWO = [
    *(STEP, x("user_annotation", "ProfilerStep#2", 100, 100)),
    *(call("cudaLaunchKernel", 110, 2, 1), kernel("k", 120, 30, 1)),
]
# GPU 1 works only in the first step, and no GPU works in the third.
TWO_GPUS = [
    *(x("user_annotation", f"ProfilerStep#{n}", 100 * n, 100) for n in range(3)),
    *(call("cudaLaunchKernel", 10, 2, 1), kernel("k", 20, 70, 1), call("cudaLaunchKernel", 12, 2, 2)),
    *(kernel("k", 30, 50, 2, device=1), call("cudaLaunchKernel", 110, 2, 3), kernel("k", 120, 40, 3)),
    op("aten::add", 280, 20),
]
SERVED = [
    call("cudaLaunchKernel", 42, 2, 1), x("user_annotation", "step[DECODE bs=8]", 40, 60),
    x("user_annotation", "ProfilerStep#3", 40, 60),
    kernel("before", 0, 30, 8), kernel("before too", 32, 18, 9),  # launched before the trace; the step begins at their end
    kernel("own", 60, 20, 1), kernel("lost", 85, 5, 7), op("aten::add", 90, 10),  # its launch is lost, but it is not earlier work
]  # fmt: skip
TRACES = (EVENTS, LAST, WAITING, WITHOUT_WORK, ONE_OF_TWO, TWO_GPUS, SERVED, [op("a", 0, 5)], [kernel("a", 0, 5, 1)])
ALEXNET = SHARED / "traces" / "critical_path" / "alexnet.json.gz"
SGLANG = SHARED / "traces" / "single" / "mi300_sglang_decode_graph.json.gz"
Shown = Callable[..., duckdb.DuckDBPyConnection]
Rows = Callable[..., list[tuple]]


@pytest.fixture(scope="module")
def shown() -> Shown:
    """Return a function that shows some or all TABLES of one of TRACES, or of two real traces.

    The models run once over all of them. ALEXNET is also a capture.
    """
    traces = [*TRACES, *(path for path in (ALEXNET, SGLANG) if path.exists())]
    con, trace_ids = connect_all(traces)
    ids = dict(zip(map(id, traces), trace_ids, strict=True))
    con.execute(
        f"CREATE TABLE capture_ranks AS SELECT 'c' AS capture_id, 0 AS rank, '{ids.get(id(ALEXNET))}' AS trace_id, "
        "CAST(NULL AS VARCHAR) AS left_out_reason; "
        "CREATE TABLE collective_ranks AS SELECT 'c' AS capture_id, '' AS trace_id, 0 AS lane, 0 AS rank, 0 AS event_id, "
        "0 AS start_ns, 0 AS wait_ns LIMIT 0; "
        "CREATE TABLE collective_groups AS SELECT 'c' AS capture_id, 0 AS lane, 0 AS rank, '' AS group_name, '' AS group_ranks, "
        "'' AS refused_reason LIMIT 0"
    )
    have = frozenset({"capture_ranks", "collective_ranks", "collective_groups"})
    run_models(con, load_catalog(), [*TABLES, "gpu_time_by_cause"], have=have)

    def of(trace: Any, *tables: str) -> duckdb.DuckDBPyConnection:
        only(con, ids[id(trace)], tables or ("traces", *TABLES))
        return con

    return of


@pytest.fixture
def rows(shown: Shown) -> Rows:
    """Return a function that selects columns of a table of one of TRACES."""
    return lambda trace, table, columns: (
        shown(trace, table).execute(f"SELECT {columns} FROM {table} ORDER BY ALL").fetchall()
    )


def test_what_ended_a_gap_and_who_owns_it(rows: Rows) -> None:
    columns = "start_ns, end_ns, cause, name, owned_ns, n_owners, event_name, ended_by, launch_name, module, annotation"
    sync, launch = "cudaStreamSynchronize", "cudaLaunchKernel"
    between = "host_between_operators"
    # Nothing needed the synchronization. It owns the time until the next work, except the annotation's 2 us.
    assert rows(EVENTS, "idle_gaps", columns) == [
        (
            *(20 * US, 50 * US, "synchronization", sync, 28 * US, 2),
            *(sync, "second", launch, "Linear_0", "forward"),
        ),
        (55 * US, 60 * US, between, "forward", 5 * US, 1, "forward", "orphan", None, None, None),
        (65 * US, 70 * US, between, "forward", 5 * US, 1, "forward", "third", launch, "Linear_0", "forward"),
    ]


def test_of_two_that_end_a_gap_the_one_launched_first_did(rows: Rows) -> None:
    assert rows(LAST, "idle_gaps", "ended_by, duration_ns") == [("launched first", 10 * US)]


def test_a_step_is_divided(rows: Rows) -> None:
    columns = "duration_ns, compute_ns, exposed_communication_ns, exposed_memory_ns, other_work_ns, idle_ns"
    assert rows(EVENTS, "step_losses", f"{columns}, idle_cause, idle_cause_ns, idle_name") == [
        (100 * US, 25 * US, 0, 0, 0, 75 * US, "host_between_operators", 32 * US, "forward")
    ]


def test_who_was_busy(rows: Rows) -> None:
    """The host is busy from 2 to 4 and from 27 to 50, the GPU from 10 to 20, 50 to 55, 60 to 65 and 70 to 75."""
    overlaps = rows(
        EVENTS, "host_gpu_overlap", "step, duration_ns, both_busy_ns, only_host_ns, only_gpu_ns, neither_ns"
    )
    times = (100 * US, 0, 25 * US, 25 * US, 50 * US)
    assert overlaps == [(1, *times), (None, *times)]


def test_an_operator_that_waits_is_not_busy(rows: Rows) -> None:
    overlaps = rows(WAITING, "host_gpu_overlap", "both_busy_ns, only_host_ns, only_gpu_ns, neither_ns")
    assert overlaps == [(2 * US, 8 * US, 8 * US, 12 * US)]  # busy 0 to 5 and 15 to 20


def test_a_call_that_waits_for_its_copy_is_not_busy() -> None:
    """A call that waits for its copy does not count as busy, like a call that waits by its name.

    A copy from pinned memory blocks no thread. A barrier, which has the GPU's times, does not block any thread either.
    """

    def copied(call_name: str, copy: str) -> list[dict]:
        return [
            *(call("cudaLaunchKernel", 0, 5, 1), kernel("k", 10, 100, 1), op("aten::item", 20, 100)),
            *(call(call_name, 25, 90, 2), kernel(copy, 110, 2, 2, cat="gpu_memcpy")),
        ]

    barrier = [
        *(op("aten::mm", 0, 15), call("urEnqueueKernelLaunch", 5, 5, 1, cat="xpu_runtime"), kernel("k", 15, 90, 1)),
        *(call("zeCommandListAppendBarrier", 20, 85, 1, cat="xpu_sync"), op("aten::add", 110, 10)),
    ]
    pageable = "Memcpy DtoH (Device -> Pageable)"
    traces = [
        *(copied("cudaMemcpyAsync", pageable), copied("cudaMemcpy", pageable)),
        *(copied("cudaMemcpyAsync", "Memcpy DtoH (Device -> Pinned)"), barrier),
    ]
    query = "SELECT both_busy_ns, only_host_ns, only_gpu_ns FROM host_gpu_overlap"
    overlaps = [con.execute(query).fetchall() for con in each(traces, "host_gpu_overlap")]
    waited = [(5 * US, 10 * US, 97 * US)]
    assert overlaps == [waited, waited, [(92 * US, 13 * US, 10 * US)], [(0, 25 * US, 90 * US)]]


def test_one_side_alone_is_no_overlap(rows: Rows) -> None:
    for trace in TRACES[-2:]:
        assert rows(trace, "host_gpu_overlap", "step") == []


events_of_a_trace = st.lists(
    st.one_of(
        st.tuples(st.just("op"), st.integers(0, 40), st.integers(0, 12), st.integers(1, 2)),
        st.tuples(st.just("sync"), st.integers(0, 40), st.integers(1, 6), st.integers(1, 2)),
        # launch time (negative: not in the trace), delay, duration
        st.tuples(st.just("work"), st.integers(-8, 40), st.integers(0, 12), st.integers(0, 6)),
    ),
    min_size=1,
    max_size=16,
)


def made(shapes: list[tuple[str, int, int, int]]) -> list[dict]:
    events = [x("user_annotation", "ProfilerStep#0", 3, 20), x("user_annotation", "ProfilerStep#1", 23, 30)]
    for number, (what, a, b, c) in enumerate(shapes):
        if what == "op":
            events.append(op(f"op{number}", a, b, tid=c))
        elif what == "sync":
            events.append(x("cuda_runtime", "cudaDeviceSynchronize", a, b, c))
        else:
            if a >= 0:
                events.append(call("cudaLaunchKernel", a, 1, number + 1, tid=1 + number % 2))
            name = "ncclDevKernel_AllReduce" if number % 3 == 0 else "gemm"
            cat = "gpu_memcpy" if number % 5 == 0 else "kernel"
            at = abs(a) + b
            events.append(kernel(name, at, c, number + 1, stream=7 + number % 3, device=number % 2, cat=cat))
    return events


def open_at(events: list[dict], at: float, tid: int | None = None, waits: bool = False) -> bool:
    """Return whether a call, or with `waits` a synchronization, runs at a time on a thread."""
    calls = [e for e in events if e["cat"] in ("cpu_op", "cuda_runtime") and e["ts"] <= at < e["ts"] + e["dur"]]
    return any(e["tid"] == tid and (not waits or "Synchronize" in e["name"]) for e in calls)


@pytest.mark.slow
@settings(max_examples=LISTS, deadline=None)
@given(at_once(events_of_a_trace, 40))
def test_every_microsecond_is_accounted_for(shapes: list[list[tuple[str, int, int, int]]]) -> None:
    """Brute force: each idle microsecond of each device has one owner, including leading and trailing idle time."""
    traces = [made(shape) for shape in shapes]
    for events, con in zip(traces, each(traces, *TABLES), strict=True):
        cells = range(64)
        owned = con.execute("SELECT device, start_ns, end_ns FROM idle_causes").fetchall()
        for device in {device for device, _, _ in owned}:
            work = [e for e in events if "stream" in e["args"] and e["args"]["device"] == device]
            for at in cells:
                busy = any(e["ts"] <= at < e["ts"] + e["dur"] for e in work)
                owners = sum(start <= US * at < end for gpu, start, end in owned if gpu == device)
                there = US * at < max(end for gpu, _, end in owned if gpu == device)
                assert owners == int(there and not busy and US * at >= min(US * e["ts"] for e in events)), (device, at)
        overlaps = (
            "SELECT start_ns, duration_ns, both_busy_ns, only_host_ns, only_gpu_ns, neither_ns FROM host_gpu_overlap"
        )
        for start, duration, *times in con.execute(overlaps).fetchall():
            states = [sides(events, at + 0.5) for at in cells if start <= US * at < start + duration]
            assert times == [US * states.count(state) for state in ((1, 1), (1, 0), (0, 1), (0, 0))]
        assert sums_that_differ(con) == []


def sides(events: list[dict], at: float) -> tuple[int, int]:
    """Return whether host and GPU are busy at a time."""
    host = any(open_at(events, at, tid) and not open_at(events, at, tid, waits=True) for tid in (1, 2))
    gpu = any("stream" in e["args"] and e["ts"] <= at < e["ts"] + e["dur"] for e in events)
    return int(host), int(gpu)


TABLES = (
    *("idle_causes", "idle_gaps", "step_losses", "host_gpu_overlap", "temporal_breakdown", "step_times", "kernels"),
    *("causes", "critical_path", "critical_path_windows", "serving_steps", "step_lengths"),
)
SUMS = {
    "owners of a device's idle time add up": """
        SELECT b.trace_id FROM temporal_breakdown AS b
        LEFT JOIN (SELECT trace_id, device, sum(duration_ns) AS ns FROM idle_causes WHERE is_inner GROUP BY ALL) AS g
            ON g.trace_id = b.trace_id AND g.device = b.device
        WHERE b.idle_ns <> coalesce(g.ns, 0)""",
    "the causes of a trace have the same owners": """
        SELECT trace_id FROM (
            SELECT trace_id, cause, name, sum(duration_ns) AS ns FROM idle_causes WHERE event_id IS NOT NULL GROUP BY ALL
        ) AS i
        FULL JOIN (FROM causes WHERE window_id = 'full' AND gpu_idle_ns > 0) AS c USING (trace_id, cause, name)
        WHERE i.ns IS DISTINCT FROM c.gpu_idle_ns
            AND trace_id IN (SELECT trace_id FROM temporal_breakdown GROUP BY trace_id HAVING count(device) = 1)""",
    "the path waits for earlier work where the owner is earlier work": """
        WITH path AS (
            SELECT p.trace_id, p.owner, CAST(w.path_start_ns - p.path_weight_ns
                + sum(p.path_weight_ns) OVER (PARTITION BY p.trace_id ORDER BY p.seq) AS BIGINT) AS start_ns
            FROM critical_path AS p JOIN critical_path_windows AS w USING (trace_id, window_id)
            WHERE p.window_id = 'full' QUALIFY p.path_weight_ns > 0
        ),
        times AS (
            SELECT trace_id, cause, unnest([start_ns, end_ns - 1]) AS start_ns FROM idle_causes
            WHERE event_id IS NOT NULL
        )
        SELECT i.trace_id FROM times AS i
        ASOF JOIN path AS p ON p.trace_id = i.trace_id AND p.start_ns <= i.start_ns
        WHERE (p.owner = 'earlier work, not in the trace') <> (i.cause = 'earlier_work')""",
    "a gap has the owner of most of it": """
        SELECT g.trace_id FROM idle_gaps AS g
        LEFT JOIN (
            SELECT *, max(ns) OVER (PARTITION BY trace_id, device, gap_no) AS most_ns,
                min(first_ns) OVER (PARTITION BY trace_id, device, gap_no) AS gap_ns
            FROM (
                SELECT trace_id, device, gap_no, cause, name, min(start_ns) AS first_ns, sum(duration_ns) AS ns
                FROM idle_causes WHERE is_inner GROUP BY ALL
            )
        ) AS i ON i.trace_id = g.trace_id AND i.device = g.device AND i.gap_ns = g.start_ns AND i.cause = g.cause
            AND i.name = g.name
        WHERE i.ns IS DISTINCT FROM g.owned_ns OR i.most_ns IS DISTINCT FROM g.owned_ns OR g.duration_ns < g.owned_ns""",
    "the parts of a step add up, and none is negative": """
        SELECT trace_id FROM step_losses
        WHERE duration_ns <> compute_ns + exposed_communication_ns + exposed_memory_ns + other_work_ns + idle_ns
            OR idle_cause_ns > idle_ns
            OR least(compute_ns, exposed_communication_ns, exposed_memory_ns, other_work_ns, idle_ns) < 0""",
    "a step has the owner of most of its idle time": """
        SELECT s.trace_id FROM step_losses AS s
        JOIN step_lengths AS p ON p.trace_id = s.trace_id AND p.step = s.step
        LEFT JOIN idle_causes AS i ON i.trace_id = s.trace_id AND i.device = s.device AND i.cause = s.idle_cause
            AND i.start_ns < p.end_ns AND i.end_ns > p.start_ns
        WHERE s.idle_cause IS NOT NULL
        GROUP BY s.trace_id, s.step, s.device, s.idle_cause_ns
        HAVING sum(least(i.end_ns, p.end_ns) - greatest(i.start_ns, p.start_ns)) IS DISTINCT FROM s.idle_cause_ns""",
    "a serving step waits for earlier work where it has the idle time": """
        SELECT s.trace_id FROM serving_steps AS s
        JOIN idle_causes AS i ON i.trace_id = s.trace_id AND i.cause = 'earlier_work'
            AND i.start_ns < s.start_ns + s.step_ns AND i.end_ns > s.start_ns
        GROUP BY s.trace_id, s.event_id, s.earlier_ns, s.step_ns, i.device
        HAVING sum(least(i.end_ns, s.start_ns + s.step_ns) - greatest(i.start_ns, s.start_ns)) > s.earlier_ns
            OR s.earlier_ns > s.step_ns""",
    "work of a step is no more than all work in it": """
        SELECT trace_id FROM step_times WHERE own_busy_ns > busy_ns OR own_busy_ns < 0""",
    "the parts of the overlap add up, and none is negative": """
        SELECT trace_id FROM host_gpu_overlap
        WHERE duration_ns <> both_busy_ns + only_host_ns + only_gpu_ns + neither_ns
            OR least(both_busy_ns, only_host_ns, only_gpu_ns, neither_ns) < 0""",
    "the GPU's part is its busy time, on one device": """
        SELECT o.trace_id FROM host_gpu_overlap AS o JOIN temporal_breakdown AS b ON b.trace_id = o.trace_id
        WHERE o.step IS NULL AND o.both_busy_ns + o.only_gpu_ns <> b.busy_ns
            AND o.trace_id IN (SELECT trace_id FROM temporal_breakdown GROUP BY trace_id HAVING count(*) = 1)""",
}


def sums_that_differ(con: duckdb.DuckDBPyConnection) -> list[str]:
    return [name for name, sql in SUMS.items() if con.execute(sql).fetchall()]


SUMS_OF_FRAMES = """
    SELECT k.trace_id FROM (SELECT trace_id, sum(duration_ns) AS ns FROM kernels GROUP BY trace_id) AS k
    SEMI JOIN (FROM events WHERE cat = 'python_function' AND duration_ns > 0) AS e ON e.trace_id = k.trace_id
    LEFT JOIN (SELECT trace_id, sum(gpu_ns) AS ns FROM python_frame_gpu_time GROUP BY trace_id) AS f
        ON f.trace_id = k.trace_id
    WHERE f.ns IS DISTINCT FROM k.ns"""
SUMS_OF_CORES = """
    SELECT k.trace_id FROM tensor_core_use AS u
    FULL JOIN (FROM kernels WHERE class = 'COMPUTATION' AND cat = 'kernel') AS k ON k.trace_id = u.trace_id
    GROUP BY k.trace_id, u.trace_id HAVING count(DISTINCT k.name) <> count(DISTINCT u.name)"""


def test_a_trace_without_gpu_work_has_lost_nothing_that_was_measured(rows: Rows) -> None:
    for table in ("step_losses", "idle_gaps", "host_gpu_overlap"):
        assert rows(WITHOUT_WORK, table, "trace_id") == []
    measured = "busy_ns, own_busy_ns, compute_ns, communication_ns"
    assert rows(WITHOUT_WORK, "step_times", measured) == [(None,) * 4]
    # A step without GPU work is idle if another step shows that GPUs were traced.
    losses = rows(ONE_OF_TWO, "step_losses", "step, device, compute_ns, idle_ns, idle_cause")
    assert losses == [(1, 0, 0, 100_000, "start"), (2, 0, 30_000, 70_000, "host_between_operators")]
    times = rows(ONE_OF_TWO, "step_times", f"step, device, {measured}")
    assert times == [(1, 0, 0, 0, 0, 0), (2, 0, 30_000, 30_000, 30_000, 0)]


def test_a_device_has_a_row_in_each_step(rows: Rows) -> None:
    """A device without work in a step is idle for the whole step, whether or not another device works in it."""
    times = rows(TWO_GPUS, "step_times", "step, device, duration_ns, busy_ns, own_busy_ns, communication_ns")
    assert times == [
        (0, 0, 100_000, 70_000, 70_000, 0), (0, 1, 100_000, 50_000, 50_000, 0), (1, 0, 100_000, 40_000, 40_000, 0),
        (1, 1, 100_000, 0, 0, 0), (2, 0, 100_000, 0, 0, 0), (2, 1, 100_000, 0, 0, 0),
    ]  # fmt: skip
    losses = rows(TWO_GPUS, "step_losses", "step, device, idle_ns, idle_cause IS NOT NULL")
    idle = [(30, True), (50, True), (60, True), (100, True), (100, True), (100, True)]
    assert losses == [
        (step, device, us * US, caused) for (step, device, *_), (us, caused) in zip(times, idle, strict=True)
    ]


def real_traces() -> list[Path]:
    return [path for path in sorted((SHARED / "traces").rglob("*.json*")) if is_trace(path)]


def check(traces: list[Path]) -> None:
    con, trace_ids = connect_all(traces)
    run_models(con, load_catalog(), [*TABLES, "python_frame_gpu_time", "tensor_core_use"])
    assert sums_that_differ(con) == [] and len(trace_ids) == len(traces)
    assert con.execute(SUMS_OF_FRAMES).fetchall() == [] == con.execute(SUMS_OF_CORES).fetchall()


@pytest.mark.slow  # a test above has sums of random traces
def test_sums_on_real_traces(shared: Path) -> None:
    check([path for path in real_traces() if path.stat().st_size <= LARGE])


def of_each_kind() -> Iterator[Path]:
    """Yield large traces: all of the folder `single`, and the first of each other folder (a recorder or job)."""
    seen: set[tuple[str, ...]] = set()
    for path in real_traces():
        folder = path.relative_to(SHARED / "traces").parent.parts[:2]
        if path.stat().st_size > LARGE and (folder == ("single",) or folder not in seen):
            seen.add(folder)
            yield path


@pytest.mark.slow
@pytest.mark.parametrize("trace", [*of_each_kind()], ids=lambda p: p.name)
def test_sums_on_large_real_traces(trace: Path) -> None:
    check([trace])


def test_idle_time_of_a_capture_has_the_same_owners(shared: Path, shown: Shown) -> None:
    con = shown(ALEXNET)
    causes = dict(con.execute("SELECT cause, sum(gpu_ns) FROM gpu_time_by_cause GROUP BY cause").fetchall())
    ours = dict(con.execute("SELECT cause, sum(duration_ns) FROM idle_causes GROUP BY cause").fetchall())
    launch = sum(ours.pop(cause, 0) for cause in ("launching", "gpu_waiting"))
    assert causes["launch_overhead"] == launch > 0 and causes["idle_host"] == sum(ours.values()) > 0


def test_work_from_before_the_trace_is_said_and_no_step_has_it(rows: Rows) -> None:
    assert rows(SERVED, "temporal_breakdown", "n_earlier, earlier_ns") == [(2, 48 * US)]
    assert rows(SERVED, "step_times", "busy_ns, own_busy_ns") == [(25 * US, 20 * US)]
    assert rows(SERVED, "serving_steps", "step_ns, earlier_ns") == [(60 * US, 10 * US)]
    causes = {cause for start_ns, cause in rows(SERVED, "idle_causes", "start_ns, cause") if start_ns == 50 * US}
    assert causes and "earlier_work" not in causes


def test_concurrent_work_from_before_the_trace_counts_once() -> None:
    """Concurrent work that was launched before the trace counts once per device, like all other times of the table."""
    trace = [
        *(kernel("a", 0, 90, 8), kernel("inside", 10, 20, 9, stream=8), kernel("longer", 80, 20, 9, stream=9)),
        *(kernel("apart", 105, 5, 9, stream=9), kernel("negative", 102, -5, 9, stream=9)),
        *(call("cudaLaunchKernel", 50, 5, 1), kernel("k", 120, 8, 1), kernel("other", 0, 30, 9, device=1)),
        *(call("cudaLaunchKernel", 60, 5, 2), kernel("k", 120, 8, 2, device=1)),
    ]
    columns = "device, span_ns, n_earlier, earlier_ns"
    times = rows_of(trace, "temporal_breakdown", columns)
    assert sorted(times) == [(0, 128 * US, 5, 105 * US), (1, 128 * US, 1, 30 * US)]


def test_a_wait_for_work_that_the_trace_lacks_is_said_alike(shared: Path, shown: Shown) -> None:
    """A copy of 463 ms in a decode waits for unrecorded work. Its owner, rates and idle time all report that."""
    con = shown(SGLANG)
    assert sums_that_differ(con) == []
    gaps = con.execute(
        "SELECT cause, name, owned_ns // 1000000 FROM idle_gaps ORDER BY duration_ns DESC LIMIT 1"
    ).fetchall()
    assert gaps == [("earlier_work", "earlier work, not in the trace", 463)]
    owners = con.execute(
        "SELECT sum(path_weight_ns) // 1000000 FROM critical_path WHERE owner = 'earlier work, not in the trace'"
    ).fetchall()
    assert owners == [(463,)]
    (row,) = con.sql(load_questions()["gpu-idle"].sql).to_arrow_table().to_pylist()
    assert (row["idle_cause"], row["idle_percent"]) == ("earlier_work", 97.9)
    steps = con.sql(load_questions()["serving-steps"].sql).to_arrow_table().to_pylist()
    assert [(step["earlier_percent"] > 90, step["caveat"]) for step in steps] == [
        (True, "rates include work from before the trace")
    ] * len(steps)
