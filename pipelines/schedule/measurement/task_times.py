"""Typical times of a run's tasks, from its recorded or simulated timeline."""

from __future__ import annotations

from statistics import median

from pipelines.schedule.measurement.measure import Measured, Settings


def median_durations(run: Settings, measured: Measured) -> dict[str, int]:
    """Return task -> its median duration, ns."""
    spans = measured.timeline.of
    return {name: round(median(span.duration_ns for span in spans(name))) for name in run.plan.checked.names}


def work_durations(run: Settings, measured: Measured) -> dict[str, int]:
    """Return task -> the duration that counts as its work, ns: the median.

    Of a globally ordered task it is the shortest, because the rest is waiting for other ranks.
    """
    plan, spans = run.plan.checked, measured.timeline.of
    ordered = [name for name in plan.names if plan.schedule[name].globally_ordered]
    return median_durations(run, measured) | {name: min(span.duration_ns for span in spans(name)) for name in ordered}


def submit_times(measured: Measured) -> dict[str, int]:
    """Return task -> median time that a thread takes to submit it, ns. Empty if the times are not a GPU's."""
    times: dict[str, list[int]] = {}
    for launch in (measured.launches or ()) if measured.by_events else ():
        times.setdefault(launch.task, []).append(launch.submitted_ns - launch.submit_ns)
    return {name: round(median(of_task)) for name, of_task in times.items()}
