"""The number of launches on a stream whose work has not started yet, compared with counts by hand."""

from __future__ import annotations

from tests.harness import call, kernel, rows_of, sync

COLUMNS = "stream, event_id, change, queue_length"


def test_a_graph_is_one_launch_on_each_of_its_streams() -> None:
    events = [
        *(call("cudaGraphLaunch", 100, 5, 1), kernel("a", 110, 10, 1), kernel("b", 121, 10, 1)),
        *(kernel("beside", 121, 10, 1, stream=8), call("cudaLaunchKernel", 106, 5, 2), kernel("c", 132, 10, 2)),
    ]
    assert rows_of(events, "queue_length", COLUMNS, "stream, at_ns") == [
        *((7, 0, 1, 1), (7, 4, 1, 2), (7, 1, -1, 1), (7, 5, -1, 0)),
        *((8, 0, 1, 1), (8, 3, -1, 0)),
    ]


def test_a_copy_whose_call_has_a_record_of_its_wait_is_one_launch() -> None:
    copy = kernel("Memcpy DtoH (Device -> Pageable)", 110, 10, 1, cat="gpu_memcpy")
    events = [call("cudaMemcpyAsync", 100, 25, 1), copy, sync("Stream Sync", 105, 16, 1, stream=7)]
    assert rows_of(events, "queue_length", COLUMNS, "at_ns") == [(7, 0, 1, 1), (7, 1, -1, 0)]
