"""The two dependency diagrams of the study of HTA (HTA-17, HTA-18) as traces, with times in milliseconds."""

from __future__ import annotations

import pytest

from pipelines.critical_path.answer.answer import critical_path
from pipelines.critical_path.graph.windows import WindowRequest, request_windows
from pipelines.models.catalog import load_catalog
from pipelines.models.run import run_models
from tests.harness import call, connect, kernel, op, sync

MS = 1000


@pytest.mark.slow  # 2 s each; tests/sql/sync tests such waits, and test_covers.py their time
@pytest.mark.parametrize("profile", ["default", "hta"])
def test_three_kinds_of_synchronisation(profile: str) -> None:
    """HTA-17: a context, a stream and an event sync for kernels on two streams.

    K1 (10 ms) and K2 (8) are on one stream, K3 (12) and K4 (7) on another. The diagram draws edges from K1 and K2 to
    the context sync. The test follows the document's text instead (trap T13): the last work of every stream.
    """
    events = [
        call("cudaLaunchKernel", 0, 50, 1),
        call("cudaLaunchKernel", 100, 50, 2),
        call("cudaLaunchKernel", 200, 50, 3),
        kernel("K1", 1 * MS, 10 * MS, 1, stream=1),
        kernel("K2", 11 * MS + 10, 8 * MS, 2, stream=1),
        kernel("K3", 1 * MS, 12 * MS, 3, stream=2),
        call("cudaDeviceSynchronize", 300, 19 * MS, 4),
        sync("Context Sync", 300, 19 * MS - 200, 4),
        call("cudaStreamSynchronize", 20 * MS, 100, 5),
        sync("Stream Sync", 20 * MS, 90, 5, stream=2),
        call("cudaLaunchKernel", 21 * MS, 50, 6),
        kernel("K4", 22 * MS, 7 * MS, 6, stream=2),
        call("cudaEventRecord", 21 * MS + 100, 10, 7),
        call("cudaEventSynchronize", 21 * MS + 200, 8 * MS, 8),
        sync("Event Sync", 21 * MS + 200, 8 * MS - 100, 8, wait_on_stream=2, wait_on_cuda_event_record_corr_id=7),
    ]
    con, trace_id = connect(events)
    request_windows(con, [WindowRequest(trace_id, profile=profile)])
    run_models(con, load_catalog(), ["critical_path_edges"])
    rows = con.execute(
        "SELECT edge_type, s.name, e.src_is_start, d.name, e.dst_is_start, e.weight_ns / 1e6 FROM critical_path_edges AS e "
        "JOIN events AS s ON s.event_id = e.src_event_id JOIN events AS d ON d.event_id = e.dst_event_id"
    ).fetchall()
    waits = {(src, dst) for kind, src, starts, dst, also, _ in rows if kind == "SYNC_DEPENDENCY" and not starts | also}
    of_hta = [("K2", "cudaDeviceSynchronize"), ("K3", "cudaDeviceSynchronize"), ("K4", "cudaEventSynchronize")]
    assert waits == {
        *(of_hta if profile == "hta" else []),
        ("K3", "cudaStreamSynchronize"),
    }
    # In the default profile, the time of a call beyond a short return is its own: 0.29 and 0.2 ms after K2 and K4.
    own = {
        (src, dst)
        for kind, src, starts, dst, also, _ in rows
        if kind == "OPERATOR_KERNEL" and src[0] == "K" and not also
    }
    assert {pair for pair in own if pair[1].startswith("cuda")} == (set() if profile == "hta" else set(of_hta))
    assert {src: ms for kind, src, starts, dst, _, ms in rows if src == dst and starts and src.startswith("K")} == {
        "K1": 10, "K2": 8, "K3": 12, "K4": 7
    }  # fmt: skip


@pytest.mark.slow  # 2 s: tests/critical_path/test_covers.py
def test_operator_launch_kernel_gap_kernel_operator() -> None:
    """HTA-18: operator 5 ms, launch delay 2, kernel A 10, delay 1, kernel B 8, then 3 ms until the next operator, 6 ms.

    B was launched while A ran, so the drawn launch delay is a delay between kernels (HTA-9, HTA-10). The 3 ms after B
    are the call's own time, because the wait lasted longer than the work.
    """
    events = [
        op("op1", 0, 5 * MS),
        call("cudaLaunchKernel", 5 * MS - 100, 50, 1),
        call("cudaLaunchKernel", 5 * MS - 40, 40, 2),
        kernel("A", 7 * MS, 10 * MS, 1),
        kernel("B", 18 * MS, 8 * MS, 2),
        call("cudaDeviceSynchronize", 5 * MS + 10, 24 * MS - 10, 3),
        sync("Context Sync", 5 * MS + 10, 24 * MS - 20, 3),
        op("op2", 29 * MS, 6 * MS),
    ]
    con, trace_id = connect(events)
    answer = critical_path(con, load_catalog(), WindowRequest(trace_id))
    steps = [(step["edge_type"], step["name"], step["duration_us"] / MS) for step in answer.path if step["duration_us"]]
    assert steps == [
        ("OPERATOR_KERNEL", "op1", 4.9),
        ("KERNEL_LAUNCH_DELAY", "A", 2.1),  # from the call's start, 0.1 ms before the operator's end
        ("OPERATOR_KERNEL", "A", 10),
        ("KERNEL_KERNEL_DELAY", "B", 1),
        ("OPERATOR_KERNEL", "B", 8),
        ("OPERATOR_KERNEL", "cudaDeviceSynchronize", 3),
        ("OPERATOR_KERNEL", "op2", 6),
    ]
    assert answer.window_us == answer.length_us == 35 * MS
