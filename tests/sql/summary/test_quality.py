"""Each check of the quality table, on a trace made for it."""

from __future__ import annotations

from tests.effort import SLOW
from tests.harness import call, each, kernel, op, sync, without, x

RECORD = {"wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 77}


CHECKS: list[tuple[str, int | None, list[dict]]] = [
    ("no_gpu_work", 1, [op("a", 0, 5)]),
    (
        "no_critical_path",
        0,
        [{"ph": "X", "cat": "forward-compute", "name": "f", "pid": 0, "tid": 0, "ts": 1, "dur": 2}],
    ),
    ("no_sync_events", 1, [call("cudaLaunchKernel", 0, 2, 1), kernel("k", 3, 5, 1)]),
    ("unlaunched_work", 1, [op("a", 0, 5), kernel("k", 3, 5, 1)]),
    ("orphan_work", 1, [op("a", 0, 5), kernel("k", 3, 5, 1)]),
    ("zero_duration", 2, [op("a", 0, 0), op("b", 1, 0)]),
    ("negative_duration_kept", 1, [op("a", 0, 5), op("b", 1, -2)]),
    ("crossing_operators", 1, [op("a", 0, 10), op("b", 5, 10)]),
    ("work_before_launch", 1, [call("cudaLaunchKernel", 10, 2, 1), kernel("k", 3, 5, 1)]),
    (
        "overlap_on_stream",
        1,
        [
            call("cudaLaunchKernel", 0, 1, 1),
            call("cudaLaunchKernel", 1, 1, 2),
            kernel("k", 3, 5, 1),
            kernel("l", 6, 5, 2),
        ],
    ),
    (
        "wait_without_record",
        1,
        [call("cudaStreamWaitEvent", 0, 1, 3), sync("Stream Wait Event", 0, 1, 3, stream=8, **RECORD)],
    ),
    (  # Cuspy states the record but not the stream.
        "wait_without_record",
        1,
        [
            call("cudaStreamWaitEvent", 0, 1, 3),
            sync("Stream Wait Event", 0, 1, 3, stream=8, **RECORD | {"wait_on_stream": -1}),
        ],
    ),
    (  # Kineto writes -1, and 0 is not a correlation id either, so no record is stated.
        "wait_without_record",
        None,
        [
            *(call("cudaStreamWaitEvent", 5 * n, 1, 3 + n) for n in (0, 1)),
            *(
                sync("Stream Wait Event", 5 * n, 1, 3 + n, stream=8, wait_on_cuda_event_record_corr_id=n - 1)
                for n in (0, 1)
            ),
        ],
    ),
    (
        "wait_without_work",
        1,
        [call("cudaStreamWaitEvent", 0, 1, 3), sync("Stream Wait Event", 0, 1, 3, stream=8, **RECORD)],
    ),
    ("no_thread", 2, [op("a", 0, 5), without(op("b", 6, 5), "pid"), without(op("c", 12, 5), "tid")]),
    # GPU work needs neither pid nor tid, and events about the trace itself belong to no thread.
    ("no_thread", None, [op("a", 0, 5), without(kernel("k", 6, 5, 1), "pid"), without(x("Trace", "t", 0, 20), "tid")]),
]


CLEAN = [
    call("cudaLaunchKernel", 0, 2, 1),
    kernel("k", 3, 5, 1),
    call("cudaDeviceSynchronize", 4, 6, 2),
    sync("Context Sync", 4, 5, 2),
]


ALWAYS = 6
"""The number of checks, from the end of the list, that always run. The others run only with SLOW."""


def test_each_check_counts_what_it_is_for() -> None:
    checks = CHECKS if SLOW else CHECKS[-ALWAYS:]
    traces = [CLEAN, *(events for *_, events in checks)]
    clean, *counts = [
        dict(con.execute("SELECT check_name, n FROM quality").fetchall()) for con in each(traces, "quality")
    ]
    assert clean.keys() == {"no_rank"}
    for (check, n, events), count in zip(checks, counts, strict=True):
        assert count.get(check) == n, (check, events)
