"""The CPU as a device: a stream is a thread that takes work first-in-first-out, so streams really run beside each other.

It behaves as CUDA does: launching returns at once, an event completes when the work launched before it has run, and a
wait holds only the stream. So orders, deadlocks and hand-overs can be tested where there is no GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from queue import SimpleQueue
from threading import Condition, Lock, Thread, current_thread
from typing import Any

from pipelines.schedule.devices.base import Device, Work
from pipelines.schedule.devices.ranges import profiled
from pipelines.schedule.plan import DEFAULT_STREAM


class _Lane:
    """One life of a stream's thread. A lane that was closed is never used again."""

    def __init__(self, name: str) -> None:
        self.jobs: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self.launched = 0  # jobs put; counted under the stream's lock
        self.finished = 0  # jobs run; counted by its own thread
        self.waiting = 0  # threads that wait for one of its jobs
        self.abandoned = False  # its thread did not end in time: whoever waits for it goes on
        self.passed = Condition(Lock())
        self.thread = Thread(target=self._work, name=f"cpu stream {name}", daemon=True)
        self.thread.start()

    def _work(self) -> None:
        while (job := self.jobs.get()) is not None:
            job()
            del job  # else the last one's engine, and its batch, would live as long as this thread
            self.finished += 1
            # Who waits adds itself first and looks at `finished` after: if it is not seen here, it has seen this job.
            if self.waiting:
                with self.passed:
                    self.passed.notify_all()

    def wait_for(self, mark: int, timeout_s: float | None = None) -> bool:
        """Block until the first `mark` jobs have run. False when that took longer than `timeout_s`."""
        if self.finished >= mark:
            return True
        with self.passed:
            self.waiting += 1
            try:
                return self.passed.wait_for(lambda: self.finished >= mark or self.abandoned, timeout_s)
            finally:
                self.waiting -= 1

    def abandon(self) -> None:
        with self.passed:
            self.abandoned = True
            self.passed.notify_all()


class CpuStream:
    """A first-in-first-out queue with a thread, which starts with the first work and ends with `close`."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self._lane: _Lane | None = None
        self._before: _Lane | None = None
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"CpuStream({self.name!r})"

    def put(self, job: Callable[[], Any]) -> None:
        """Run `job` after all that was put before. `job` must not raise."""
        with self._lock:
            if self._lane is None:
                self._lane, before = _Lane(self.name or "unnamed"), self._before
                if before is not None and before.thread.is_alive():  # another engine closed what this one still uses
                    self._lane.launched += 1
                    self._lane.jobs.put(partial(before.wait_for, before.launched))
            self._lane.launched += 1
            self._lane.jobs.put(job)

    def mark(self) -> tuple[_Lane, int] | None:
        """The point reached by what was put so far; None if nothing was."""
        lane = self._lane
        return None if lane is None else (lane, lane.launched)

    def runs_in(self, lane: _Lane) -> bool:
        """Whether the lane is this stream's present one."""
        return self._lane is lane

    def close(self, timeout_s: float) -> bool:
        """Finish what was put and end the thread. False when it did not end: it is left behind, nobody waits for it."""
        with self._lock:
            lane, self._lane = self._lane, None
            if lane is None:
                return True
            self._before = lane
            lane.jobs.put(None)
        if lane.thread is current_thread():
            return True
        lane.thread.join(timeout_s)
        if lane.thread.is_alive():
            lane.abandon()
            return False
        return True


class CpuEvent:
    """A point on a stream. Recording it again moves it; waits that were made before keep the old point."""

    __slots__ = ("point",)

    def __init__(self) -> None:
        self.point: tuple[_Lane, int] | None = None


class CpuDevice(Device):
    """Streams by name; objects of another CpuDevice work too."""

    runs_later = True

    def __init__(self) -> None:
        self.name = "cpu"
        self._streams: dict[str, CpuStream] = {}

    def stream(self, wanted: Any) -> CpuStream:
        if isinstance(wanted, CpuStream):
            return wanted
        name = DEFAULT_STREAM if wanted is None else wanted
        if not isinstance(name, str):
            raise TypeError(f"stream={wanted!r}: the cpu device takes a name, a CpuStream or None")
        return self._streams.setdefault(name, CpuStream(name))

    def stream_name(self, stream: Any) -> str | None:
        return stream.name

    def event(self) -> CpuEvent:
        return CpuEvent()

    def record(self, event: CpuEvent, stream: CpuStream) -> None:
        event.point = stream.mark()

    def wait(self, stream: CpuStream, event: CpuEvent) -> None:
        point = event.point
        if point is None:
            return
        lane, mark = point
        if lane.finished < mark and not stream.runs_in(lane):  # its own earlier work comes first anyway
            stream.put(partial(lane.wait_for, mark))

    def launch(self, stream: CpuStream, body: Callable[[], None], work: Work) -> None:
        stream.put(partial(profiled, work, body))

    def run_here(self, body: Callable[[], None], work: Work) -> None:
        profiled(work, body)

    def join(self, event: CpuEvent, timeout_s: float) -> bool:
        point = event.point
        return point is None or point[0].wait_for(point[1], timeout_s)

    def synchronize(self, streams: Iterable[Any] = ()) -> None:
        for stream in {id(s): s for s in [*self._streams.values(), *streams]}.values():
            point = stream.mark()
            if point is not None:
                point[0].wait_for(point[1])

    def clock(self) -> float:
        return time.perf_counter()

    def close(self, streams: Iterable[Any], timeout_s: float) -> list[str]:
        end = time.monotonic() + timeout_s
        return [
            f"the thread of stream {stream.name!r}"
            for stream in streams
            if not stream.close(max(0.0, end - time.monotonic()))
        ]
