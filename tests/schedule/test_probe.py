"""The times of a probe's tasks, from launches of known times."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from pipelines.schedule.measurement.probe import ITERATIONS, probe_of

# Per iteration, us: the task's time on the device, and the host's time to submit it. The first two do not hold the stream.
DEVICE_US = (900, 800, 40, 30, 50)
SUBMIT_US = (2, 700, 900, 600, 800)


def test_each_time_is_the_shortest_and_the_device_is_timed_while_the_stream_is_held() -> None:
    holds_ns: list[int] = []
    iterations = iter(zip(DEVICE_US, SUBMIT_US, strict=True))

    def stop() -> list[Any]:
        device_us, submit_us = next(iterations)
        times = {"began_ns": 0, "ended_ns": 1000 * device_us, "submit_ns": 0, "submitted_ns": 1000 * submit_us}
        return [SimpleNamespace(task="Forward", **times)]

    recorder = cast(Any, SimpleNamespace(start=lambda: None, stop=stop))
    pipeline = cast(Any, SimpleNamespace(run_one_serial_iter=lambda batch: None))
    probe = probe_of(pipeline, recorder, iter(range(ITERATIONS)), holds_ns.append)
    assert (probe.device_ns, probe.submit_ns) == ({"Forward": 30_000}, {"Forward": 600_000})
    # Twice the 700 us that the host needed in the second iteration.
    assert holds_ns == [0, 0, 1_400_000, 1_400_000, 1_400_000]
