"""Writer of Kineto's trace events as text from templates, one line each, without json.dumps.

Input times are true nanoseconds since the capture's start. The clock formats them as Kineto does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

BASE_NS = 1_711_964_646_000_000_000
"""`baseTimeNanoseconds` of every synthetic capture (fractional clocks count from it), Unix ns."""

START_NS = 1_000_000_000_000
"""Offset of a capture's true time 0 from BASE_NS, ns. It is far from 0, as in real captures."""

DEVICE_STREAMS = 100
"""Number of streams of one device: stream 107 is stream 7 of the device after a rank's first."""


@dataclass(frozen=True, slots=True)
class Clock:
    """Clock of a rank, which formats times.

    fractional: write microseconds with three decimals since BASE_NS (new Kineto). Otherwise write whole microseconds
    since the Unix epoch (old Kineto), and every time must be a multiple of 1000 ns. offset_ns is added to true time.
    """

    fractional: bool = True
    offset_ns: int = 0

    @property
    def grid_ns(self) -> int:
        """Return the grid of the capture, ns. Every time and duration is a multiple of it."""
        return 1 if self.fractional else 1000

    def stamp(self, true_ns: int) -> str:
        """Return the `ts` text of a true time in ns."""
        local = true_ns + START_NS + self.offset_ns
        if self.fractional:
            return f"{local // 1000}.{local % 1000:03d}"
        return str((BASE_NS + local) // 1000)

    def length(self, duration_ns: int) -> str:
        """Return the `dur` text of a duration in ns."""
        return f"{duration_ns // 1000}.{duration_ns % 1000:03d}" if self.fractional else str(duration_ns // 1000)


class Rows:
    """Events of one rank as text lines, in the order in which they were opened."""

    def __init__(self, clock: Clock, pid: int, device: int) -> None:
        self.clock = clock
        self.pid = pid
        self.device = device
        self.n_events = 0
        self._lines: list[str] = []

    def take(self) -> list[str]:
        """Return and drop all lines since the last call. Every slot must be filled."""
        lines, self._lines = self._lines, []
        return lines

    def add(self, line: str) -> None:
        self._lines.append(line)
        self.n_events += 1

    def slot(self) -> int:
        """Reserve a line for an event of unknown duration, so that parents come before their children.

        Return its index.
        """
        self.add("")
        return len(self._lines) - 1

    def cpu(self, slot: int, cat: str, name: str, tid: int, ts: int, dur: int, args: str) -> None:
        """Fill a slot with a CPU event. ts and dur are true ns, args is the inside of a JSON object."""
        self._lines[slot] = self._span(cat, name, self.pid, tid, ts, dur, args)

    def _span(self, cat: str, name: str, pid: int, tid: int, ts: int, dur: int, args: str) -> str:
        return (
            f'{{"ph": "X", "cat": "{cat}", "name": "{name}", "pid": {pid}, "tid": {tid}, '
            f'"ts": {self.clock.stamp(ts)}, "dur": {self.clock.length(dur)}, "args": {{{args}}}}}'
        )

    def gpu(self, cat: str, name: str, stream: int, ts: int, dur: int, external: int, corr: int, args: str) -> None:
        """Write a kernel, memcpy or memset with the finish of its ac2g flow. ts and dur are true ns."""
        device, stream = self.place(stream)
        location_args = (
            f'"External id": {external}, "device": {device}, "context": 1, "stream": {stream}, "correlation": {corr}'
        )
        self.add(self._span(cat, name, device, stream, ts, dur, f"{location_args}, {args}"))
        self.add(
            f'{{"ph": "f", "id": {corr}, "pid": {device}, "tid": {stream}, "ts": {self.clock.stamp(ts)}, '
            f'"cat": "ac2g", "name": "ac2g", "bp": "e"}}'
        )

    def place(self, stream: int) -> tuple[int, int]:
        """Return a stream's device, and its number on that device.

        Numbers of streams from DEVICE_STREAMS on belong to the next devices.
        """
        return self.device + max(stream, 0) // DEVICE_STREAMS, stream % DEVICE_STREAMS if stream >= 0 else stream

    def flow_start(self, corr: int, tid: int, ts: int) -> None:
        """Write the start of the ac2g flow of a launch."""
        self.add(
            f'{{"ph": "s", "id": {corr}, "pid": {self.pid}, "tid": {tid}, "ts": {self.clock.stamp(ts)}, '
            f'"cat": "ac2g", "name": "ac2g"}}'
        )

    def sync(self, kind: str, stream: int, ts: int, dur: int, external: int, corr: int, wait: str = "") -> None:
        """Write a cuda_sync row.

        stream -1: the whole context, or an event. wait: the wait_on_* arguments, with a trailing comma.
        """
        device, stream = self.place(stream)
        location_args = f'"stream": {stream}, "correlation": {corr}, "device": {device}, "context": 1'
        args = f'"External id": {external}, "cuda_sync_kind": "{kind}", {wait}{location_args}'
        self.add(self._span("cuda_sync", kind, device, stream, ts, dur, args))

    def annotation_on_gpu(self, name: str, stream: int, ts: int, dur: int, external: int) -> None:
        """Write the GPU copy of a CPU annotation: the span of its kernels on one stream."""
        args = f'"External id": {external}'
        self.add(self._span("gpu_user_annotation", name, self.device, stream, ts, dur, args))

    def metadata(self, threads: dict[int, str], streams: dict[int, str]) -> None:
        """Write the M events that name processes, threads and streams."""
        stamp = self.clock.stamp(0)

        def name(kind: str, pid: int, tid: int, args: dict[str, str | int]) -> None:
            self.add(json.dumps({"name": kind, "ph": "M", "ts": 0, "pid": pid, "tid": tid, "args": args})
                     .replace('"ts": 0', f'"ts": {stamp}', 1))  # fmt: skip

        for pid, label, order in ((self.pid, "CPU", self.pid), (self.device, f"GPU {self.device}", 5_000_000)):
            name("process_name", pid, 0, {"name": "python3.11"})
            name("process_labels", pid, 0, {"labels": label})
            name("process_sort_index", pid, 0, {"sort_index": order})
        for pid, rows in ((self.pid, threads), (self.device, streams)):
            for tid, label in rows.items():
                name("thread_name", pid, tid, {"name": label})
                name("thread_sort_index", pid, tid, {"sort_index": tid})

    def closing(self, end_ns: int) -> None:
        """Write the profiler's own span and the instants with which Kineto ends a trace."""
        c = self.clock
        self.add(
            f'{{"ph": "X", "cat": "Trace", "ts": {c.stamp(0)}, "dur": {c.length(end_ns)}, "pid": "Spans", '
            f'"tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)", "args": {{"Op count": 0}}}}'
        )
        for label, time_ns in (("Iteration Start: PyTorch Profiler", 0), ("Record Window End", end_ns)):
            self.add(
                f'{{"name": "{label}", "ph": "i", "s": "g", "pid": "Traces", "tid": "Trace PyTorch Profiler", '
                f'"ts": {c.stamp(time_ns)}}}'
            )


NO_COST = {"operator_ns": 0, "call_ns": 0, "frame_ns": 0, "annotation_ns": 0}
"""Cost of recording an event on a simulated machine: no time."""


def head(rank: int, world_size: int, device: int) -> str:
    """Return the document up to and including the array's opening bracket."""
    ranks = list(range(world_size))
    group = {"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl", "pg_size": world_size}
    distributed = {
        "backend": "nccl", "rank": rank, "world_size": world_size, "pg_count": 1,
        "pg_config": [{**group, "ranks": ranks}], "nccl_version": "2.21.5",
    }  # fmt: skip
    properties = {
        "id": device, "name": "NVIDIA Synthetic", "totalGlobalMem": 85_000_000_000, "computeMajor": 9,
        "computeMinor": 0, "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,
        "regsPerBlock": 65536, "warpSize": 32, "sharedMemPerBlock": 49152, "numSms": 132,
    }  # fmt: skip
    return (
        f'{{\n"schemaVersion": 1,\n"deviceProperties": {json.dumps([properties])},\n'
        f'"tracelake_profiler_cost": {json.dumps(NO_COST)},\n'
        f'"distributedInfo": {json.dumps(distributed)},\n"traceEvents": [\n'
    )


def tail(rank: int, clock: Clock) -> str:
    """Return the document from the array's closing bracket on. Kineto writes these keys after the events."""
    base = f',\n"baseTimeNanoseconds": {BASE_NS}' if clock.fractional else ""
    return f'\n],\n"traceName": "/tmp/rank{rank}.pt.trace.json",\n"displayTimeUnit": "ms"{base}\n}}\n'
