"""The two clocks of spans: the host's, and events on a CUDA stream, which never block.

`mark` marks the current time. `between` returns the ns from one mark to another, once `is_done` is true for both.
`device` is the device whose work the clock times. `can_mark` returns whether a mark is harmless now.
"""

from __future__ import annotations

import time

import torch

HOST, CUDA = "host", "cuda"
HOST_CALLS = "host_calls"  # only the host's calls were timed, because the work continued on another device


class HostClock:
    """The host's monotonic clock, which is correct if work is done when the call returns (CPU)."""

    name = HOST
    device = torch.device("cpu")

    def can_mark(self) -> bool:
        return True

    def mark(self) -> int:
        return time.perf_counter_ns()

    def is_done(self, mark: int) -> bool:
        return True

    def between(self, first: int, last: int) -> int:
        return last - first

    def wait(self) -> None:
        return None


class CudaClock:
    """Clock of events on the current stream.

    It measures GPU time between the moments at which the stream reaches two events.
    """

    name = CUDA

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def can_mark(self) -> bool:
        return not torch.cuda.is_current_stream_capturing()  # an event would become part of the capture, or break it

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        return event

    def is_done(self, mark: torch.cuda.Event) -> bool:
        return mark.query()

    def between(self, first: torch.cuda.Event, last: torch.cuda.Event) -> int:
        # elapsed_time is a 32-bit float in ms, exact to half a microsecond up to 8 s.
        return round(first.elapsed_time(last) * 1e6)

    def wait(self) -> None:
        torch.cuda.synchronize(self.device)


Clock = HostClock | CudaClock
