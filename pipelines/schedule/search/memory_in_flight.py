"""How much a run holds in flight: every task's result is held from the task's start to the end of its iteration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipelines.schedule.pictures.timeline import Timeline
from pipelines.schedule.plan.plan import by_name


def peak_in_flight(timeline: Timeline, memory: Mapping[Any, float] | None = None) -> float:
    """Returns the most that is held at any one time.

    `memory`: task or name → size of its result, in any unit; tasks it leaves out count as zero. The result is an upper
    bound where tasks free results early. None: returns the number of iterations that have started and are not retired.
    """
    changes: list[tuple[int, int, float]] = []
    sizes = {"": 1.0} if memory is None else by_name(memory)
    done = timeline.completions()
    # Where progress() only waits for the submission, it returns an iteration before the device has finished it.
    ends = [max(pair) for pair in zip(done, timeline.retired_ns or done, strict=True)]
    for task, iteration, start in _taken(timeline, memory is None):
        size = sizes.get(task, 0.0)
        # At equal times frees count first: a retired iteration is gone before the work that takes its place starts.
        changes += [(start, 1, size), (ends[iteration], 0, -size)]
    held = peak = 0.0
    for _, _, change in sorted(changes):
        held += change
        peak = max(peak, held)
    return peak


def _taken(timeline: Timeline, whole: bool) -> list[tuple[str, int, int]]:
    """Yields (task, iteration, start); with `whole`, once per iteration, at its first start."""
    if not whole:
        return [(span.task, span.iteration, span.start_ns) for span in timeline.spans]
    first: dict[int, int] = {}
    for span in timeline.spans:
        first[span.iteration] = min(span.start_ns, first.get(span.iteration, span.start_ns))
    return [("", iteration, start) for iteration, start in first.items()]
