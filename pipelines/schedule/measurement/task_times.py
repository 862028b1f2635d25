"""Typical times of a run's tasks, and the resulting limit, from its recorded or simulated timeline."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass
from statistics import median

from pipelines.schedule.errors import PlanWarning
from pipelines.schedule.measurement.settings import Measured, Settings
from pipelines.schedule.search.cycles import ideal_period


def median_durations(run: Settings, measured: Measured) -> dict[str, int]:
    """Return the median duration of each task, ns."""
    spans = measured.timeline.of
    return {name: round(median(span.duration_ns for span in spans(name))) for name in run.plan.checked.names}


def work_durations(run: Settings, measured: Measured) -> dict[str, int]:
    """Return the duration of each task that counts as its work, ns.

    It is the median, but for a globally ordered task the minimum, because the rest is waiting for other ranks.
    """
    plan, spans = run.plan.checked, measured.timeline.of
    ordered = [name for name in plan.names if plan.schedule[name].globally_ordered]
    return median_durations(run, measured) | {name: min(span.duration_ns for span in spans(name)) for name in ordered}


def submit_times(measured: Measured) -> dict[str, int]:
    """Return the shortest time that a thread takes to submit each task, ns. Empty without CUDA events.

    Longer times are waits. The launch queue has room for some 1000 launches. Once it is full, each launch waits for the
    GPU. It is empty during the first iterations.
    """
    times: dict[str, list[int]] = {}
    for launch in (measured.launches or ()) if measured.by_events else ():
        times.setdefault(launch.task, []).append(launch.submitted_ns - launch.submit_ns)
    return {name: min(of_task) for name, of_task in times.items()}


@dataclass(frozen=True)
class Limit:
    """Limits on the period of a plan's tasks, ns per iteration, from an engine's recorded run."""

    ideal_ns: float
    bound_by: str
    """The stream or cycle of tasks that determines the ideal."""
    work_ns: int
    """Time of all tasks."""
    host_ns: int
    """The longest time that a thread needs to submit its tasks, 0 if this is part of the tasks' time, as on a CPU."""

    @property
    def is_host_bound(self) -> bool:
        """Return whether submitting the tasks takes longer than running them would take on the device."""
        return self.host_ns > self.ideal_ns


def limit_of(run: Settings, measured: Measured) -> Limit:
    """Return the limit of a measured run."""
    durations = work_durations(run, measured)
    ideal_ns, bound_by = ideal_period(run.plan.checked, durations)
    by_thread: Counter[str] = Counter()
    for name, submit_ns in submit_times(measured).items():
        by_thread[run.plan.checked.schedule[name].thread_group] += submit_ns
    return Limit(float(ideal_ns), bound_by, sum(durations.values()), max(by_thread.values(), default=0))


def warn_if_host_bound(run: Settings, measured: Measured) -> None:
    """Warn with PlanWarning if submitting the tasks takes longer than running them would take on the device."""
    limit = limit_of(run, measured)
    if limit.is_host_bound:
        warnings.warn(
            f"{run.plan.name}, size {run.size}: the host needs {ms(limit.host_ns)} per iteration to submit, and the device "
            f"could do one in {ms(limit.ideal_ns)} ({limit.bound_by}): use larger batches or no pipeline",
            PlanWarning,
            stacklevel=2,
        )


def ms(ns: float) -> str:
    """Format ns as milliseconds with three significant digits."""
    return f"{ns / 1e6:.3g} ms"
