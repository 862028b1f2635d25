"""What a rank without cuda_sync rows may guess, and that a rank with them does not."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.fleet.path.joined import join_ranks
from pipelines.fleet.path.load_ranks import load_ranks
from pipelines.fleet.path.walk import Segment, walk_back
from tests.harness import call, connect, kernel, op, sync

# A copy that the host waits for with a blocking call while another stream still computes what it copies.
COPY_WAITS = [
    op("aten::mm", 1000, 30),
    call("cudaLaunchKernel", 1010, 10, 1),
    kernel("gemm", 1050, 400, 1, stream=7),
    call("cudaMemcpyAsync", 1040, 430, 2),
    kernel("Memcpy DtoH", 1455, 10, 2, stream=20, cat="gpu_memcpy"),
    op("aten::add", 1475, 25),
]
# The device is waited for; what ends last counts, though not what is launched by another thread meanwhile.
DEVICE_WAITS = [
    call("cudaLaunchKernel", 1000, 10, 1),
    kernel("gemm", 1020, 400, 1, stream=7),
    call("cudaDeviceSynchronize", 1020, 410, 2),
    call("cudaLaunchKernel", 1405, 5, 3, tid=2),
    kernel("late", 1421, 8, 3, stream=20),
    op("aten::add", 1440, 25),
]
# The backward thread begins when the forward thread has handed over, and that goes on 60 us after it has ended.
THREADS = [
    op("aten::linear", 1000, 100, tid=1),
    op("AddmmBackward0", 1130, 200, tid=2),
    op("optimizer", 1390, 50, tid=1),
]
SYNCED = [sync("Context Sync", 990, 1, 9)]


def _path(trace: list[dict[str, Any]], target: str = "last_event_end", **options: Any) -> list[Segment]:
    con, trace_id = connect(trace)
    return walk_back(join_ranks(list(load_ranks(con, {0: trace_id}, **options)), [], {}), target)


def _told(trace: list[dict[str, Any]], path: list[Segment]) -> list[tuple]:
    start = path[0].start_ns
    return [
        (s.kind, trace[s.event_id]["name"], (s.start_ns - start) / 1000, (s.end_ns - start) / 1000)
        for s in path
        if s.guessed
    ]


def test_a_copy_waits_for_another_stream_and_the_call_for_its_copy() -> None:
    assert _told(COPY_WAITS, _path(COPY_WAITS)) == [
        ("cross_stream_wait", "Memcpy DtoH", 450.0, 455.0),
        ("sync_return", "cudaMemcpyAsync", 465.0, 470.0),
    ]


def test_the_device_is_waited_for() -> None:
    path = _path(DEVICE_WAITS)
    assert _told(DEVICE_WAITS, path) == [("sync_return", "cudaDeviceSynchronize", 420.0, 430.0)]
    assert ("gpu_kernel", 400_000) in [(s.kind, s.duration_ns) for s in path]


def test_threads_hand_over() -> None:
    assert _told(THREADS, _path(THREADS)) == [
        ("thread_hand_off", "AddmmBackward0", 100.0, 130.0),
        ("thread_hand_off", "optimizer", 330.0, 390.0),
    ]


def test_nobody_waits_for_what_is_not_there_yet() -> None:
    # The copy ends long after the call, so it is no blocking copy; a short call needs no reason.
    later = [
        *COPY_WAITS[:4],
        kernel("Memcpy DtoH", 1955, 10, 2, stream=20, cat="gpu_memcpy"),
        op("aten::add", 1980, 25),
    ]
    assert _told(later, _path(later)) == []
    short = [*DEVICE_WAITS[:2], call("cudaDeviceSynchronize", 1410, 15, 2), op("aten::add", 1430, 25)]
    assert _told(short, _path(short)) == []


@pytest.mark.parametrize("trace", [COPY_WAITS, DEVICE_WAITS, THREADS])
def test_a_trace_with_sync_rows_is_not_guessed_about(trace: list[dict[str, Any]]) -> None:
    path = _path([*trace, *SYNCED])
    assert not any(s.guessed for s in path)
    assert sum(s.duration_ns for s in path) == path[-1].end_ns - path[0].start_ns


def test_a_known_sync_is_no_guess() -> None:
    trace = [*DEVICE_WAITS[:3], sync("Context Sync", 1022, 406, 2), op("aten::add", 1440, 25)]
    path = _path(trace)
    (returned,) = [s for s in path if s.kind == "sync_return"]
    assert (returned.duration_ns, returned.guessed) == (10_000, False)


@pytest.mark.parametrize("profile", ["default", "hta"])
def test_without_guesses_the_rest_is_a_gap(profile: str) -> None:
    path = _path([*COPY_WAITS, *SYNCED], profile=profile, switches={"blocking_is_free": "always"})
    assert path[-1].end_ns - path[0].start_ns == sum(s.duration_ns for s in path)
