"""Recording of a run: a device that logs every launch, and the timeline built from that log.

`RecordingDevice` wraps an engine's device. So the engines need no hooks, and there is no cost without recording.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pipelines.schedule.devices.base import Device, Work
from pipelines.schedule.pictures.timeline import EVENT, HOST, RETIRE, SIGNAL, SUBMIT, Span, Timeline
from pipelines.schedule.plan.checked_plan import CheckedPlan
from pipelines.schedule.plan.plan import DEFAULT_STREAM
from pipelines.schedule.simulation.simulator import Wait, stalls_between

_REANCHOR_MS = (
    1000.0  # CUDA returns times between events as 32-bit floats in ms, which are exact to 0.06 us up to this time
)


@dataclass(slots=True)
class Launch:
    """Launch of a task in an iteration. Host times and device times (by CUDA events) are ns since `start`."""

    task: str
    iteration: int
    stream: str
    submit_ns: int
    """Time when the host started the launch."""
    submitted_ns: int = 0
    """Time when the host finished the launch."""
    start_ns: int = 0
    """Start of the function on the host."""
    end_ns: int = 0
    """End of the function on the host."""
    device_start_ns: int | None = None
    device_end_ns: int | None = None
    marks: tuple[Any, Any] | None = None
    """CUDA events around the function, None after the run."""

    @property
    def began_ns(self) -> int:
        """Return the start on the device's clock, or on the host's clock if there are no device times."""
        return self.start_ns if self.device_start_ns is None else self.device_start_ns

    @property
    def ended_ns(self) -> int:
        """Return the end on the same clock as `began_ns`."""
        return self.end_ns if self.device_end_ns is None else self.device_end_ns


@Device.register
class RecordingDevice:
    """Device that forwards all calls to `inner` and, between `start` and `stop`, records a Launch of each task.

    `events`: whether to use CUDA events. They record the times at which a stream reached and left a task. A gap inside
    a task, because the host was late with the next kernel, counts as the task's time.
    """

    def __init__(self, inner: Device, *, events: bool) -> None:
        self.inner, self.name, self.runs_later = inner, inner.name, inner.runs_later
        self._events = events
        self._launches: list[Launch] | None = None
        self._zero_ns = 0
        self._zero_mark: Any = None

    def start(self) -> None:
        """Wait for the device and start recording. Times count from now."""
        self.inner.synchronize()
        self._launches = []
        self._zero_ns = time.perf_counter_ns()
        if self._events:
            self._zero_mark = self._mark()

    def now_ns(self) -> int:
        """Return the host time since `start`, ns."""
        return time.perf_counter_ns() - self._zero_ns

    def stop(self) -> list[Launch]:
        """Wait for the device and stop recording. Return the launches in order of submission."""
        self.inner.synchronize()
        launches, self._launches = self._launches or [], None
        launches.sort(key=lambda launch: launch.submit_ns)
        if self._events:
            _read_marks(self._zero_mark, launches)
        return launches

    def _mark(self) -> Any:
        import torch

        event = torch.cuda.Event(enable_timing=True)
        event.record()  # on the current stream, which launch() has set
        return event

    def _timed(self, launch: Launch, body: Callable[[], None]) -> None:
        launch.start_ns = self.now_ns()
        if self._events:
            before = self._mark()
            body()
            launch.marks = (before, self._mark())
        else:
            body()
        launch.end_ns = self.now_ns()

    def launch(self, stream: Any, body: Callable[[], None], work: Work) -> None:
        name = self.inner.stream_name(stream) or DEFAULT_STREAM
        self._logged(partial(self.inner.launch, stream), name, body, work)

    def run_here(self, body: Callable[[], None], work: Work) -> None:
        self._logged(self.inner.run_here, DEFAULT_STREAM, body, work)

    def _logged(self, run: Callable[..., None], stream: str, body: Callable[[], None], work: Work) -> None:
        if self._launches is None:
            run(body, work)
            return
        launch = Launch(work.task, work.iteration, stream, self.now_ns())
        self._launches.append(launch)
        run(partial(self._timed, launch, body), work)
        launch.submitted_ns = self.now_ns()

    def __getattr__(self, name: str) -> Any:
        """Return the inner device's attribute."""
        return getattr(self.inner, name)


def _read_marks(zero: Any, launches: Iterable[Launch]) -> None:
    """Convert the launches' events to ns since `zero`.

    CUDA's intervals are floats, so they are measured from new anchors to keep them short and exact.
    """
    anchor, anchor_ms = zero, 0.0
    for launch in launches:
        if launch.marks is None:  # the task never ran, because the engine had failed
            continue
        before, after = launch.marks
        since_ms = anchor.elapsed_time(before)
        launch.device_start_ns = round((anchor_ms + since_ms) * 1e6)
        launch.device_end_ns = launch.device_start_ns + round(before.elapsed_time(after) * 1e6)
        if since_ms > _REANCHOR_MS:
            anchor, anchor_ms = before, anchor_ms + since_ms
        launch.marks = None


def recorded_timeline(
    launches: Sequence[Launch], plan: CheckedPlan, engine: str, retired_ns: Sequence[int] = (), in_flight: int = 0
) -> Timeline:
    """Return the launches as spans, in order, with the stalls of the stream before each span (kinds as in timeline.py).

    `engine`: one of simulated.ENGINES. `retired_ns`: time at which progress() returned each iteration. `in_flight`:
    maximum number of iterations in flight. The causes of a stall are inferred from the times at which the task's
    dependencies were submitted and done, and at which the iteration that it replaces was retired. The remainder is
    `submit`, the launch itself.
    """
    launch_by_key = {(launch.task, launch.iteration): launch for launch in launches}
    spans: dict[int, Span] = {}
    free_ns_by_stream: dict[str, int] = {}
    for launch in sorted(launches, key=lambda launch: launch.began_ns):
        waits: list[Wait] = []
        dependencies: list[Launch] = []
        if engine != "serial":
            waits += _retirement(launch, plan, engine, retired_ns, in_flight)
            keys = plan.dependencies(launch.task, launch.iteration)
            dependencies = [launch_by_key[key] for key in keys if key in launch_by_key]
        waits += sorted((dep.submitted_ns, SIGNAL, dep.task, dep.iteration) for dep in dependencies)
        waits.append((launch.submit_ns, HOST, "", None))
        waits += sorted((dep.ended_ns, EVENT, dep.task, dep.iteration) for dep in dependencies)
        waits.append((launch.began_ns, SUBMIT, launch.task, launch.iteration))
        # The clocks of host and GPU agree only to some microseconds, so clip waits that end after the span begins.
        clipped = [(min(until, launch.began_ns), kind, task, iteration) for until, kind, task, iteration in waits]
        stalls, _ = stalls_between(free_ns_by_stream.get(launch.stream, 0), clipped)
        spans[id(launch)] = Span(
            launch.task, launch.iteration, launch.stream, launch.submit_ns, launch.began_ns, launch.ended_ns, stalls
        )
        free_ns_by_stream[launch.stream] = max(free_ns_by_stream.get(launch.stream, 0), launch.ended_ns)
    return Timeline(engine, [spans[id(launch)] for launch in launches], tuple(retired_ns))


def _retirement(
    launch: Launch, plan: CheckedPlan, engine: str, retired_ns: Sequence[int], in_flight: int
) -> list[Wait]:
    """Return the wait for the retired iteration, or an empty list.

    A clocked engine submits stage s of iteration i when iteration i + s - depth is retired. Other engines submit all
    tasks of iteration i together, as if s were 0.
    """
    stage = plan.stage(launch.task) if engine == "SWPipeline" else 0
    retired_iteration = launch.iteration + stage - in_flight
    return (
        [(retired_ns[retired_iteration], RETIRE, "", retired_iteration)]
        if 0 <= retired_iteration < len(retired_ns)
        else []
    )
