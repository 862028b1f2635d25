"""`device="simulated"`: an engine's code and threads on streams that only keep time.

Functions run (immediately, in the submitting thread) but take no time. A task takes its declared duration on its
stream. As on CUDA, launching returns immediately, an event marks a point of a stream, and joining an event blocks the
caller's stream, not the caller. So progress() returns when an iteration is submitted. With one thread group and no host
time, the timeline equals the timeline of `simulate(…, retire="submitted")`. Each thread has its own time. So with
several thread groups, the timeline depends on which thread submits first, as on CUDA. With `submit_ns`, a thread may be
ahead of the request for its task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from threading import Lock, local
from typing import Any

from pipelines.schedule.devices.base import Device, Work
from pipelines.schedule.pictures.timeline import EVENT, HOST, Span, Timeline
from pipelines.schedule.plan.plan import DEFAULT_STREAM, by_name
from pipelines.schedule.simulation.durations import Duration, draws
from pipelines.schedule.simulation.simulator import Wait, stalls_between

UNDECLARED_NS = 1_000
"""Duration of every task on a device without declared durations, ns."""


@dataclass(eq=False)
class SimulatedStream:
    """A stream with the end of its work so far, its last (task, iteration), and the waits before its next work."""

    name: str | None = None
    free_ns: int = 0
    last: tuple[str, int] = ("", 0)
    waits: list[Wait] = field(default_factory=list)


@dataclass(eq=False)
class SimulatedEvent:
    """An event with its point on a stream (None if never recorded), the work before it, and the record's host time."""

    at_ns: int | None = None
    after: tuple[str, int] = ("", 0)
    host_ns: int = 0


class SimulatedDevice(Device):
    """Device with virtual streams. `durations` and `submit_ns` as for `simulate`. Replayed shortcuts take no time."""

    def __init__(self, durations: Mapping[Any, Duration] | None = None, *, submit_ns: int = 0, seed: int = 0) -> None:
        self.name = "simulated"
        self._declared = durations and by_name(durations)
        self._submit_ns, self._seed = submit_ns, seed
        self._drawn: dict[str, tuple[Iterator[int], list[int]]] = {}
        self._streams: dict[str, SimulatedStream] = {}
        self._unnamed: dict[SimulatedStream, str] = {}
        self._spans: list[Span] = []
        self._lock = Lock()
        self._thread = local()
        self._synchronized_ns = 0

    def timeline(self) -> Timeline:
        """Return the timeline of all work so far, in order of submission."""
        with self._lock:
            return Timeline("simulated", tuple(self._spans))

    def stream(self, wanted: Any) -> SimulatedStream:
        if isinstance(wanted, SimulatedStream):
            return wanted
        name = DEFAULT_STREAM if wanted is None else wanted
        if not isinstance(name, str):
            raise TypeError(f"stream={wanted!r}: the simulated device takes a name, a SimulatedStream or None")
        return self._streams.setdefault(name, SimulatedStream(name))

    def stream_name(self, stream: SimulatedStream) -> str | None:
        return stream.name

    def event(self) -> SimulatedEvent:
        return SimulatedEvent()

    def record(self, event: SimulatedEvent, stream: SimulatedStream) -> None:
        with self._lock:
            reached = max([stream.free_ns, *(wait[0] for wait in stream.waits)])
            event.at_ns, event.after, event.host_ns = reached, stream.last, self._now()

    def wait(self, stream: SimulatedStream, event: SimulatedEvent) -> None:
        with self._lock:
            if event.at_ns is None:
                return
            stream.waits.append((event.at_ns, EVENT, *event.after))
            # Before an engine waits for an event, it has waited in phase 1 until the event was recorded.
            self._thread.now_ns = max(self._now(), event.host_ns)

    def launch(self, stream: SimulatedStream, body: Callable[[], None], work: Work) -> None:
        body()
        with self._lock:
            self._place(stream, work)

    def run_here(self, body: Callable[[], None], work: Work) -> None:
        self.launch(self.stream(None), body, work)

    def join(self, event: SimulatedEvent, timeout_s: float) -> bool:
        return True

    def synchronize(self, streams: Iterable[Any] = ()) -> None:
        with self._lock:
            ends = [stream.free_ns for stream in [*self._streams.values(), *streams]]
            self._synchronized_ns = max([self._now(), *ends])

    def clock(self) -> float:
        return self._now() / 1e9

    def _now(self) -> int:
        """Return the calling thread's time, ns, at least the time of the last synchronize."""
        return max(getattr(self._thread, "now_ns", 0), self._synchronized_ns)

    def _place(self, stream: SimulatedStream, work: Work) -> None:
        """Append the work's span to its stream, after the stream's waits and one submission."""
        duration = 0 if work.skipped else self._duration(work.task, work.iteration)
        now = self._thread.now_ns = self._now() + self._submit_ns
        stalls, start = stalls_between(stream.free_ns, [(now, HOST, "", None), *sorted(stream.waits)])
        stream.waits.clear()
        stream.free_ns, stream.last = start + duration, (work.task, work.iteration)
        self._spans.append(Span(work.task, work.iteration, self._label(stream), now, start, stream.free_ns, stalls))

    def _label(self, stream: SimulatedStream) -> str:
        """Return the stream's name. Streams without a name are numbered by first use, as in `simulate`."""
        return stream.name or self._unnamed.setdefault(stream, f"stream{len(self._unnamed) + 1}")

    def _duration(self, task: str, iteration: int) -> int:
        """Return the task's duration, ns. Raise ValueError if the device has durations but none for the task."""
        if self._declared is None:
            return UNDECLARED_NS
        if task not in self._declared:
            raise ValueError(f"no duration declared for {task}; add the name and its nanoseconds")
        source, durations_ns = self._drawn.setdefault(task, (draws(task, self._declared[task], self._seed), []))
        durations_ns += islice(source, max(0, iteration + 1 - len(durations_ns)))
        return durations_ns[iteration]
