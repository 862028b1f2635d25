"""Typical times of a run's tasks, and the resulting limit, from its recorded or simulated timeline."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from statistics import median

from pipelines.schedule.errors import PlanWarning
from pipelines.schedule.measurement.probe import Probe
from pipelines.schedule.measurement.settings import Measured, Settings
from pipelines.schedule.search.cycles import ideal_period
from pipelines.schedule.search.host_load import host_bound, host_load


def median_durations(run: Settings, measured: Measured) -> dict[str, int]:
    """Return the median duration of each task, ns.

    On a GPU it excludes the gaps in which the host was late with the next kernel.
    """
    spans = measured.timeline.of
    return _probed(
        measured, {name: round(median(s.duration_ns for s in spans(name))) for name in run.plan.checked.names}
    )


def work_durations(run: Settings, measured: Measured) -> dict[str, int]:
    """Return the duration of each task that counts as its work, ns.

    It is the median, but for a globally ordered task the minimum, because the rest is waiting for other ranks.
    """
    plan, spans = run.plan.checked, measured.timeline.of
    ordered = [name for name in plan.names if plan.schedule[name].globally_ordered]
    shortest = {name: min(span.duration_ns for span in spans(name)) for name in ordered}
    return median_durations(run, measured) | _probed(measured, shortest)


def _probed(measured: Measured, durations: dict[str, int]) -> dict[str, int]:
    """Return the durations, or the probe's where they are shorter."""
    device_ns = measured.probe.device_ns if measured.probe else {}
    return {name: min(ns, device_ns.get(name, ns)) for name, ns in durations.items()}


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
    return limit_by(run, work_durations(run, measured), submit_times(measured))


def limit_by(run: Settings, durations: dict[str, int], submit_ns: dict[str, int]) -> Limit:
    """Return the limit by the tasks' durations and the host times of their submissions, ns."""
    plan = run.plan.checked
    ideal_ns, bound_by = ideal_period(plan, durations)
    return Limit(float(ideal_ns), bound_by, sum(durations.values()), host_load(plan, submit_ns)[0])


def warn_if_host_bound(run: Settings, probe: Probe) -> None:
    """Warn with PlanWarning if submitting the tasks takes longer than running them would take on the device."""
    limit = limit_by(run, probe.device_ns, probe.submit_ns)
    if limit.is_host_bound:
        text = host_bound(limit.host_ns, limit.ideal_ns, limit.bound_by)
        warnings.warn(f"{run.plan.name}, size {run.size}: {text}", PlanWarning, stacklevel=2)
