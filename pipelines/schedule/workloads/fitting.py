"""The largest shape of a workload that fits a GPU, measured on the GPU."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import torch

from pipelines.schedule.plan.plan import IterContext

if TYPE_CHECKING:
    from pipelines.schedule.workloads.base import Workload

SHARE = 0.5
"""Share of the device's memory that a workload may use. The rest is for the profiler, libraries and other processes."""
_IN_FLIGHT = 5
"""Number of iterations whose memory must fit, as many as DataFlowPipeline keeps in flight for a plan of three stages.

The host may submit more. When memory is full, torch's allocator waits for the GPU.
"""


class Shape(Protocol):
    """Shapes of a workload that can be halved."""

    @property
    def batch(self) -> int: ...

    def halved(self) -> Any: ...


S = TypeVar("S", bound=Shape)


def fitting_shape(make: Callable[[S], Workload], shape: S, device: Any) -> S:
    """Return the shape, halved until `make(shape)` fits into half the device's memory.

    Raise RuntimeError if not even a batch of one fits.
    """
    limit = SHARE * torch.cuda.get_device_properties(device).total_memory
    while shape.batch >= 1:
        bytes_needed = _bytes_needed(make, shape, device)
        gc.collect()
        torch.cuda.empty_cache()
        if bytes_needed <= limit:
            return shape
        shape = shape.halved()
    raise RuntimeError(f"the workload does not fit into half the memory of {device}; use --size small")


def _bytes_needed(make: Callable[[S], Workload], shape: S, device: Any) -> float:
    """Return the persistent memory plus the memory of the iterations in flight, measured in two serial iterations.

    Infinite if these two run out of memory.
    """
    try:
        workload = make(shape)
        _iterate(workload, 0)  # allocates momenta, which persist
        torch.cuda.synchronize(device)
        stays = torch.cuda.memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        _iterate(workload, 1)
        torch.cuda.synchronize(device)
        return stays + _IN_FLIGHT * (torch.cuda.max_memory_allocated(device) - stays)
    except torch.cuda.OutOfMemoryError:
        return float("inf")


def _iterate(workload: Workload, iteration: int) -> None:
    ctx = IterContext(next(iter(workload.batches(1))), iteration)
    for task in workload.tasks():
        task.fn(ctx)
