"""The CPU as a device. A stream is a thread with a FIFO queue, so streams really run concurrently.

The device behaves like CUDA: launching returns immediately, an event completes when the work launched before it has
run, and a wait blocks only the stream. So ordering, deadlocks and hand-overs can be tested without a GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Condition, Lock, current_thread
from typing import Any

from pipelines.schedule.devices.base import Device, Work
from pipelines.schedule.devices.ranges import profiled
from pipelines.schedule.devices.threads import computing_thread
from pipelines.schedule.plan.plan import DEFAULT_STREAM


class _Lane:
    """One lifetime of a stream's thread. A closed lane is never reused."""

    def __init__(self, name: str) -> None:
        self.jobs: SimpleQueue[Callable[[], Any] | None] = SimpleQueue()
        self.launched = 0  # number of queued jobs, changed under the stream's lock
        self.finished = 0  # number of finished jobs, changed by the lane's thread
        self.waiting = 0  # number of threads that wait for a job of the lane
        self.abandoned = False  # the lane's thread did not end in time, so waiters must give up
        self.passed = Condition(Lock())
        self.thread = computing_thread(f"cpu stream {name}", self._work)
        self.thread.start()

    def _work(self) -> None:
        while (job := self.jobs.get()) is not None:
            job()
            del job  # otherwise this thread would keep the last job's engine and batch alive
            self.finished += 1
            # A waiter registers before it reads `finished`. If it has not registered yet, it will see this job as
            # finished.
            if self.waiting:
                with self.passed:
                    self.passed.notify_all()

    def wait_for(self, mark: int, timeout_s: float | None = None) -> bool:
        """Block until the first `mark` jobs have run or the lane is abandoned. Return False after `timeout_s` seconds."""
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
    """A FIFO queue with a thread that starts with the first job and ends with `close`."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self._lane: _Lane | None = None
        self._before: _Lane | None = None
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"CpuStream({self.name!r})"

    def put(self, job: Callable[[], Any]) -> None:
        """Run `job` after all jobs queued before it. `job` must not raise."""
        with self._lock:
            if self._lane is None:
                self._lane, before = _Lane(self.name or "unnamed"), self._before
                if before is not None and before.thread.is_alive():  # another engine closed the stream
                    self._lane.launched += 1
                    self._lane.jobs.put(partial(before.wait_for, before.launched))
            self._lane.launched += 1
            self._lane.jobs.put(job)

    def mark(self) -> tuple[_Lane, int] | None:
        """Return the point after all jobs queued so far, as (lane, number of jobs), or None if no job was queued."""
        lane = self._lane
        return None if lane is None else (lane, lane.launched)

    def runs_in(self, lane: _Lane) -> bool:
        """Return whether `lane` is the stream's current lane."""
        return self._lane is lane

    def close(self, timeout_s: float) -> bool:
        """Finish the queued jobs and end the thread.

        Return False if the thread did not end within `timeout_s` seconds. Then its lane is abandoned, so that no thread
        waits for it.
        """
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


@dataclass(slots=True, eq=False)
class CpuEvent:
    """A point on a stream. Recording the event again moves the point, but earlier waits keep the old point."""

    point: tuple[_Lane, int] | None = None


class CpuDevice(Device):
    """CPU device with streams by name. It also accepts stream objects of another CpuDevice."""

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
        if lane.finished < mark and not stream.runs_in(lane):  # earlier jobs of the same stream run first anyway
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
        deadline = time.monotonic() + timeout_s
        return [
            f"the thread of stream {stream.name!r}"
            for stream in streams
            if not stream.close(max(0.0, deadline - time.monotonic()))
        ]
