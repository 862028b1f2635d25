"""call_roles.csv, categories.csv and category_sides.csv: the roles of calls by name, and the effects of categories."""

from __future__ import annotations

import pytest

from pipelines.base.datafiles import rule_rows
from pipelines.critical_path.graph.skippable_models import CALL_SUFFIXES
from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.critical_path.whatif.sensitivity import ONLY_WAITS
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import call, connect, each, kernel, rows_of, sync, x

HTA_CALLS = {
    # HTA 2.7
    "launch": {
        "cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernel", "cuLaunchKernelEx", "cudaMemcpyAsync",
        "cudaMemsetAsync", "hipLaunchKernel", "hipExtModuleLaunchKernel", "hipMemcpyAsync", "hipMemsetAsync",
        "hipMemcpyWithStream", "runFunction - job_prep_and_submit_for_execution",
    },
    # HTA 2.8.3
    "blocking": {
        "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventQuery", "cudaEventSynchronize", "cudaMemcpy",
        "cudaMemcpyAsync",
    },
    # HTA 2.8.4
    "lock": {"cudaHostAlloc", "cudaLaunchKernel", "cudaMemcpyAsync"},
    # HTA 2.8.8
    "record": {"cudaEventRecord"},
    "wait": {"cudaStreamWaitEvent"},
}  # fmt: skip
DEFAULT_CALLS = {
    "launch": set(),  # by its link to GPU work, whatever its name: see test_any_call_launches
    "blocking": {
        "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventQuery", "cudaEventSynchronize", "cudaMemcpy",
        "cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize", "cuEventQuery", "hipDeviceSynchronize",
        "hipStreamSynchronize", "hipEventSynchronize", "hipEventQuery", "hipMemcpy", "hipMemcpyWithStream",
    },
    "lock": {"cudaHostAlloc", "cudaLaunchKernel", "cudaMemcpyAsync"},
    "record": {
        "cudaEventRecord", "cudaEventRecordWithFlags", "cuEventRecord", "cuEventRecordWithFlags", "hipEventRecord",
        "hipEventRecordWithFlags",
    },
    "wait": {"cudaStreamWaitEvent", "cuStreamWaitEvent", "hipStreamWaitEvent"},
}  # fmt: skip
CALLS = {"hta": HTA_CALLS, "default": DEFAULT_CALLS}
EVERY_CALL = sorted({name for roles in CALLS.values() for names in roles.values() for name in names} | {"cudaMalloc"})


@pytest.mark.parametrize("profile", ["hta", "default"])
def test_what_each_call_is(profile: str) -> None:
    """Each call has the expected roles in both profiles.

    A name with an additional ending is another call, unless the ending is a version (test_dialects).
    """
    names = [*EVERY_CALL, *(f"{name}_ext" for name in EVERY_CALL)]
    con, trace_id = connect([call(name, 10 * i, 5, i + 1) for i, name in enumerate(names)])
    request_windows(con, [WindowRequest(trace_id, profile=profile)])
    run_models(con, load_catalog(), ["_loaded_events"])
    for role, expected in CALLS[profile].items():
        query = f"SELECT e.name FROM _loaded_events JOIN events AS e USING (event_id) WHERE is_{role}"
        assert {name for (name,) in con.execute(query).fetchall()} == expected, role


@pytest.mark.slow  # 2 s
@pytest.mark.parametrize("profile", ["hta", "default"])
def test_a_blocking_call_weighs_nothing_while_the_gpu_works(profile: str) -> None:
    """A blocking call has no weight on the path while the GPU works.

    Each step has one call during work that began before the call. In profile default the call's name is irrelevant,
    because a row states the wait.
    """
    events, by_id = [], {}
    for i, name in enumerate(EVERY_CALL):
        start = 1000 * i
        by_id[len(events) + 2] = name
        events += [
            call("cudaLaunchKernel", start, 5, 2 * i + 1),
            kernel("gemm", start + 8, 500, 2 * i + 1),
            call(name, start + 10, 505, 2 * i + 2),
            sync("Context Sync", start + 10, 500, 2 * i + 2),
        ]
    con, trace_id = connect(events)
    request_windows(con, [WindowRequest(trace_id, profile=profile)])
    run_models(con, load_catalog(), ["_edges"])
    into = "SELECT dst_node_id // 2, max(path_weight_ns) FROM _edges WHERE dst_node_id % 2 = 1 AND src_node_id = dst_node_id - 1 GROUP BY 1"
    if profile == "hta":
        into = "SELECT dst_node_id // 2, max(path_weight_ns) FROM _edges WHERE dst_node_id % 2 = 1 GROUP BY 1"
    # In default a call keeps, of its 505 us, the time that a call without a wait takes.
    needs = 0 if profile == "hta" else 3_000
    weightless = {by_id[event] for event, ns in con.execute(into).fetchall() if event in by_id and ns <= needs}
    # HTA: a lock edge carries cudaMemcpyAsync's duration (2.8.4).
    waiting = {"hta": CALLS["hta"]["blocking"] - CALLS["hta"]["lock"], "default": {*EVERY_CALL}}
    assert weightless == waiting[profile]


def test_calls_of_code_with_a_default_stream_per_thread_wait_too() -> None:
    traces = [
        [call("cudaLaunchKernel", 0, 5, 1), kernel("k", 4, 40, 1), call(name, 10, 40, 2)]
        for name in ("cudaStreamSynchronize", "cudaStreamSynchronize_ptsz", "cudaMalloc")
    ]
    query = "SELECT both_busy_ns, only_host_ns, only_gpu_ns FROM host_gpu_overlap ORDER BY ALL"
    overlaps = [con.execute(query).fetchall() for con in each(traces, "host_gpu_overlap")]
    assert overlaps[0] == overlaps[1] != overlaps[2]
    assert "cudaStreamSynchronize_ptsz" in ONLY_WAITS


def test_a_call_with_each_suffix_is_the_call() -> None:
    """A call with any known suffix counts as the call without it.

    The model, the table of overlaps and the Python code that skips unneeded models all accept the suffixes.
    """
    names = [f"cudaStreamSynchronize{suffix}" for suffix in CALL_SUFFIXES]
    blocking = rows_of([call(name, 10 * i, 5, i + 1) for i, name in enumerate(names)], "_loaded_events", "is_blocking")
    assert blocking == [(True,)] * len(names)
    traces = [
        [call("cudaLaunchKernel", 0, 5, 1), kernel("k", 4, 40, 1), call(name, 10, 40, 2)]
        for name in (*names, "cudaMalloc")
    ]
    query = "SELECT both_busy_ns, only_host_ns, only_gpu_ns FROM host_gpu_overlap ORDER BY ALL"
    *waiting, other = [con.execute(query).fetchall() for con in each(traces, "host_gpu_overlap")]
    assert waiting == [waiting[0]] * len(names) and waiting[0] != other


OF_CUPTI = {
    "cudaEventRecordWithFlags": "v11010", "cudaStreamBeginCapture": "v10000", "cudaStreamEndCapture": "v10000",
    "cudaStreamBeginCaptureToGraph": "v12030", "cudaLaunchKernelExC": "v11060", "cudaLaunchCooperativeKernel": "v9000",
}  # fmt: skip
"""Calls in the rules that CUDA added after version 7, with the version that added each (cupti_runtime_cbid.h)."""


@pytest.mark.parametrize("stream", ["", "ptsz_"])
def test_the_rules_know_cuptis_names_of_newer_calls(stream: str) -> None:
    ruled = {row["name"] for table in ("call_roles", "capture_calls") for row in rule_rows(table)}
    assert set(OF_CUPTI) <= ruled and {f"_{stream}{version}" for version in OF_CUPTI.values()} <= set(CALL_SUFFIXES)


@pytest.mark.parametrize("suffix", ["_v2", "_ptsz_v7000", "_v10000"])
def test_a_capture_is_found_whatever_its_calls_end_in(suffix: str) -> None:
    begin, add, end = (
        f"{name}{suffix}" for name in ("cuStreamBeginCapture", "cuMemcpyDtoHAsync", "cuStreamEndCapture")
    )
    calls = [call(name, 10 * i, 5, i + 10) for i, name in enumerate((begin, add, end))]
    events = [*calls, call("cudaLaunchKernel", 50, 5, 1), kernel("k", 60, 5, 1)]
    assert rows_of(events, "_graph_captures", "event_id") == [(0,)]
    assert rows_of(events, "_capture_calls", "event_id") == [(1,)]


def test_any_call_launches() -> None:
    """In default, any call that GPU work is linked to is a launch, whatever its name."""
    events = [call("cudaLaunchOfTomorrow", 0, 5, 1), kernel("gemm", 20, 5, 1)]
    assert rows_of(events, "queue_length", "event_id, change, queue_length") == [(0, 1, 1), (1, -1, 0)]


def test_the_old_spellings_of_categories() -> None:
    """Old spellings of categories are replaced by today's. Writers before 2022 and documents about waits use them."""
    spelled = {
        "Operator": "cpu_op",
        "Kernel": "kernel",
        "Memcpy": "gpu_memcpy",
        "Memset": "gpu_memset",
        "Runtime": "cuda_runtime",
        "Driver": "cuda_driver",
        "Python function": "python_function",
        "python function": "python_function",
        "User Annotation": "user_annotation",
        "async": "ac2g",
        "synchronization": "cuda_sync",
        "cpu_op": "cpu_op",
        "something else": "something else",
    }
    rows = rows_of([x(cat, "name", 10 * i, 5) for i, cat in enumerate(spelled)], "events", "cat", "start_ns")
    assert [cat for (cat,) in rows] == list(spelled.values())


def test_the_side_of_each_category() -> None:
    """The sides equal those in Kineto and HTA. An unknown category belongs to the CPU and is not an operator."""
    sides = {
        "cpu_op": ("cpu", True),
        "cuda_runtime": ("cpu", True),
        "cuda_driver": ("cpu", True),
        "hip_runtime": ("cpu", True),
        "xpu_runtime": ("cpu", True),
        "xpu_driver": ("cpu", True),
        "xpu_sync": ("cpu", True),
        "mtia_runtime": ("cpu", True),
        "privateuse1_runtime": ("cpu", True),
        "privateuse1_driver": ("cpu", True),
        "kernel": ("gpu", False),
        "gpu_memcpy": ("gpu", False),
        "gpu_memset": ("gpu", False),
        "mtia_ccp_events": ("gpu", False),
        "cuda_sync": ("sync", False),
        "gpu_user_annotation": ("annotation", False),
        "cuda_event": ("annotation", False),
        "user_annotation": ("cpu", False),
        "python_function": ("cpu", False),
        "of tomorrow": ("cpu", False),
    }
    unseen = (
        "overhead",
        "Trace",
        "cuda_profiler_range",
        "gpu_metrics",
        "graph_event_node",
        "graph_host_node",
        "xpu_scope_profiler",
    )
    con, _ = connect([x(cat, "name", 10 * i, 5) for i, cat in enumerate([*sides, *unseen])])
    run_models(con, load_catalog(), ["_loaded_events", "category_sides", "kernels"])
    query = "SELECT e.cat, side, is_operator FROM _loaded_events JOIN events AS e USING (event_id)"
    by_category = {cat: (side, is_operator) for cat, side, is_operator in con.execute(query).fetchall()}
    assert by_category == sides
    listed = {cat for (cat,) in con.execute("SELECT cat FROM category_sides").fetchall()}
    assert listed == {*sides, *unseen} - {"of tomorrow"}
    work = {cat for (cat,) in con.execute("SELECT cat FROM kernels").fetchall()}
    assert work == {cat for cat, (side, _) in sides.items() if side == "gpu"}
