"""A CUDA device: torch's streams and events, NVTX ranges, and memory that is kept until its last reader is done."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from typing import Any

import torch

from pipelines.schedule.devices.base import Device, Work
from pipelines.schedule.devices.ranges import profiled
from pipelines.schedule.devices.tensors import StreamsOfTensors, cuda_tensors
from pipelines.schedule.plan.plan import DEFAULT_STREAM

_TRACER_VARIABLES = ("NVTX_INJECTION64_PATH", "NSYS_PROFILING_SESSION_ID")
"""Environment variables that Nsight Systems and other tools set in a process whose NVTX ranges they collect."""


class CudaDevice(Device):
    """CUDA device `index`, or torch's current device if `index` is None.

    Launching runs the body immediately. Its kernels run later, on the stream.
    """

    def __init__(self, index: int | None = 0) -> None:
        if not torch.cuda.is_available():
            name = "cuda" if index is None else f"cuda:{index}"
            raise RuntimeError(f'device {name} does not exist: torch sees no CUDA. Use device="cpu" to test a plan')
        if index is None:
            index = torch.cuda.current_device()
        if index >= torch.cuda.device_count():
            raise RuntimeError(f"device cuda:{index} does not exist: torch sees {torch.cuda.device_count()} device(s)")
        self.name = str(index)
        self.index = index
        self._is_traced = any(name in os.environ for name in _TRACER_VARIABLES)
        self._kept = StreamsOfTensors()
        self._default = torch.cuda.default_stream(index)
        self._streams: dict[str, torch.cuda.Stream] = {DEFAULT_STREAM: self._default}

    def stream(self, wanted: Any) -> torch.cuda.Stream:
        if isinstance(wanted, torch.cuda.Stream):
            if wanted.device.index != self.index:
                raise TypeError(f"stream={wanted!r} belongs to {wanted.device}, the pipeline runs on cuda:{self.index}")
            return wanted
        name = DEFAULT_STREAM if wanted is None else wanted
        if not isinstance(name, str):
            raise TypeError(f"stream={wanted!r}: the cuda device takes a name, a torch.cuda.Stream or None")
        if name not in self._streams:
            self._streams[name] = torch.cuda.Stream(self.index)
        return self._streams[name]

    def stream_name(self, stream: Any) -> str | None:
        return next((name for name, named in self._streams.items() if named == stream), None)

    def event(self) -> torch.cuda.Event:
        return torch.cuda.Event()

    def record(self, event: torch.cuda.Event, stream: torch.cuda.Stream) -> None:
        event.record(stream)

    def wait(self, stream: torch.cuda.Stream, event: torch.cuda.Event) -> None:
        stream.wait_event(event)

    def launch(self, stream: torch.cuda.Stream, body: Callable[[], None], work: Work) -> None:
        with torch.cuda.stream(stream):
            # A range costs as much as a launch. emit_nvtx() and torch's profiler enable the autograd profiler.
            if self._is_traced or torch.autograd._profiler_enabled():  # pyright: ignore[reportPrivateImportUsage]
                with torch.cuda.nvtx.range("{}", work.label):  # the argument is a format; a task's name may have braces
                    profiled(work, body)
            else:
                profiled(work, body)

    def run_here(self, body: Callable[[], None], work: Work) -> None:
        caller = self.current_stream()
        if caller == self._default:
            self.launch(self._default, body, work)
            return
        # The caller's launched work, such as the batch, comes before the task. The caller's next work, such as reading
        # the loss in on_retire, comes after it.
        self._default.wait_stream(caller)
        self.launch(self._default, body, work)
        caller.wait_stream(self._default)

    def join(self, event: torch.cuda.Event, timeout_s: float) -> bool:
        torch.cuda.current_stream(self.index).wait_event(event)
        return True

    def synchronize(self, streams: Iterable[Any] = ()) -> None:
        torch.cuda.synchronize(self.index)

    def clock(self) -> float:
        return time.perf_counter()

    def keep_alive(self, values: dict[str, Any], stream: torch.cuda.Stream) -> None:
        # The allocator immediately reuses a freed block for the stream that allocated it. record_stream makes the
        # allocator wait for this stream, too. It has no effect if the tensor was allocated on this stream.
        for tensor in cuda_tensors(values):
            if self._kept.add(tensor, stream):
                tensor.record_stream(stream)

    def made_on(self, stream: torch.cuda.Stream, values: dict[str, Any]) -> None:
        for tensor in cuda_tensors(values, gradients=False):  # autograd may have made them on another stream
            self._kept.add(tensor, stream)

    def holds(self, values: dict[str, Any]) -> bool:
        return any(True for _ in cuda_tensors(values))

    def current_stream(self) -> torch.cuda.Stream:
        return torch.cuda.current_stream(self.index)

    def open_thread(self, profile: bool) -> AbstractContextManager:
        stack = ExitStack()
        stack.enter_context(torch.cuda.device(self.index))
        if profile:  # emit_nvtx is per thread, so each submitting thread enters it
            stack.enter_context(torch.autograd.profiler.emit_nvtx())
        return stack
