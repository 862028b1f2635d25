"""Memory in flight of a run. Every task's result is in memory from the task's start to the end of its iteration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.schedule.pictures.timeline import Timeline
from pipelines.schedule.plan.plan import by_name


def peak_in_flight(timeline: Timeline, memory: Mapping[Any, float] | None = None) -> float:
    """Return the peak memory in flight, in the unit of `memory`.

    `memory`: size of each task's result, by task or name. Missing tasks count as zero. If tasks free results early, the
    peak is an upper bound. If `memory` is None, return the peak number of iterations that have started and are not
    retired.
    """
    changes: list[tuple[int, int, float]] = []
    sizes = {"": 1.0} if memory is None else by_name(memory)
    finished_ns = timeline.completions()
    # If progress() only waits for the submission, it returns an iteration before the device has finished it.
    ends = [max(pair) for pair in zip(finished_ns, timeline.retired_ns or finished_ns, strict=True)]
    for task, iteration, start in _taken(timeline, memory is None):
        size = sizes.get(task, 0.0)
        # At equal times, frees come first, because an iteration is retired before the work that replaces it starts.
        changes += [(start, 1, size), (ends[iteration], 0, -size)]
    in_flight = peak = 0.0
    for _, _, change in sorted(changes):
        in_flight += change
        peak = max(peak, in_flight)
    return peak


def _taken(timeline: Timeline, per_iteration: bool) -> list[tuple[str, int, int]]:
    """Return (task, iteration, start in ns) of each span.

    If `per_iteration`, return ("", iteration, first start) of each iteration instead.
    """
    if not per_iteration:
        return [(span.task, span.iteration, span.start_ns) for span in timeline.spans]
    first: dict[int, int] = {}
    for span in timeline.spans:
        first[span.iteration] = min(span.start_ns, first.get(span.iteration, span.start_ns))
    return [("", iteration, start) for iteration, start in first.items()]
