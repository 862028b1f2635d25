"""A classifier of compressed images: decode → augment → copy → forward → backward → optimizer.

Decoding and augmentation run on the host and release Python's interpreter lock, as in a data loader with threads.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import Any, ClassVar, NamedTuple

import torch
from torch import nn

from pipelines.schedule.plan.plan import IterContext, PipelineTask
from pipelines.schedule.workloads.base import TrainedModel, gradients

_CLASSES = 4
_POOL = 8  # batches


@dataclass(frozen=True)
class ImagesSize:
    """Shapes: `batch` images of `side` times `side` bytes, and the width of the model's hidden layer."""

    batch: int
    side: int
    width: int

    def halved(self) -> ImagesSize:
        """Return the shape with half the batch."""
        return replace(self, batch=self.batch // 2)

    def model(self) -> nn.Sequential:
        """Return the layers, with fresh weights."""
        return nn.Sequential(nn.Linear(self.side**2, self.width), nn.ReLU(), nn.Linear(self.width, _CLASSES))


class CompressedBatch(NamedTuple):
    """One batch in host memory: the compressed images, and their classes."""

    images: bytes
    labels: torch.Tensor


class Augmented(TrainedModel):
    """Classification of images by their brightest quarter."""

    sizes: ClassVar = {
        "tiny": ImagesSize(batch=16, side=8, width=16),
        "small": ImagesSize(batch=128, side=96, width=256),
        "large": ImagesSize(batch=128, side=224, width=16_384),
    }

    def __init__(self, size: ImagesSize, device: Any, seed: int) -> None:
        super().__init__(device, seed, size.model)
        self.size, self.seed = size, seed
        self._pool += [self._batch() for _ in range(_POOL)]

    def tasks(self) -> list[PipelineTask]:
        return [
            PipelineTask("Decode", self._decode, writes=("images",)),
            PipelineTask("Augment", self._augment, reads=("images",), writes=("features",)),
            PipelineTask("CopyBatch", self._copy, reads=("features",), writes=("inputs", "labels")),
            PipelineTask("Forward", self._forward, reads=("inputs", "labels"), writes=("loss",)),
            PipelineTask("Backward", self._backward, [gradients(self.model.parameters())], reads=("loss",)),
            PipelineTask("OptimizerStep", self._step),
        ]

    def _batch(self) -> CompressedBatch:
        size, half = self.size, self.size.side // 2
        images = torch.randint(0, 64, (size.batch, 2, half, 2, half), generator=self._host, dtype=torch.uint8)
        labels = torch.randint(0, _CLASSES, (size.batch,), generator=self._host)
        images[torch.arange(size.batch), labels // 2, :, labels % 2] += 64
        return CompressedBatch(zlib.compress(images.numpy().tobytes(), 1), self._pinned(labels))

    def _decode(self, ctx: IterContext) -> None:
        decoded, side = zlib.decompress(ctx.batch.images), self.size.side
        ctx.images = torch.frombuffer(bytearray(decoded), dtype=torch.uint8).view(-1, side, side)

    def _augment(self, ctx: IterContext) -> None:
        """Shift and scale each image's brightness, with a seed per iteration, and normalize."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + ctx.iter_idx)
        scale, shift = 0.2 * torch.rand(2, self.size.batch, 1, 1, generator=generator)
        features = ctx.images.to(torch.float32).div_(64).sub_(0.75)
        ctx.features = self._pinned(features.mul_(0.9 + scale).add_(shift).flatten(1))

    def _copy(self, ctx: IterContext) -> None:
        ctx.inputs, ctx.labels = self._copied(ctx.features), self._copied(ctx.batch.labels)

    def _forward(self, ctx: IterContext) -> None:
        ctx.loss = nn.functional.cross_entropy(self.model(ctx.inputs), ctx.labels)
