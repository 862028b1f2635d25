"""A small discrete-event simulator of one rank: CPU threads that hand over to each other, in-order streams, events.

It writes every event with the times of such a machine. While it runs, it records the real cause of each wait and the
path of the `default` profile (rules: the package's docstring). Every duration passed in is ns and a multiple of the
clock's grid. The same program may be run again with some durations changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .busy import COMMUNICATION, COMPUTATION, MEMORY, BusyTime
from .changes import Changes
from .kineto import Rows
from .longest import COMM, COMPUTE, CPU, GAP, HOST, LAUNCH, MEM, ZERO, Path, longest
from .work import Done, Event, MachineTruth, Pending, Stream, Work

_SYNC_CALL_NS = 4000
_LABEL = {COMPUTATION: COMPUTE, COMMUNICATION: COMM, MEMORY: MEM}
_CBID = {
    "cudaLaunchKernel": 211, "cudaMemcpyAsync": 41, "cudaMemsetAsync": 51, "cudaEventRecord": 135,
    "cudaStreamWaitEvent": 147, "cudaStreamSynchronize": 131, "cudaEventSynchronize": 137,
    "cudaDeviceSynchronize": 165, "cudaGraphLaunch": 311, "cudaGraphInstantiate": 309,
    "cudaStreamBeginCapture": 310, "cudaStreamEndCapture": 317, "cudaEventQuery": 136,
}  # fmt: skip


@dataclass(slots=True)
class _Open:
    slot: int
    name: str
    cat: str
    start_ns: int
    args: str
    external: int
    path: Path = ZERO
    gpu_from: int | None = None
    gpu_to: int = 0


class Machine:
    """One rank's CPU threads and streams. Times are ns since the capture's start, on a true clock."""

    def __init__(
        self,
        rows: Rows,
        *,
        gap_ns: int = 1000,
        wake_ns: int = 2000,
        grid_ns: int | None = None,
        changes: Changes | None = None,
        queue_limit: int | None = None,
    ) -> None:
        """Create a machine that writes to `rows`.

        gap_ns: time from the end of a stream's (or event's) work to the next start. wake_ns: time from the end of
        awaited work to the return of the waiting call. grid_ns: minimum distance of two CPU events, None for the
        clock's grid. changes: factors of durations, by target. queue_limit: launches in a stream's queue before the
        next launch blocks, None for no limit.
        """
        self.changes = changes or Changes()
        self.queue_limit = queue_limit
        self.rows = rows
        self.grid = grid_ns or rows.clock.grid_ns
        self.gap_ns, self.wake_ns = gap_ns, wake_ns
        self.now = 0
        self.tid = rows.pid
        self.busy = BusyTime()
        self.truth = MachineTruth()
        self.cpu_path = ZERO
        self.step_paths: list[Path] = []
        self.streams: dict[int, Stream] = {}
        self._cpu_at: int | None = None
        self._depth = 0
        self._stack: list[_Open] = []
        self._annotations: list[_Open] = []
        self._external = 0
        self._correlation = 0
        self._events = 0
        self._frames = 0
        self.ended: dict[int, tuple[int, Path]] = {}
        """End of the work of other threads than the main thread, ns, and the path into that end, by tid."""

    # CPU side ---------------------------------------------------------------------------------------------------

    def advance(self, ns: int) -> None:
        """Advance the CPU time by `ns`.

        The time counts for the open operator, or without one for the open annotations and frames.
        """
        names = [opened.name for opened in self._stack]
        self.now += self.changes.of_host(ns, names, self._depth > 0, self.grid)

    def __enter__(self) -> Machine:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def enter(self, name: str, cat: str = "cpu_op", args: str = "") -> Machine:
        """Open an operator, annotation or Python frame on the current thread. The end of a `with` block closes it."""
        self._external += 1
        opened = _Open(self.rows.slot(), name, cat, self.now, args, self._external)
        if cat == "python_function":
            self._frames += 1
            parents = [o.external for o in self._stack if o.cat == cat]
            opened.external = self._frames
            parent = parents[-1] if parents else "null"
            opened.args = f'"Python id": {self._frames}, "Python parent id": {parent}'
        self._stack.append(opened)
        if cat == "user_annotation":
            self._annotations.append(opened)
        if cat == "cpu_op":
            self._node_opens()
        elif not self._depth:
            self._node(HOST)
        opened.path = self.cpu_path
        self.now += self.grid
        return self

    def leave(self) -> None:
        """Close the event that was opened last."""
        opened = self._stack.pop()
        dur = self.now - opened.start_ns
        args = opened.args
        if opened.cat != "python_function":
            args = f'"External id": {opened.external}, "Record function id": 0, "Ev Idx": {opened.external}{args}'
        self.rows.cpu(opened.slot, opened.cat, opened.name, self.tid, opened.start_ns, dur, args)
        if opened.cat == "user_annotation":
            self._annotations.remove(opened)
            if opened.gpu_from is not None:
                length = opened.gpu_to - opened.gpu_from
                self.rows.annotation_on_gpu(opened.name, 7, opened.gpu_from, length, opened.external)
        if opened.cat == "cpu_op":
            self._node(CPU)
            self._depth -= 1
        elif not self._depth:
            self._node(HOST)
        if opened.name.startswith("ProfilerStep#"):
            self.step_paths.append(self.cpu_path.minus(opened.path))
        self.now += self.grid

    def on_thread(self, tid: int) -> None:
        """Continue on another thread, which is only possible between operators.

        These threads do not overlap in time.
        """
        if self._depth:
            raise ValueError("a thread can only be left between operators")
        self.tid = tid

    @contextmanager
    def beside(self, tid: int) -> Iterator[None]:
        """Run the block on another thread, concurrently with the current thread.

        The other thread starts where it ended last (or now). The current thread then continues from its old time. The
        threads must not share streams.
        """
        state = self.now, self.tid, self._stack, self._annotations, self._depth, self.cpu_path, self._cpu_at
        self.now = self.ended[tid][0] if tid in self.ended else self.now
        self.tid, self._stack, self._annotations, self._depth = tid, [], [], 0
        yield
        self.ended[tid] = self.now, self.cpu_path
        self.now, self.tid, self._stack, self._annotations, self._depth, self.cpu_path, self._cpu_at = state

    def wait_for(self, tids: list[int], wake_ns: int) -> None:
        """Wait until `wake_ns` after the end of other threads' work, unless that time has already passed."""
        last, path = max((self.ended[tid] for tid in tids), key=lambda end: end[0])
        if last + wake_ns > self.now:
            self.now, self.cpu_path, self._cpu_at = last + wake_ns, path, last

    def _node(self, label: str) -> None:
        """Add a node of the thread. The time since its last node belongs to the path."""
        self.cpu_path = self.cpu_path.plus(label, 0 if self._cpu_at is None else self.now - self._cpu_at)
        self._cpu_at = self.now
        self.truth.path = longest(self.truth.path, self.cpu_path)

    def _node_opens(self) -> None:
        self._node(CPU if self._depth else HOST)
        self._depth += 1

    def _call(
        self,
        name: str,
        duration_ns: int,
        sources: list[Done] | None = None,
        is_sync: bool = True,
        until_ns: int | None = None,
    ) -> tuple[int, int, int, Path]:
        """Write a runtime call. With sources it blocks until they end, or until `until_ns`.

        Return (start, correlation, External id, path into the start).
        """
        self._correlation += 1
        corr, start = self._correlation, self.now
        duration_ns = self.changes.of_call(duration_ns, name, self.grid)
        slot = self.rows.slot()
        self._node_opens()
        path = self.cpu_path
        ends = [done.end_ns for done in sources or []]
        has_waited = any(end > start for end in ends)
        return_times = (end + self.wake_ns for end in ends if end > start)
        self.now = until_ns or max([start + duration_ns, *return_times])
        external = self._stack[-1].external if self._stack and self._stack[-1].cat == "cpu_op" else corr
        args = f'"External id": {external}, "cbid": {_CBID.get(name, 0)}, "correlation": {corr}'
        self.rows.cpu(slot, "cuda_runtime", name, self.tid, start, self.now - start, args)
        last = max(sources or [], key=lambda done: done.end_ns, default=None)
        if last and has_waited and (until_ns or last.end_ns + self.wake_ns == self.now):
            self.cpu_path, self._cpu_at = last.path, last.end_ns
        self._node(CPU)
        self._depth -= 1
        if sources is not None and is_sync:
            self.truth.blocked_syncs += has_waited
            self.truth.idle_syncs += not has_waited
        elif has_waited:
            self.truth.blocked_launches += 1
        self.now += self.grid
        return start, corr, external, path

    def free(self, duration_ns: int) -> None:
        """Write cudaFree, which waits for all streams and then takes `duration_ns`."""
        sources = [s.last for s in self.streams.values() if s.last]
        ready = max([self.now, *(done.end_ns for done in sources)])
        changed_ns = self.changes.of_call(duration_ns, "cudaFree", self.grid)
        self._call("cudaFree", duration_ns, sources, is_sync=False, until_ns=ready + changed_ns)

    def call(self, name: str, duration_ns: int) -> None:
        """Write a runtime call that neither launches nor waits."""
        self._call(name, duration_ns)

    # GPU side ---------------------------------------------------------------------------------------------------

    def stream(self, number: int) -> Stream:
        return self.streams.setdefault(number, Stream())

    def launch(self, work: Work, stream: int, duration_ns: int, call_ns: int = 5000, latency_ns: int = 6000) -> Done:
        """Launch `work`.

        It starts latency_ns after the call's start, or later if the stream or awaited events require it.
        """
        pending = self.launch_open(work, stream, call_ns, latency_ns)
        return self.finish(
            pending, pending.start_ns + self.changes.of_work(duration_ns, work.name, work.kind, self.grid)
        )

    def launch_open(self, work: Work, stream: int, call_ns: int, latency_ns: int) -> Pending:
        """Launch work whose end is passed to `finish` later. The stream must not be used until then."""
        queue = self.stream(stream).queue
        full = [queue[-self.queue_limit]] if self.queue_limit and len(queue) >= self.queue_limit else None
        call = self._call(work.call, call_ns, full, is_sync=False)
        self.rows.flow_start(call[1], self.tid, call[0])
        return self._queued(work, stream, call, latency_ns)

    def graph(
        self, works: list[tuple[Work, int]], stream: int, call_ns: int = 20_000, latency_ns: int = 25_000
    ) -> None:
        """Write cudaGraphLaunch, one call for (work, duration in ns) that run one after another on a stream."""
        call = self._call("cudaGraphLaunch", call_ns)
        self.rows.flow_start(call[1], self.tid, call[0])
        for work, duration_ns in works:
            pending = self._queued(work, stream, call, latency_ns)
            self.finish(pending, pending.start_ns + self.changes.of_work(duration_ns, work.name, work.kind, self.grid))

    def _queued(self, work: Work, stream: int, call: tuple[int, int, int, Path], latency_ns: int) -> Pending:
        """Put work on a stream. `call`: the result of `_call` for the launch."""
        call_start, corr, external, call_path = call
        queue = self.stream(stream)
        start, path = self._start(queue, call_start, call_path, latency_ns)
        queue.waits = []
        return Pending(work, stream, start, path, external, corr)

    def _start(self, queue: Stream, call_ns: int, call_path: Path, latency_ns: int) -> tuple[int, Path]:
        """Return the start of work in ns, and the path into it (through the node that determines the start)."""
        causes = []
        if queue.last:
            causes.append((queue.last.end_ns + self.gap_ns, "kernel", queue.last.path, GAP, queue.last.end_ns))
        causes += [(done.end_ns + self.gap_ns, "wait", done.path, GAP, done.end_ns) for done in queue.waits]
        causes.append((call_ns + latency_ns, "launch", call_path, LAUNCH, call_ns))
        start, cause, path, label, since = max(causes, key=lambda c: c[0])
        self.truth.started_by[cause] += 1
        self.truth.rule[cause] += 1
        return start, path.plus(label, start - since)

    def finish(self, pending: Pending, end_ns: int) -> Done:
        """End launched work at `end_ns` and write its row."""
        work, start = pending.work, pending.start_ns
        path = pending.path.plus(_LABEL[work.kind], end_ns - start)
        done = Done(end_ns, path)
        self.streams[pending.stream].last = done
        if self.queue_limit:
            self.streams[pending.stream].queue.append(done)
        self.truth.path = longest(self.truth.path, path)
        self.truth.n_kernels[work.kind] += 1
        self.busy.add(start, end_ns, work.kind)
        self.rows.gpu(work.cat, work.name, pending.stream, start, end_ns - start, pending.external,
                      pending.correlation, work.args)  # fmt: skip
        if pending.stream == 7:
            for note in self._annotations:
                note.gpu_from = start if note.gpu_from is None else note.gpu_from
                note.gpu_to = end_ns
        return done

    # Events and waits -------------------------------------------------------------------------------------------

    def record(self, stream: int, call_ns: int = 2000) -> Event:
        """Write cudaEventRecord on a stream and return the event."""
        _, corr, _, _ = self._call("cudaEventRecord", call_ns)
        self._events += 1
        return Event(self._events, corr, stream, self.stream(stream).last)

    def wait(self, stream: int, event: Event) -> None:
        """Write cudaStreamWaitEvent. The stream's next work starts after the event."""
        start, corr, external, _ = self._call("cudaStreamWaitEvent", 3000)
        self.rows.sync("Stream Wait Event", stream, start + 1000, 1000, external, corr, self._wait_args(event))
        if event.source:
            self.stream(stream).waits.append(event.source)

    def stream_sync(self, stream: int) -> None:
        """Write cudaStreamSynchronize, which blocks until all work launched on the stream has ended."""
        last = self.stream(stream).last
        self._sync("cudaStreamSynchronize", "Stream Sync", stream, _SYNC_CALL_NS, [last] if last else [])

    def device_sync(self) -> None:
        """Write cudaDeviceSynchronize, which blocks until all streams are done."""
        sources = [s.last for s in self.streams.values() if s.last]
        self._sync("cudaDeviceSynchronize", "Context Sync", -1, _SYNC_CALL_NS, sources)

    def event_sync(self, event: Event) -> None:
        """Write cudaEventSynchronize, which blocks until the event's work has ended."""
        sources = [event.source] if event.source else []
        self._sync("cudaEventSynchronize", "Event Sync", -1, _SYNC_CALL_NS, sources, self._wait_args(event))

    def poll(self, event: Event, call_ns: int = 1500, gap_ns: int = 1000) -> None:
        """Poll cudaEventQuery until the event's work has ended (`while not event.query()`), with Python in between."""
        done = event.source
        waits = bool(done and done.end_ns > self.now)
        while done and done.end_ns > self.now:  # no nodes, because the loop's work while it waits is not on the path
            queried_at, length = self.now, self.changes.of_call(call_ns, "cudaEventQuery", self.grid)
            self.query_row(self.tid, self.now, length)
            self.now += length + self.grid
            self.advance(gap_ns)
            if self.now - queried_at <= self.grid:  # the host takes no time, so avoid a row for every nanosecond
                self.now = max(self.now, done.end_ns)
        if done and waits:
            self.cpu_path, self._cpu_at = done.path.plus(CPU, self.now - done.end_ns), self.now
            self.truth.blocked_polls += 1
        self._call("cudaEventQuery", call_ns)

    def query_row(self, tid: int, start_ns: int, duration_ns: int) -> None:
        """Write a call of cudaEventQuery on any thread, without a node in the path."""
        self._correlation += 1
        args = f'"External id": {self._correlation}, "cbid": 136, "correlation": {self._correlation}'
        self.rows.cpu(self.rows.slot(), "cuda_runtime", "cudaEventQuery", tid, start_ns, duration_ns, args)

    def _sync(self, call: str, kind: str, stream: int, dur: int, sources: list[Done], wait: str = "") -> None:
        start, corr, external, _ = self._call(call, dur, sources)
        end = self.now - self.grid
        self.rows.sync(kind, stream, start + 1000, end - start - 1000, external, corr, wait)

    def _wait_args(self, event: Event) -> str:
        return (
            f'"wait_on_stream": {self.rows.place(event.stream)[1]}, "wait_on_cuda_event_record_corr_id": {event.correlation}, '
            f'"wait_on_cuda_event_id": {event.number}, '
        )
