"""A span during its measurement, and the description of its inputs."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import torch

from pipelines.record.clocks import HOST, HOST_CALLS, Clock
from pipelines.record.modules.graph import Part
from pipelines.record.perf_event.thread_counters import Counts

Inputs = tuple[str, str, str | None, str | None]
"""Key of the work in a span: name, phase, shapes and types of its inputs (JSON)."""


@dataclass(eq=False)
class Span:
    """A span of the step with number `step`.

    `begin` and `end`: (mark of the clock, host ns). `clock`: the clock that times the span, or None for the step's
    clock.
    """

    step: int
    span_id: int
    parent: Span | None
    name: str
    kind: str
    phase: str
    tid: int
    # Graph nodes of the inputs, before the module may change them in place.
    before: set[Any] = field(default_factory=set)
    # Parts of the graph that modules inside this one created, by their entries.
    inner: dict[Any, Part] = field(default_factory=dict)
    shapes: str | None = None
    dtypes: str | None = None
    begin: tuple[Any, int] | None = None
    end: tuple[Any, int] | None = None
    is_failed: bool = False
    backward: Span | None = None
    clock: str | None = None
    metadata: str | None = None
    is_always: bool = False
    counting: tuple[int, Counts | None] | None = None  # thread in which the span began, and its counts at that time
    counted: dict[str, int | float | None] = field(default_factory=dict)

    @property
    def depth(self) -> int:
        return 0 if self.parent is None else self.parent.depth + 1

    @property
    def inputs(self) -> Inputs:
        return self.name, self.phase, self.shapes, self.dtypes

    def describe(self, tensors: list[torch.Tensor]) -> None:
        """Set shapes and types of the inputs, as JSON. An unknown shape is null (nested tensors)."""
        self.shapes = json.dumps([_shape(tensor) for tensor in tensors])
        self.dtypes = json.dumps([str(tensor.dtype).removeprefix("torch.") for tensor in tensors])

    def look_at(self, tensors: list[torch.Tensor], clock: Clock) -> None:
        """Set the clock that times the span, from the devices of its tensors.

        Work on a device that `clock` does not time continues after the call. So for such a span and its ancestors, only
        the host's calls are timed. A span whose tensors are all on the CPU has host time.
        """
        devices = {tensor.device for tensor in tensors}
        untimed = {device for device in devices if device.type != "cpu" and device != clock.device}
        if untimed:
            span: Span | None = self
            while span is not None:
                span.clock, span = HOST_CALLS, span.parent
        elif self.clock is None and devices and all(device.type == "cpu" for device in devices):
            self.clock = HOST
        elif self.clock == HOST and devices and clock.device in devices:
            self.clock = None

    def row(self, root: Span, clock: Clock, offset: int) -> dict[str, Any]:
        """Return the span's row of `span_samples`. `offset`: Unix time minus the host's monotonic clock, ns.

        `root`: the span whose begin on the host is the reference for the clock's start times.
        """
        assert self.begin and self.end and root.begin
        host_ns = self.end[1] - self.begin[1]
        if self.clock in (HOST, HOST_CALLS):
            start_ns, duration_ns = self.begin[1] + offset, host_ns
        else:
            start_ns = root.begin[1] + offset + clock.between(root.begin[0], self.begin[0])
            duration_ns = clock.between(self.begin[0], self.end[0])
        return {
            "step": self.step,
            "span_id": self.span_id,
            "parent_id": self.parent.span_id if self.parent else None,
            "depth": self.depth,
            "name": self.name,
            "class": self.kind,
            "phase": self.phase,
            "tid": self.tid,
            "start_ns": start_ns,
            "duration_ns": duration_ns,
            "host_duration_ns": host_ns,
            "input_shapes": self.shapes,
            "input_dtypes": self.dtypes,
            "clock": self.clock or clock.name,
            "is_failed": self.is_failed,
            "metadata": self.metadata,
            "is_always": self.is_always,
            **self.counted,
        }


def _shape(tensor: torch.Tensor) -> list[Any] | None:
    try:
        return [n if isinstance(n, int) else str(n) for n in tensor.shape]
    except Exception:  # a tensor type without a shape may raise any exception
        return None
