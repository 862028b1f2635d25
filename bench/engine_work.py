"""Work in FusedSparseDist's shape for the GPU benchmark: kernels that only take time, and a small recommender.

Needs only torch and the standard library.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from pipelines.schedule import IterContext

Fn = Callable[[IterContext], None]

SPIN_US = {
    "H2D": 1000,
    "InputDistStart": 500,
    "InputDistWait": 500,
    "EmbLookup": 800,
    "ZeroGrad": 100,
    "WaitBatch": 0,
    "Forward": 3000,
    "Backward": 6000,
    "OptimizerStep": 900,
}
"""Duration of each task, us. A serial iteration takes 12.8 ms, and the default stream, the bottleneck, 10 ms."""


def spinning(scale: float) -> dict[str, Fn]:
    """Return tasks whose kernels each occupy one multiprocessor for a fixed time.

    So streams never slow each other down.
    """
    per_us = _cycles_per_us()

    def spin(us: float) -> Fn:
        cycles = int(us * scale * per_us)
        return lambda ctx: torch.cuda._sleep(cycles) if cycles else None

    return {name: spin(us) for name, us in SPIN_US.items()}


def _cycles_per_us() -> float:
    """Measure the rate of the clock that `_sleep` counts, cycles per us. The driver reports a different clock."""
    cycles, best = 20_000_000, float("inf")
    for _ in range(5):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        torch.cuda._sleep(cycles)
        end.record()
        torch.cuda.synchronize()
        best = min(best, start.elapsed_time(end) * 1e3)
    return cycles / best


@dataclass
class Batch:
    """A batch in host memory, pinned if there is a GPU."""

    dense: torch.Tensor
    ids: torch.Tensor
    label: torch.Tensor


class Recommender:
    """A model with embedding rows that Backward updates itself (fused), and a dense part with an optimizer.

    It represents a sharded model on one GPU. InputDist sorts the ids instead of exchanging them between ranks.
    """

    def __init__(self, device: str, scale: float) -> None:
        self.device, self.lr = device, 1e-3
        self.size, self.features, self.dim = max(64, int(16384 * scale)), 32, 64
        self.dense, self.rows, self.width = 1024, max(1000, int(2_000_000 * scale)), max(64, int(4096 * scale))
        host = torch.Generator().manual_seed(0)
        self.batches = [self._batch(host) for _ in range(4)]
        self.reset()

    def reset(self) -> None:
        """Reset the weights to their initial values, so that every run trains the same."""
        torch.manual_seed(0)
        inputs = self.dense + self.features * self.dim
        layers = [nn.Linear(inputs, self.width), nn.ReLU(), nn.Linear(self.width, self.width), nn.ReLU()]
        self.model = nn.Sequential(*layers, nn.Linear(self.width, 1)).to(self.device)
        self.table = torch.randn(self.rows, self.dim, device=self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=self.lr)
        self.losses: list[torch.Tensor] = []
        if self.device != "cpu":  # a pipeline's streams do not wait for the stream that created the weights
            torch.cuda.synchronize()

    def data(self, iterations: int) -> list[Batch]:
        """Return as many batches as iterations, which repeat a few batches."""
        return [self.batches[i % len(self.batches)] for i in range(iterations)]

    def functions(self) -> dict[str, Fn]:
        """Return the tasks' functions by name."""
        return {
            "H2D": self._copy,
            "InputDistStart": self._start_dist,
            "InputDistWait": self._wait_dist,
            "EmbLookup": self._lookup,
            "ZeroGrad": lambda ctx: self.optimizer.zero_grad(set_to_none=True),
            "WaitBatch": lambda ctx: None,
            "Forward": self._forward,
            "Backward": self._backward,
            "OptimizerStep": self._step,
        }

    def _batch(self, host: torch.Generator) -> Batch:
        tensors = (
            torch.randn(self.size, self.dense, generator=host),
            torch.randint(0, self.rows, (self.size * self.features,), generator=host),
            torch.rand(self.size, 1, generator=host),
        )
        return Batch(*(t.pin_memory() for t in tensors) if self.device != "cpu" else tensors)

    def _copy(self, ctx: IterContext) -> None:
        batch = ctx.batch
        for name in ("dense", "ids", "label"):
            setattr(ctx, name, getattr(batch, name).to(self.device, non_blocking=True))

    def _start_dist(self, ctx: IterContext) -> None:
        ctx.order = torch.argsort(ctx.ids)

    def _wait_dist(self, ctx: IterContext) -> None:
        ctx.routed = ctx.ids.index_select(0, ctx.order)

    def _lookup(self, ctx: IterContext) -> None:
        rows = self.table.index_select(0, ctx.routed)
        ctx.emb = torch.empty_like(rows).index_copy_(0, ctx.order, rows).requires_grad_()

    def _forward(self, ctx: IterContext) -> None:
        inputs = torch.cat([ctx.dense, ctx.emb.view(self.size, -1)], dim=1)
        ctx.loss = nn.functional.binary_cross_entropy_with_logits(self.model(inputs), ctx.label)

    def _backward(self, ctx: IterContext) -> None:
        ctx.loss.backward()
        self.table.index_add_(0, ctx.ids, ctx.emb.grad, alpha=-self.lr)

    def _step(self, ctx: IterContext) -> None:
        self.optimizer.step()
        self.losses.append(ctx.loss.detach())


def by_hand(names: list[str], plan: Any, streams: dict[str, torch.cuda.Stream]) -> Callable[[int], float]:
    """Return a hand-written loop for one GPU: one thread, events between streams, empty tasks."""
    stage = {name: plan.stage(name) for name in names}
    other = {n: [d for d in plan.intra[n] if streams[d] != streams[n]] for n in names}
    before = {n: [d for d in plan.inter[n] if streams[d] != streams[n]] for n in names}
    size = plan.depth + 1
    ring = [{name: torch.cuda.Event() for name in names} for _ in range(size)]
    main = torch.cuda.current_stream()

    def run(iterations: int) -> float:
        start = time.perf_counter()
        for period in range(iterations + plan.depth - 1):
            for name in names:
                i = period - stage[name]
                if not 0 <= i < iterations:
                    continue
                stream, events = streams[name], ring[i % size]
                for dep in other[name]:
                    stream.wait_event(events[dep])
                for dep in before[name] if i else ():
                    stream.wait_event(ring[(i - 1) % size][dep])
                with torch.cuda.stream(stream):
                    plan.tasks[name].fn(None)
                events[name].record(stream)
            done = period - plan.depth + 1
            if done >= 0:
                main.wait_event(ring[done % size]["OptimizerStep"])
        torch.cuda.synchronize()
        return time.perf_counter() - start

    return run
