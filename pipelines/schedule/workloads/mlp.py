"""Multi-layer perceptrons: copy → forward → backward → optimizer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import torch
from torch import nn

from pipelines.schedule.plan.plan import IterContext, PipelineTask
from pipelines.schedule.workloads.base import TrainedModel, gradients


@dataclass(frozen=True)
class MlpSize:
    """Shapes of an Mlp.

    Floating-point operations per iteration: about 4 · batch · inputs · width + 6 · batch · width² · (layers - 1).
    """

    batch: int
    inputs: int
    width: int
    layers: int

    def halved(self) -> MlpSize:
        """Return the shape with half the batch."""
        return replace(self, batch=self.batch // 2)

    def model(self) -> nn.Sequential:
        """Return the layers, with fresh weights."""
        widths = [self.inputs, *[self.width] * self.layers]
        layers = [part for pair in pairwise(widths) for part in (nn.Linear(*pair), nn.ReLU())]
        return nn.Sequential(*layers, nn.Linear(self.width, 1))


SIZES = {
    "tiny": MlpSize(batch=16, inputs=32, width=32, layers=2),
    "small": MlpSize(batch=128, inputs=512, width=512, layers=4),
    "large": MlpSize(batch=8192, inputs=8192, width=8192, layers=8),  # 26 Tflop, 256 MiB of input, 2 GiB of weights
}


class Mlp(TrainedModel):
    """Regression on the output of a fixed random layer."""

    sizes = SIZES

    def __init__(self, size: MlpSize, device: Any, seed: int) -> None:
        super().__init__(device, seed, size.model)
        teacher = torch.randn(size.inputs, 1, generator=self._host) / size.inputs**0.5
        for _ in range(4):
            inputs = torch.randn(size.batch, size.inputs, generator=self._host)
            self._pool.append((self._pinned(inputs), self._pinned(torch.tanh(inputs @ teacher))))

    def tasks(self) -> list[PipelineTask]:
        return [
            PipelineTask("CopyBatch", self._copy, writes=("inputs", "target")),
            PipelineTask("Forward", self._forward, reads=("inputs", "target"), writes=("loss",)),
            PipelineTask("Backward", self._backward, [gradients(self.model.parameters())], reads=("loss",)),
            PipelineTask("OptimizerStep", self._step),
        ]

    def _copy(self, ctx: IterContext) -> None:
        inputs, target = ctx.batch
        ctx.inputs, ctx.target = self._copied(inputs), self._copied(target)

    def _forward(self, ctx: IterContext) -> None:
        ctx.loss = nn.functional.mse_loss(self.model(ctx.inputs), ctx.target)


class CopyHeavyMlp(Mlp):
    """Mlp with wide inputs and narrow layers, so that copying a batch takes a large part of the time.

    With nominal durations, the copy takes half as long as training on the batch. With `large`, it takes about as long,
    with 5,100 floating-point operations per copied byte. According to their data sheets, A100 and H100 do 6,200 and
    7,500 operations in TF32 per byte that the link to the host moves. Matrix products reach about 60 % of that.
    """

    sizes: ClassVar = {
        "tiny": MlpSize(batch=16, inputs=64, width=16, layers=2),
        "small": MlpSize(batch=256, inputs=16_384, width=16, layers=2),  # 16 MiB of input
        "large": MlpSize(batch=16_384, inputs=8192, width=2048, layers=5),  # 512 MiB of input, 2.7 Tflop
    }
