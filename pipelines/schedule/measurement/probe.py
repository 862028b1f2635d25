"""A GPU's tasks one by one, before a run: the device's time without the host's, and the host's without the device's.

In a run the time between the events around a task has gaps if the host is late with the next kernel. In the probe a
spinning kernel holds the stream until the host has launched the whole iteration, so that its kernels follow one another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.schedule.engine.pipeline import _PipelineBase
    from pipelines.schedule.measurement.recording import Launch, RecordingDevice

HELD = 3
"""Iterations with a held stream."""
ITERATIONS = HELD + 2
"""Iterations of a probe. The first uses everything for the first time. The second tells how long the host needs."""
_MARGIN = 2
"""How many times as long as the host needed the stream is held."""
_SHORTEST_HOLD_NS = 1_000_000


@dataclass(frozen=True)
class Probe:
    """Task -> the shortest time that it took the device, and the host to submit it, ns."""

    device_ns: dict[str, int]
    submit_ns: dict[str, int]


def probe_of(
    pipeline: _PipelineBase, recorder: RecordingDevice, batches: Iterator[Any], pause: Callable[[int], None]
) -> Probe:
    """Run ITERATIONS serial iterations and return the tasks' times. `pause` holds the current stream for a number of ns."""

    def iteration(hold_ns: int) -> list[Launch]:
        recorder.start()
        pause(hold_ns)
        pipeline.run_one_serial_iter(next(batches))
        return recorder.stop()

    iteration(0)
    free = iteration(0)
    hold_ns = max(_SHORTEST_HOLD_NS, _MARGIN * (free[-1].submitted_ns - free[0].submit_ns))
    held = [launch for _ in range(HELD) for launch in iteration(hold_ns)]
    return Probe(
        _shortest([(launch.task, launch.ended_ns - launch.began_ns) for launch in held]),
        _shortest([(launch.task, launch.submitted_ns - launch.submit_ns) for launch in [*free, *held]]),
    )


def _shortest(times: list[tuple[str, int]]) -> dict[str, int]:
    shortest: dict[str, int] = {}
    for task, ns in times:
        shortest[task] = min(ns, shortest.get(task, ns))
    return shortest
