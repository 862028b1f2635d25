"""A classifier of compressed images: decode → augment → copy → forward → backward → optimizer.

Decoding and augmentation run on the host and release Python's interpreter lock, as in a data loader made of threads.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Any, ClassVar, NamedTuple

import torch
from torch import nn

from pipelines.schedule.plan.plan import IterContext, PipelineTask
from pipelines.schedule.workloads.base import Workload, gradients

_CLASSES = 4
_POOL = 8


@dataclass(frozen=True)
class ImagesSize:
    """Shapes: `batch` images of side times side bytes, and the width of the model's hidden layer."""

    batch: int
    side: int
    width: int

    def halved(self) -> ImagesSize:
        """Return the shape with half the batch."""
        return replace(self, batch=self.batch // 2)


class CompressedBatch(NamedTuple):
    """One batch in host memory: the compressed images, how many times they are compressed, and their classes."""

    images: bytes
    layers: int
    labels: torch.Tensor


class Augmented(Workload):
    """Classification of images by their brightest quarter. All batches take about the same time to decode."""

    sizes: ClassVar = {
        "tiny": ImagesSize(batch=16, side=8, width=16),
        "small": ImagesSize(batch=128, side=96, width=256),
        "large": ImagesSize(batch=128, side=224, width=16_384),
    }
    layers_of_batch = (1,) * _POOL

    def __init__(self, size: ImagesSize, device: Any, seed: int) -> None:
        super().__init__(device, seed)
        self.size, self.seed = size, seed
        self._pool += [self._batch(layers) for layers in self.layers_of_batch]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            parts = [nn.Linear(size.side**2, size.width), nn.ReLU(), nn.Linear(size.width, _CLASSES)]
            self.model = nn.Sequential(*parts).to(self.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05, momentum=0.9)

    def batches(self, n: int) -> Iterator[CompressedBatch]:
        return islice(cycle(self._pool), n)

    def tasks(self) -> list[PipelineTask]:
        return [
            PipelineTask("Decode", self._decode, writes=("images",)),
            PipelineTask("Augment", self._augment, reads=("images",), writes=("features",)),
            PipelineTask("CopyBatch", self._copy, reads=("features",), writes=("inputs", "labels")),
            PipelineTask("Forward", self._forward, reads=("inputs", "labels"), writes=("loss",)),
            PipelineTask("Backward", self._backward, [gradients(self.model.parameters())], reads=("loss",)),
            PipelineTask("OptimizerStep", self._step),
        ]

    def weights(self) -> dict[str, torch.Tensor]:
        return {name: p.detach() for name, p in self.model.named_parameters()}

    def _batch(self, layers: int) -> CompressedBatch:
        size, half = self.size, self.size.side // 2
        images = torch.randint(0, 64, (size.batch, 2, half, 2, half), generator=self._host, dtype=torch.uint8)
        labels = torch.randint(0, _CLASSES, (size.batch,), generator=self._host)
        images[torch.arange(size.batch), labels // 2, :, labels % 2] += 64
        compressed = images.numpy().tobytes()
        for _ in range(layers):
            compressed = zlib.compress(compressed, 1)
        return CompressedBatch(compressed, layers, self._pinned(labels))

    def _decode(self, ctx: IterContext) -> None:
        decoded = ctx.batch.images
        for _ in range(ctx.batch.layers):
            decoded = zlib.decompress(decoded)
        side = self.size.side
        ctx.images = torch.frombuffer(bytearray(decoded), dtype=torch.uint8).view(-1, side, side)

    def _augment(self, ctx: IterContext) -> None:
        """Shift and scale each image's brightness, with a seed of the iteration, and normalize."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + ctx.iter_idx)
        scale, shift = 0.2 * torch.rand(2, self.size.batch, 1, 1, generator=generator)
        features = ctx.images.to(torch.float32).div_(64).sub_(0.75)
        ctx.features = self._pinned(features.mul_(0.9 + scale).add_(shift).flatten(1))

    def _copy(self, ctx: IterContext) -> None:
        ctx.inputs, ctx.labels = self._copied(ctx.features), self._copied(ctx.batch.labels)

    def _forward(self, ctx: IterContext) -> None:
        ctx.loss = nn.functional.cross_entropy(self.model(ctx.inputs), ctx.labels)

    def _backward(self, ctx: IterContext) -> None:
        ctx.loss.backward()
        self.losses.append(ctx.loss.detach())

    def _step(self, ctx: IterContext) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class UnevenlyAugmented(Augmented):
    """Augmented with one batch in four that takes several times as long to decode, as with files of many sizes.

    A clock may wait for the slow batch in its period, where data flow decodes ahead while the model trains.
    """

    layers_of_batch = (1, 1, 1, 12) * (_POOL // 4)
