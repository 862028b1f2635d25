"""The two clocks of spans: the host's, and events on a CUDA stream that nobody waits for."""

from __future__ import annotations

import time
from typing import Any, Protocol

import torch


class Clock(Protocol):
    """`mark` makes a mark now; `between` is the ns from one to another, once `is_done` says that both were passed."""

    name: str

    def mark(self) -> Any: ...
    def is_done(self, mark: Any) -> bool: ...
    def between(self, first: Any, last: Any) -> int: ...
    def wait(self) -> None: ...


class HostClock:
    """The host's monotonic clock: right where work is done when the call returns (CPU)."""

    name = "host"

    def mark(self) -> int:
        return time.perf_counter_ns()

    def is_done(self, mark: int) -> bool:
        return True

    def between(self, first: int, last: int) -> int:
        return last - first

    def wait(self) -> None:
        return None


class CudaClock:
    """Events on the current stream: the time between two is the GPU's, from when the stream reaches them."""

    name = "cuda"

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self._device))
        return event

    def is_done(self, mark: torch.cuda.Event) -> bool:
        return mark.query()

    def between(self, first: torch.cuda.Event, last: torch.cuda.Event) -> int:
        return round(first.elapsed_time(last) * 1e6)  # ms, half a microsecond fine

    def wait(self) -> None:
        torch.cuda.synchronize(self._device)
