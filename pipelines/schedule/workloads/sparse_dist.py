"""SparseDist: 8 tasks. The tables are looked up in Forward and updated, with sparse gradients, in OptimizerStep."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from pipelines.schedule.plan import IterContext, PipelineTask
from pipelines.schedule.workloads.base import gradients
from pipelines.schedule.workloads.recommender import SIZES, Recommender, RecommenderSize


class SparseDist(Recommender):
    """TrainPipelineSparseDist's tasks."""

    def __init__(self, size: RecommenderSize, device: Any, seed: int) -> None:
        super().__init__(size, device, seed)
        self.table.requires_grad_()
        self.sparse_optimizer = torch.optim.SGD([self.table], lr=self.sparse_lr)

    def tasks(self) -> list[PipelineTask]:
        return [
            PipelineTask("H2D", self._h2d, writes=("dense", "ids", "lengths", "clicked")),
            PipelineTask("InputDistStart", self._dist_start, reads=("ids", "lengths"), writes=("sent", "bag_of_id")),
            PipelineTask("InputDistWait", self._dist_wait, reads=("ids", "sent", "bag_of_id"), writes=("rows", "bags")),
            PipelineTask("ZeroGrad", self._zero_grad),
            PipelineTask("WaitBatch", self._wait_batch, reads=("dense",), writes=("features",)),
            PipelineTask("Forward", self._forward, reads=("features", "clicked", "rows", "bags"), writes=("loss",)),
            PipelineTask(
                "Backward", self._backward, [gradients([*self.model.parameters(), self.table])], reads=("loss",)
            ),
            PipelineTask("OptimizerStep", self._step),
        ]

    def _zero_grad(self, ctx: IterContext) -> None:
        self.dense_optimizer.zero_grad(set_to_none=True)
        self.sparse_optimizer.zero_grad(set_to_none=True)

    def _forward(self, ctx: IterContext) -> None:
        found = nn.functional.embedding(ctx.rows, self.table, sparse=True)
        ctx.loss = self._loss(ctx, self._pool_bags(found, ctx.bags))

    def _backward(self, ctx: IterContext) -> None:
        ctx.loss.backward()
        self.losses.append(ctx.loss.detach())

    def _step(self, ctx: IterContext) -> None:
        self.dense_optimizer.step()
        self.sparse_optimizer.step()


def build(size: str, device: Any, seed: int) -> SparseDist:
    """Returns the workload of that size."""
    return SparseDist(SIZES[size], device, seed)
