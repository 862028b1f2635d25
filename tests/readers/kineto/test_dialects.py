"""Traces in the spellings of Kineto and of other writers, and in a mixture of spellings.

All of them have the same tables, path and causes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import call, connect_all, each, kernel, only, op, rows_of, x

from .dialects import LANE, Event, as_cuspy, as_of_2021, document, on_lanes, on_queues, spelled

FEW = ("kernels", "critical_path", "temporal_breakdown")
ALL = (*FEW, "causes", "window_gpu_time", "event_waits", "idle_gaps", "critical_path_edges")


def of_both(*changes: Callable[[Event], None]) -> Callable[[Event], None]:
    def change(event: Event) -> None:
        for spell in changes:
            spell(event)

    return change


def tables_of(traces: Iterable[dict[str, Any]], tables: Sequence[str]) -> list[dict[str, list[tuple]]]:
    """Return the rows of these tables for each trace, without the columns for trace, lane and thread."""
    con, trace_ids = connect_all(traces)
    contents = []
    with con:
        run_models(con, load_catalog(), tables)
        for trace_id in trace_ids:
            only(con, trace_id, tables)
            contents.append({table: rows(con, table) for table in tables})
    return contents


def rows(con: Any, table: str) -> list[tuple]:
    there = [name for name, *_ in con.execute(f"DESCRIBE {table}").fetchall()]
    columns = [name for name in there if name not in ("trace_id", "lane", "tid", "thread_id")]
    return con.execute(f"SELECT {', '.join(columns)} FROM {table} ORDER BY ALL").fetchall()


def replays(n: int = 5) -> dict[str, Any]:
    """Return replays of a graph on streams 7 and 20.

    The graph has two concurrent kernels, a copy that waits for both, and a memset.
    """
    events: list[Event] = []
    for i in range(n):
        at, correlation = 1000.0 * i, 10 + 2 * i
        events += [op("aten::replay", at, 90), call("cudaGraphLaunch", at + 10, 70, correlation)]
        work = [
            kernel("gemm", at + 100, 300, correlation),
            kernel("reduce", at + 100, 400, correlation, stream=20),
            kernel("Memcpy DtoH (Device -> Pinned)", at + 510, 50, correlation, cat="gpu_memcpy"),
            kernel("Memset (Device)", at + 562, 5, correlation, stream=20, cat="gpu_memset"),
        ]
        for node, event in enumerate(work):
            event["args"] |= {"graph node id": 41 + node, "graph id": 7, "External id": 3, "bytes": 8}
        events += [*work, call("cudaStreamSynchronize", at + 90, 480, correlation + 1)]
    return {"traceEvents": events}


DIALECTS: dict[str, tuple[Callable[[Event], None], int]] = {
    "cuspy": (as_cuspy, 1),
    "lanes": (on_lanes, 1),
    "both": (of_both(as_cuspy, on_lanes), 1),
    "one in two": (of_both(as_cuspy, on_lanes), 2),
    "one in ten": (of_both(as_cuspy, on_lanes), 10),
}


def check(trace: dict[str, Any], tables: Sequence[str]) -> None:
    expected, *others = tables_of([trace, *(spelled(trace, *how) for how in DIALECTS.values())], tables)
    assert expected["kernels"] and expected["critical_path"]
    for name, other in zip(DIALECTS, others, strict=True):
        for table in tables:
            assert other[table] == expected[table], (name, table)


@pytest.mark.slow  # compares all tables of real traces
@pytest.mark.parametrize("name", ["critical_path/cuda_event_sync", "h100_pairs/pageable_copies.A"])
def test_real_traces(name: str, shared: Path) -> None:
    check(document(shared / "traces" / f"{name}.json.gz"), ALL)


@pytest.mark.slow
def test_all_tables_of_replays() -> None:
    check(replays(), ALL)


SPELLINGS = (as_cuspy, on_lanes, as_of_2021, on_queues)
READ = "event_id, cat, name, pid, start_ns, duration_ns, device, stream, correlation, graph_node, graph_id, bytes"


def launches(n: int = 10) -> list[Event]:
    """Return kernels and copies on two streams, launched after the replays."""
    events: list[Event] = []
    for i in range(n):
        at, correlation = 10_000.0 + 100 * i, 100 + 2 * i
        events += [op("aten::mm", at, 40), call("cudaLaunchKernel", at + 10, 10, correlation)]
        events += [kernel("gemm", at + 30, 40, correlation)]
        events += [kernel("Memcpy HtoD (Pageable -> Device)", at + 75, 5, correlation + 1, 20, cat="gpu_memcpy")]
    return events


def test_one_row_in_ten_of_another_spelling_is_the_same_event() -> None:
    """Events have the same columns whether one row in ten or every row has another spelling.

    Every table is computed from these columns.
    """
    trace = {"traceEvents": [*replays()["traceEvents"], *launches()]}
    expected = rows_of(trace, "events", READ, "event_id")
    for change in SPELLINGS:
        for every in (10, 1):
            other = spelled(trace, change, every)
            assert other != trace
            assert rows_of(other, "events", READ, "event_id") == expected, (change.__name__, every)


COPIES = (
    # copy kind, src kind, dst kind, name; CUPTI's numbers where PyTorch has no name
    ("HtoD", "pageable", "device", "Memcpy HtoD (Pageable -> Device)"),
    ("DtoH", "device", "pinned", "Memcpy DtoH (Device -> Pinned)"),
    (9, 1, 2, "Memcpy HtoH (Pageable -> Pinned)"),
    ("PtoP", "device_static", "managed_static", "Memcpy PtoP (Device Static -> Managed Static)"),
    # Kineto's words, capital letters, and directions written in full.
    ("HtoD", "Pageable", "Device", "Memcpy HtoD (Pageable -> Device)"),
    ("HTOD", "PINNED", "Device Static", "Memcpy HtoD (Pinned -> Device Static)"),
    ("device_to_host", "device", "pageable", "Memcpy DtoH (Device -> Pageable)"),
    ("DtoD", "device", 77, "Memcpy DtoD"),
    (77, "device", "device", "Memcpy"),
    (None, None, None, "Memcpy"),
)


def test_names_of_copies_and_memsets() -> None:
    events = []
    for i, (copy, source, target, _) in enumerate(COPIES):
        kinds = {"copy kind": copy, "src kind": source, "dst kind": target}
        events.append(x("gpu_memcpy", "Memcpy", 10 * i, 5, **{key: kind for key, kind in kinds.items() if kind}))
    fills = {3: "Memset (Device)", "managed": "Memset (Managed)", 99: "Memset"}
    events += [x("gpu_memset", "Memset", 900 + i, 1, **{"memory kind": kind}) for i, kind in enumerate(fills)]
    # Names in Kineto's spelling are unchanged, and so are events that are not copies.
    events += [x("gpu_memcpy", "Memcpy DtoD (Device -> Device)", 990, 1, **{"copy kind": "HtoD"})]
    events += [x("cpu_op", "aten::copy_", 995, 1, **{"copy kind": "HtoD", "memory kind": 3})]
    names = [name for (name,) in rows_of(events, "events", "name", "start_ns")]
    expected = [*(row[-1] for row in COPIES), *fills.values(), "Memcpy DtoD (Device -> Device)", "aten::copy_"]
    assert names == expected


def test_streams_and_lanes() -> None:
    """The stream determines the order of work, and the lane is stored."""
    node = {"graph node id": 5}
    events = [
        x("kernel", "moved", 10, 5, LANE, 0, stream=LANE, original_stream=20, device=0, **node),
        x("kernel", "annotated, not moved", 20, 5, 20, 0, stream="33", device=0, **node),
        x("kernel", "asked for", 30, 5, 20, 0, stream=20, annotated_stream=33, device=0, **node),
        x("kernel", "eager", 40, 5, 7, 0, stream=7, device=0),
        x("kernel", "no graph", 50, 5, 21, 0, stream=22, device=0, **{"graph node id": 0}),
        x("kernel", "of 2021", 60, 5, "stream 7", 0, stream=7, device=0, **node),
        x("kernel", "not moved", 70, 5, 7, 0, stream=7, original_stream=7, device=0, **node),
        x("kernel", "nothing but tid", 80, 5, 7, 0, device=0, **node),
    ]
    assert rows_of(events, "kernels", "name, stream, lane", "start_ns") == [
        ("moved", 20, LANE),
        ("annotated, not moved", 20, 33),
        ("asked for", 20, None),
        ("eager", 7, None),
        ("no graph", 22, None),
        ("of 2021", 7, None),
        ("not moved", 7, None),
        ("nothing but tid", 7, None),
    ]
    assert rows_of(events, "streams", "stream, n_kernels", "stream") == [(7, 4), (20, 3), (22, 1)]


def test_queues_of_other_writers_are_streams() -> None:
    """The writers are Kineto on XPU and Triton's Proton, with a pid and without.

    A copy on AMD without a queue has no stream.
    """
    queue = {"sycl queue": 64, "l0 queue": "0x000055d0a0b0c0d0", "device": 0, "correlation": 1}
    no_pid = x("kernel", "Proton, old", 30, 5, 7, call_stack=["ROOT"])
    del no_pid["pid"]
    events = [
        x("kernel", "XPU", 10, 5, 0, 0, **queue),
        x("gpu_memcpy", "XPU, both", 20, 5, 0, 0, **{**queue, "stream": 65}),
        no_pid,
        x("kernel", "Proton", 40, 5, 2000020, 0, call_stack=["ROOT"]),
        x("kernel", "a lane with a name", 50, 5, "stream 7", 0),
        x("gpu_memcpy", "AMD", 60, 5, 3, 0, device=0, correlation=2),
        x("kernel", "no queue", 70, 5, 3, 0, device=0),
    ]
    streams = (("XPU", 64), ("XPU, both", 65), ("Proton, old", 7), ("Proton", 2000020))
    assert rows_of(events, "kernels", "name, stream", "start_ns") == [
        *streams,
        ("a lane with a name", None),
        ("AMD", None),
        ("no queue", None),
    ]


def test_metrics_of_a_kernel_on_xpu_are_no_kernel() -> None:
    """Rows of Kineto's XPU scope profiler (profiler_metrics) are not kernels.

    The profiler writes each kernel a second time, 1 ns longer on both sides.
    """
    queue = {"sycl queue": 64, "device": 0, "kernel_id": 3}
    metrics = {"kernel_id": 3, "queue": "0x000055d0a0b0c0d0", "GpuTime [ns]": 5000}
    counter = x("xpu_scope_profiler", "metrics", 9.999, 0, 0, 0, **{"GpuTime [ns]": 5000})
    events = [
        x("kernel", "gemm", 10, 5, 0, 0, correlation=1, **queue),
        x("kernel", "metrics: gemm", 9.999, 5.002, 0, 0, **metrics),
        {**counter, "ph": "C"},
        x("kernel", "metrics: of work", 20, 5, 0, 0, correlation=2, **queue),
        x("kernel", "metrics: of Proton", 30, 5, 7, 0, call_stack=["ROOT"]),
    ]
    work = [("gemm", 64, 5000), ("metrics: of work", 64, 5000), ("metrics: of Proton", 7, 5000)]
    assert rows_of(events, "kernels", "name, stream, duration_ns", "start_ns") == work
    rows = rows_of(events, "events", "name, stream", "cat = 'xpu_scope_profiler' DESC, event_id")
    assert rows[:2] == [("metrics: gemm", None), ("metrics", None)]


def beside_each_other(**queues: int) -> list[Event]:
    """Return a collective concurrent with computation, on two queues.

    The only keyword is the name of the argument that specifies the queue.
    """
    (queue,) = queues
    words = {"device": 0, "l0 queue": "0x000055d0a0b0c0d0"}
    return [
        op("aten::mm", 0, 30),
        call("urEnqueueKernelLaunch", 5, 5, 1, cat="xpu_runtime"),
        call("urEnqueueKernelLaunch", 15, 5, 2, cat="xpu_runtime"),
        x("kernel", "gemm", 40, 900, 0, 0, correlation=1, **words, **{queue: 64}),
        x("kernel", "ncclDevKernel_AllReduce_Sum_bf16_RING_LL", 50, 800, 0, 0, correlation=2, **words, **{queue: 66}),
    ]


def test_communication_on_another_queue_is_not_exposed() -> None:
    traces = [beside_each_other(**{queue: 0}) for queue in ("stream", "sycl queue")]
    stated, by_queue = tables_of([{"traceEvents": events} for events in traces], ("temporal_breakdown", "causes"))
    assert by_queue == stated and stated["causes"]
    assert "communication" not in {cause for _, cause, *_ in stated["causes"]}


SYNCHRONOUS = (
    *("cudaMemcpy", "cudaMemcpy2D", "cudaMemcpy3D_v3020", "cudaMemcpyPeer_v4000", "cudaMemcpyToSymbol"),
    *("cudaMemcpyFromSymbol_v3020", "cuMemcpyDtoH_v2", "cuMemcpyHtoD_v2_ptds", "cuMemcpy2D_v2"),
    *("hipMemcpyDtoH", "hipMemcpyHtoD", "hipMemcpy2D", "cudaMemcpy_ptds_v7000"),
)


def test_a_synchronous_copy_waits_for_the_work_before_it() -> None:
    """Every synchronous copy waits, including a copy to pinned memory.

    A call that returns before its copy has ended did not wait, whatever its name.
    """
    names = [*SYNCHRONOUS, "cudaMemcpyAsync", "cuMemcpyDtoHAsync_v2"]
    traces = [copied(name, returns) for name in names for returns in (1020, 40)]
    waited = [
        bool(
            con.execute("SELECT count(*) FROM _inferred_waits WHERE event_id = 2 AND basis <> 'call_order'").fetchall()[
                0
            ][0]
        )
        for con in each(traces, "_profiles", "_inferred_waits")
    ]
    assert dict(zip(names, zip(waited[::2], waited[1::2], strict=True), strict=True)) == {
        name: (name in SYNCHRONOUS, False) for name in names
    }


def copied(name: str, returns: float) -> list[Event]:
    """Return a kernel of a millisecond, a call that copies the kernel's result, and an operator after it.

    The call is the third event.
    """
    return [
        op("aten::mm", 0, 15),
        call("cudaLaunchKernel", 5, 5, 1),
        call(name, 20, returns - 20, 2, cat="cuda_driver" if name.startswith("cuM") else "cuda_runtime"),
        kernel("gemm", 15, 990, 1),
        kernel("Memcpy DtoH (Device -> Pinned)", 1006, 5, 2, cat="gpu_memcpy"),
        op("aten::add", returns + 1, 30),
    ]


def waiting_on_xpu(*waits: Event) -> list[Event]:
    """Return a kernel of a millisecond, the passed waits for this kernel, and an operator after them."""
    return [
        op("aten::mm", 0, 15),
        call("urEnqueueKernelLaunch", 5, 5, 1, cat="xpu_runtime"),
        kernel("gemm", 15, 990, 1),
        *waits,
        op("aten::add", 1011, 30),
    ]


def wait_on_xpu(name: str, at: float, pid: int = -1) -> Event:
    """Return a wait as Kineto writes it (PR 1395).

    The wait has no process. If a call contains it, the wait has the call's id.
    """
    return {**call(name, at, 1010 - at, 1, cat="xpu_sync"), "pid": pid}


def test_waits_of_xpu_are_of_the_thread_that_calls() -> None:
    """Waits on XPU belong to the thread that calls.

    A wait inside a call that itself waits adds nothing. Neither does the wait of a barrier, which has the GPU's times.
    """
    finish = call("urQueueFinish", 18, 993, 9, cat="xpu_runtime")
    inner, barrier = (wait_on_xpu(f"zeCommandList{name}", 20) for name in ("HostSynchronize", "AppendBarrier"))
    traces = [waiting_on_xpu(*waits) for waits in ((inner,), (finish,), (finish, inner), (barrier,))]
    tables = ("_profiles", "threads", "_inferred_waits", "_links", "causes")
    seen = [
        [con.execute(f"SELECT {columns} FROM {table} ORDER BY ALL").fetchall() for table, columns in COLUMNS.items()]
        for con in each(traces, *tables)
    ]
    threads = [("0", "7"), ("100", "1")]
    assert [of_trace[0] for of_trace in seen] == [threads] * len(traces)
    assert [of_trace[1] for of_trace in seen] == [[(3, 2)], [(3, 2)], [(3, 2)], []]
    assert [of_trace[2] for of_trace in seen] == [[(2, 1)]] * len(traces)
    assert seen[2] == seen[1]
    assert {cause for cause, *_ in seen[0][3]} == {cause for cause, *_ in seen[1][3]}


COLUMNS = {
    "threads": "pid, tid",
    "_inferred_waits WHERE basis <> 'call_order'": "event_id, source_event_id",
    "_links": "gpu_event_id, launch_event_id",
    "causes": "cause, name, duration_ns, saves_ns, cause_saves_ns",
}


def test_a_wait_of_xpu_without_calls_on_its_thread_keeps_its_process() -> None:
    """A wait also keeps its process if two processes have a thread with its number.

    Other rows of process -1 are unchanged.
    """
    other = {**call("urQueueFinish", 2000, 5, 30, cat="xpu_runtime"), "pid": 200}
    alone = {**wait_on_xpu("zeEventHostSynchronize", 20), "tid": 5}
    overhead = x("overhead", "Buffer Flush", 5, 5, 1, -1)
    for events in ([alone, overhead], [wait_on_xpu("zeEventHostSynchronize", 20), other]):
        threads = rows_of(waiting_on_xpu(*events), "threads", "pid, tid")
        assert [pid for pid, _ in threads].count("-1") == len({event["tid"] for event in events if event["pid"] == -1})
