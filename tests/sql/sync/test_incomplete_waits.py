"""Waits for events only partly in the file: lost records and rows, graph captures, other devices and processes."""

from __future__ import annotations

from typing import Any

from pipelines.critical_path.graph.skippable_models import unneeded
from pipelines.critical_path.graph.windows import WindowRequest
from tests.batch import Batch
from tests.harness import call, connect, kernel, op, sync
from tests.sql.sync.test_unstated_waits import NUMBER, QUERY, RECORD, STREAM, Program, lacking

Event = dict[str, Any]
BATCH = Batch("event_waits", "events", "_inferred_waits", "_profiles")


def sources(numbers: list[int]) -> list[list[tuple]]:
    """Return the source, waiting work, evidence and record of each wait of these traces."""
    return [
        [(of, waiting, evidence, record) for _, _, of, waiting, evidence, _, record in BATCH.rows(number, QUERY)]
        for number in numbers
    ]


def without_record() -> list[list[Event]]:
    """Return traces with waits of the host, then of a stream, for a record outside the file.

    In each pair, the first row states the record's stream, and the second does not.
    """
    work, other = kernel("K", 0, 500, 70, 7), [call("cudaEventRecord", 5, 2, 9), call("cudaEventRecord", 8, 1, 10)]
    on_host = [
        *(work, call("cudaEventSynchronize", 10, 493, 3), op("after", 510, 20)),
        *(call("cudaLaunchKernel", 515, 2, 4), kernel("M", 520, 5, 4)),
    ]
    on_stream = [
        *(work, op("x", 5, 30), call("cudaStreamWaitEvent", 10, 2, 3)),
        *(call("cudaLaunchKernel", 20, 2, 4), kernel("M", 503, 5, 4, 8)),
    ]
    rows = [{STREAM: on, RECORD: 77, NUMBER: 5} for on in (7, -1)]
    host_rows = [sync("Event Sync", 10, 493, 3, -1, **row) for row in rows]
    stream_rows = [sync("Stream Wait Event", 10, 1, 3, 8, **row) for row in rows]
    return [[*on_host, *other, row] for row in host_rows] + [[*on_stream, *other, row] for row in stream_rows]


WITHOUT_RECORD = [BATCH.append(trace) for trace in without_record()]


def test_a_record_outside_the_file_is_inferred_as_if_its_row_did_not_state_it() -> None:
    """For a record outside the file, the stated stream counts. No record in the file replaces the lost one."""
    assert sources(WITHOUT_RECORD) == [
        [("K", None, "stream", None)],
        [("K", None, "none", None)],
        [("K", "M", "stream", None)],
        [("K", "M", "none", None)],
    ]  # fmt: skip


TOO_LATE = BATCH.append([
    *(kernel("K", 0, 600, 70, 7), call("cudaLaunchKernel", 2, 2, 1), kernel("ended", 5, 495, 1, 20)),
    *(call("cudaEventSynchronize", 10, 493, 3), op("after", 510, 20)),
    sync("Event Sync", 10, 493, 3, -1, **{STREAM: 7, RECORD: 77, NUMBER: 5}),
])  # fmt: skip


def test_a_call_whose_record_is_outside_the_file_is_left_to_the_times() -> None:
    """For a call whose record is outside the file, times decide which work it waited for.

    The stated stream did not end in time. So the call waited for the work that ended 3 us before the call's return.
    """
    rows = BATCH.rows(
        TOO_LATE, "SELECT event_id, source_event_id, basis FROM _inferred_waits WHERE basis <> 'call_order'"
    )
    assert rows == [(3, 2, "blocking_call")]


def test_waits_for_records_outside_the_file_need_the_models_that_infer() -> None:
    needed = []
    for record in (2, 77):
        row = sync("Stream Wait Event", 10, 1, 3, 8, **{STREAM: 7, RECORD: record})
        con, trace_id = connect([call("cudaEventRecord", 5, 2, 2), call("cudaStreamWaitEvent", 10, 2, 3), row])
        needed.append("_inferred_waits" not in unneeded(con, WindowRequest(trace_id), {}))
    assert needed == [False, True]


def recorded_twice() -> list[list[Event]]:
    """Return traces with both cuda_event rows, without the first, without the second, and without both."""
    program = Program()
    program.launch("old", 20, 30)
    program.record(1, 20)
    program.launch("gap", 7, 5)
    program.launch("new", 20, 300)
    program.record(1, 20)
    program.wait(1, 8)
    program.launch("waiter", 8, 20)
    events = lacking(program.events, STREAM, RECORD)
    first, second = [event for event in events if event["cat"] == "cuda_event"]
    return [[event for event in events if event not in lost] for lost in ([], [first], [second], [first, second])]


RECORDED_TWICE = [BATCH.append(trace) for trace in recorded_twice()]


def test_a_shown_record_counts_unless_a_record_without_a_row_follows() -> None:
    """The record in a cuda_event row counts, unless a record without a row follows.

    An event is recorded twice before a wait. If the second row is lost, the first may be outdated.
    """
    evidence = ["cuda_event", "cuda_event", "calls", "calls"]
    rows = [[row[:3] for row in rows] for rows in sources(RECORDED_TWICE)]
    assert rows == [[("new", "waiter", of)] for of in evidence]


def of_process(pid: int, *events: Event) -> list[Event]:
    return [{**event, "pid": pid} if event["cat"] == "cuda_runtime" else event for event in events]


def two_processes() -> list[list[Event]]:
    """Return four traces of a wait, with different events of another process.

    These are none, its work, its work and record, and both without the wait's own work and record.
    """
    own = [
        *(call("hipLaunchKernel", 0, 2, 1), kernel("K", 6, 482, 1, 20), call("hipEventRecord", 4, 2, 2)),
        *(call("hipStreamWaitEvent", 8, 2, 3), call("hipLaunchKernel", 12, 2, 4), kernel("M", 500, 5, 4)),
    ]
    foreign = of_process(200, call("hipLaunchKernel", 1, 2, 11), kernel("Foreign", 7, 488, 11, 9, 1))
    record = of_process(200, call("hipEventRecord", 5, 2, 12))
    unrecorded = [event for event in own if event["name"] not in ("hipEventRecord", "K")]
    return [own, [*own, *foreign], [*own, *foreign, *record], [*unrecorded, *foreign, *record]]


TWO_PROCESSES = [BATCH.append(trace) for trace in two_processes()]


def test_a_wait_is_for_work_and_records_of_its_own_process() -> None:
    """A wait is only for work and records of its own process.

    The other process's work ends closer to the waiting work, or is the only work that ends in time.
    """
    assert [[row[:2] for row in rows] for rows in sources(TWO_PROCESSES)] == [[("K", "M")]] * 3 + [[(None, "M")]]


def on_two_devices(number: int, other: int) -> list[Event]:
    """Return a trace in which a stream of each device waits for an event of its own device."""
    unstated = {STREAM: -1, RECORD: -1}
    return [
        *(call("cudaLaunchKernel", 0, 2, 1), kernel("A", 10, 990, 1), call("cudaEventRecord", 4, 2, 2)),
        *(call("cudaLaunchKernel", 8, 2, 3), kernel("B", 20, 975, 3, 7, 1), call("cudaEventRecord", 12, 2, 4)),
        *(
            call("cudaStreamWaitEvent", 16, 2, 5),
            sync("Stream Wait Event", 16, 1, 5, 8, **unstated, **{NUMBER: number}),
        ),
        *(
            call("cudaStreamWaitEvent", 20, 2, 6),
            sync("Stream Wait Event", 20, 1, 6, 8, 1, **unstated, **{NUMBER: other}),
        ),
        *(call("cudaLaunchKernel", 24, 2, 7), kernel("X0", 1003, 10, 7, 8)),
        *(call("cudaLaunchKernel", 28, 2, 8), kernel("X1", 998, 10, 8, 8, 1)),
    ]


TWO_DEVICES = [BATCH.append(on_two_devices(5, 6)), BATCH.append(on_two_devices(5, 5))]


def test_events_of_two_devices_may_have_one_number() -> None:
    assert [[row[:2] for row in rows] for rows in sources(TWO_DEVICES)] == [[("A", "X0"), ("B", "X1")]] * 2


def for_another_device(stream: int, record: int) -> list[Event]:
    return [
        *(call("cudaLaunchKernel", 0, 2, 1), kernel("K", 6, 494, 1, stream), call("cudaEventRecord", 4, 2, 2)),
        *(call("cudaLaunchKernel", 5, 2, 5), kernel("earlier", 8, 20, 5, 7, 1), call("cudaStreamWaitEvent", 8, 2, 3)),
        sync("Stream Wait Event", 8, 1, 3, 7, 1, **{STREAM: stream, RECORD: record}),
        *(call("cudaLaunchKernel", 12, 2, 4), kernel("M", 503, 5, 4, 7, 1)),
    ]


ANOTHER_DEVICE = [BATCH.append(for_another_device(stream, record)) for stream in (20, 7) for record in (2, -1)]


def test_a_stated_stream_may_be_on_another_device() -> None:
    """A stated stream may be on another device. The wait's device has no such stream, or only as the waiting stream."""
    assert [[row[:2] for row in rows] for rows in sources(ANOTHER_DEVICE)] == [[("K", "M")]] * 4


def captured(spelling: str, *, row: bool = False, tid: int = 1) -> list[Event]:
    """Return a capture with a record and a wait during older work, and a kernel that is launched after the capture."""
    names = ("LaunchKernel", "EventRecord", "StreamWaitEvent", "StreamBeginCapture", "StreamEndCapture")
    launch, record, wait, begin, end = (spelling.replace("*", name) for name in names)
    return [
        *(call(launch, 0, 2, 1), kernel("Old", 6, 994, 1, 20), call(begin, 100, 2, 2, tid)),
        *(call(record, 104, 2, 3), call(wait, 108, 2, 4), call(launch, 112, 2, 5), call(end, 120, 2, 6, tid)),
        *([sync("Stream Wait Event", 108, 1, 4, 7, **{STREAM: -1, RECORD: -1})] if row else []),
        *(call(launch, 985, 2, 7), kernel("K", 1003, 50, 7)),
    ]


CAPTURED = [
    *(BATCH.append(captured(spelling)) for spelling in ("cuda*", "hip*", "hip*_spt")),
    *(BATCH.append(captured("cuda*", row=True)), BATCH.append(captured("cuda*", tid=2))),
]


def test_a_capture_neither_records_an_event_nor_makes_a_stream_wait() -> None:
    assert sources(CAPTURED) == [[]] * 4 + [[("Old", "K", "calls", "cudaEventRecord")]]


AFTER_A_CAPTURE = BATCH.append([
    *(call("cudaStreamBeginCapture", 0, 2, 1), call("cudaStreamEndCapture", 10, 2, 2)),
    *(call("cudaLaunchKernel", 20, 2, 3), kernel("K", 26, 474, 3, 20), call("cudaEventRecord", 24, 2, 4)),
    *(call("cudaStreamWaitEvent", 28, 2, 5), call("cudaLaunchKernel", 32, 2, 6), kernel("M", 503, 5, 6)),
])  # fmt: skip


def test_records_and_waits_after_a_capture_count() -> None:
    assert sources([AFTER_A_CAPTURE]) == [[("K", "M", "calls", "cudaEventRecord")]]


BEFORE = [
    *(call("cudaLaunchKernel", 0, 2, 1), kernel("A", 6, 400, 1), call("cudaEventRecord", 10, 2, 2)),
    *(call("cudaLaunchKernel", 20, 2, 3), kernel("B", 30, 300, 3, 20)),
]
CAPTURE = [call("cudaStreamBeginCapture", 40, 2, 4), call("cudaStreamEndCapture", 60, 2, 6)]
ON_THE_HOST = [call("cudaEventRecord", 50, 2, 5), call("cudaEventSynchronize", 70, 340, 7)]
RECORDED, RECORDED_IN_CAPTURE = map(BATCH.append, ([*BEFORE, *ON_THE_HOST], [*BEFORE, *CAPTURE, *ON_THE_HOST]))


def test_a_record_in_a_capture_is_no_record_of_what_the_host_waits_for() -> None:
    """A record in a graph capture is not the record for which the host waits.

    The host waits for the event that it recorded after A. The record after B became part of a graph.
    """
    query = "SELECT source_event_id FROM _inferred_waits WHERE basis = 'call_order'"
    assert BATCH.rows(RECORDED, query) == [(4,)]  # B
    assert BATCH.rows(RECORDED_IN_CAPTURE, query) == [(1,)]  # A
