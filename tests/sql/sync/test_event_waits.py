"""Waits joined to their records, compared with joins by hand."""

from __future__ import annotations

import pytest

from tests.batch import Batch
from tests.harness import call, kernel, op, rows_of, sync, x

COLUMNS = "wait_event_id, record_event_id, source_kernel_id, waiting_kernel_id"
BATCH = Batch("event_waits")


def waits(number: int) -> list[tuple]:
    return BATCH.rows(number, f"SELECT {COLUMNS} FROM event_waits ORDER BY ALL")


def spelled(launch: str, record: str, wait: str) -> list[dict]:
    """Return a kernel, its record and another kernel on stream 7, and a wait and a kernel on stream 8."""
    args = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 2}
    return [
        call(launch, 100, 5, 1),
        kernel("a", 110, 50, 1, stream=7),
        call(record, 106, 1, 2),
        call(launch, 108, 1, 9),
        kernel("later", 160, 5, 9, stream=7),
        call(wait, 110, 1, 3),
        sync("Stream Wait Event", 110, 1, 3, stream=8, **args),
        call(launch, 112, 5, 4),
        kernel("b", 165, 10, 4, stream=8),
    ]


SPELLED = {
    spelling: BATCH.append(
        spelled(*(spelling.replace("*", name) for name in ("LaunchKernel", "EventRecord", "StreamWaitEvent")))
    )
    for spelling in ("cuda*", "cu*", "hip*", "cuda*_ptsz", "hip*_spt")
}


@pytest.mark.parametrize("spelling", SPELLED)
def test_a_wait_finds_the_work_before_its_record_and_the_work_after_itself(spelling: str) -> None:
    assert waits(SPELLED[spelling]) == [(6, 2, 1, 8)]


BACKWARD = "autograd::engine::evaluate_function: X"
END_OF_BACKWARD = BATCH.append([
    *(op("aten::forward", 0, 30), call("cudaLaunchKernel", 10, 5, 1), kernel("forward", 20, 10, 1, stream=7)),
    *(op(BACKWARD, 50, 60, tid=2), call("cudaLaunchKernel", 60, 5, 2, tid=2), kernel("grad", 70, 99, 2, stream=8)),
    *(call("cudaEventRecord", 70, 2, 3, tid=2), call("cudaStreamWaitEvent", 75, 2, 4, tid=2)),
    sync("Stream Wait Event", 75, 2, 4, stream=7, wait_on_stream=8, wait_on_cuda_event_record_corr_id=3),
    *(call("cudaLaunchKernel", 130, 5, 5), kernel("optimizer", 172, 50, 5, stream=7)),
    *(op(BACKWARD, 250, 20, tid=2), call("cudaLaunchKernel", 260, 5, 6, tid=2), kernel("next", 270, 9, 6, stream=7)),
])  # fmt: skip


def test_what_autograds_thread_makes_a_stream_wait_for_holds_up_the_next_launch_of_the_thread_that_called_backward() -> (
    None
):
    """A wait by autograd's thread delays the next launch of the thread that called backward.

    At the end of backward, autograd's thread makes the caller's stream wait for the other streams.
    """
    assert waits(END_OF_BACKWARD) == [(8, 6, 5, 10)]


AT_THE_RECORDS_TIME = BATCH.append([
    *(call("cudaLaunchKernel", 100, 5, 1), kernel("a", 110, 50, 1, stream=7), call("cudaEventRecord", 100, 1, 2)),
    call("cudaEventSynchronize", 120, 60, 3),
    sync("Event Sync", 120, 60, 3, wait_on_stream=7, wait_on_cuda_event_record_corr_id=2),
    call("cudaStreamWaitEvent", 190, 1, 5),
    sync("Stream Wait Event", 190, 1, 5, stream=8, wait_on_stream=7, wait_on_cuda_event_record_corr_id=77),
])  # fmt: skip


def test_a_launch_at_the_records_time_counts_and_a_missing_record_is_null() -> None:
    assert waits(AT_THE_RECORDS_TIME) == [(4, 2, 1, None), (6, None, None, None)]


THIRD_ON_7 = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 3}
AT_ONCE = BATCH.append([
    *(call("cudaLaunchKernel", 100, 0, 1), kernel("a", 110, 20, 1, stream=7)),
    *(call("cudaLaunchKernel", 100, 0, 2), kernel("last", 131, 20, 2, stream=7)),
    call("cudaEventRecord", 100, 1, 3),
    *(call("cudaStreamWaitEvent", 110, 1, 4), sync("Stream Wait Event", 110, 1, 4, stream=8, **THIRD_ON_7)),
    *(call("cudaLaunchKernel", 110, 1, 5), kernel("before", 120, 10, 5, stream=8)),
    *(call("cudaLaunchKernel", 112, 5, 6), kernel("waiting", 165, 10, 6, stream=8)),
])  # fmt: skip


def test_of_calls_that_begin_at_once_the_last_was_recorded_and_a_launch_came_before_a_wait() -> None:
    """Of records that start at the same time the last counts, and a launch precedes a wait.

    Calls start at the same time if times are in whole microseconds.
    """
    assert waits(AT_ONCE) == [(6, 4, 3, 10)]


TWO_DEVICES = [
    *(call("cudaLaunchKernel", 100, 2, 1), kernel("own", 110, 50, 1, stream=7, device=1)),
    *(call("cudaLaunchKernel", 103, 2, 2), kernel("other", 110, 50, 2, stream=7, device=0)),
    call("cudaEventRecord", 106, 1, 3),
    call("cudaStreamWaitEvent", 110, 1, 4),
    sync("Stream Wait Event", 110, 1, 4, stream=8, device=1, **THIRD_ON_7),
    *(call("cudaLaunchKernel", 112, 5, 5), kernel("waiting", 165, 10, 5, stream=8, device=1)),
]
SHOWN = x("cuda_event", "cudaEvent", 107, 0.001, 7, 0, correlation=3, stream=7, device=0, event_id=1)
BOTH, OTHER, OTHER_SHOWN = map(BATCH.append, (TWO_DEVICES, TWO_DEVICES[2:], [*TWO_DEVICES, SHOWN]))


def test_of_streams_with_one_number_the_waits_own_device_counts() -> None:
    """Of streams with the same number, the stream of the wait's own device counts.

    Both devices have a stream 7. The other device's work was launched later, but also before the record.
    """
    assert waits(BOTH) == [(6, 4, 1, 8)]
    # The wait's own device has launched nothing on such a stream, so the wait is for the other device's work.
    assert waits(OTHER) == [(4, 2, 1, 6)]
    # A cuda_event row shows that the event was recorded on the other device.
    assert waits(OTHER_SHOWN) == [(6, 4, 3, 8)]


@pytest.mark.slow  # 2 s
@pytest.mark.parametrize("waits_on", [2, 7])
def test_of_streams_with_one_number_on_other_devices_the_one_launched_on_last_counts(waits_on: int) -> None:
    """Of streams with the same number on other devices, the one with the last launch counts.

    The wait's own device has no such stream, or the stream is the waiting one. The device numbers do not matter.
    """

    def trace(earlier: int, later: int) -> list[dict]:
        return [
            *(call("cudaLaunchKernel", 100, 2, 1), kernel("earlier", 110, 50, 1, stream=7, device=earlier)),
            *(call("cudaLaunchKernel", 103, 2, 2), kernel("later", 110, 50, 2, stream=7, device=later)),
            call("cudaEventRecord", 106, 1, 3),
            call("cudaStreamWaitEvent", 110, 1, 4),
            sync("Stream Wait Event", 110, 1, 4, stream=waits_on, device=2, **THIRD_ON_7),
            *(call("cudaLaunchKernel", 112, 5, 5), kernel("waiting", 165, 10, 5, stream=waits_on, device=2)),
        ]

    for devices in ((0, 1), (1, 0)):
        assert rows_of(trace(*devices), "event_waits", COLUMNS) == [(6, 4, 3, 8)]
