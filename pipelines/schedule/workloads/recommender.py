"""A recommendation model (DLRM) with row-wise sharded embedding tables, for SparseDist and FusedSparseDist.

The shards are on one device. The ranks' work for the exchange of input is still done: the shard of every id is
computed, and ids are sorted into the order of the shards. Only the transfer is missing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import nn

from pipelines.schedule.plan.plan import IterContext, PipelineTask
from pipelines.schedule.workloads.base import Workload


@dataclass(frozen=True)
class RecommenderSize:
    """Shapes. `rows`: rows per table, divisible by `shards`. `ids`: mean number of ids per sample and table."""

    batch: int
    tables: int
    rows: int
    dim: int
    ids: int
    shards: int
    dense: int
    hidden: int

    def halved(self) -> RecommenderSize:
        """Return the shape with half the batch and half the rows."""
        return replace(self, batch=self.batch // 2, rows=self.rows // 2)


SIZES = {
    "tiny": RecommenderSize(batch=8, tables=2, rows=32, dim=4, ids=2, shards=2, dense=4, hidden=8),
    "small": RecommenderSize(batch=256, tables=8, rows=20_000, dim=32, ids=8, shards=4, dense=64, hidden=384),
    # 12.7 GiB of embeddings, 3.4 million ids and 90 MiB of input per iteration.
    "large": RecommenderSize(
        batch=16_384, tables=26, rows=1_024_000, dim=128, ids=8, shards=8, dense=1024, hidden=4096
    ),
}


class Batch(NamedTuple):
    """One batch in host memory.

    `ids`: table by table, and sample by sample within a table. `lengths`: number of ids of each (table, sample).
    """

    dense: torch.Tensor
    ids: torch.Tensor
    lengths: torch.Tensor
    clicked: torch.Tensor


class Dense(nn.Module):
    """The dense part: bottom MLP, pairwise products of its output and the pooled embeddings, top MLP."""

    pairs: torch.Tensor

    def __init__(self, size: RecommenderSize) -> None:
        super().__init__()
        vectors = size.tables + 1
        self.bottom = nn.Sequential(nn.Linear(size.dense, size.hidden), nn.ReLU(), nn.Linear(size.hidden, size.dim))
        self.top = nn.Sequential(
            nn.Linear(size.dim + vectors * (vectors - 1) // 2, size.hidden),
            nn.ReLU(),
            nn.Linear(size.hidden, size.hidden),
            nn.ReLU(),
            nn.Linear(size.hidden, 1),
        )
        self.register_buffer("pairs", torch.tril_indices(vectors, vectors, -1), persistent=False)

    def forward(self, dense: torch.Tensor, pooled: torch.Tensor) -> torch.Tensor:
        """Return the logits (batch, 1). `pooled`: (tables, batch, dim)."""
        bottom = self.bottom(dense)
        vectors = torch.cat([bottom[:, None], pooled.transpose(0, 1)], dim=1)
        products = (vectors @ vectors.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([bottom, products], dim=1))


class Recommender(Workload):
    """Base of both workloads: data, model, input distribution, dense part."""

    sizes = SIZES
    sparse_lr, dense_lr = 2.0, 0.02

    def __init__(self, size: RecommenderSize, device: Any, seed: int) -> None:
        super().__init__(device, seed)
        self.size = size
        self.rows_per_shard = size.rows // size.shards
        teacher = torch.randn(size.dense, 1, generator=self._host)
        self._pool += [self._batch(teacher) for _ in range(4)]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.model = Dense(size).to(self.device)
        # Random numbers are drawn on the device, because the host would take too long for gigabytes.
        on_device = torch.Generator(self.device).manual_seed(seed)
        # Row r of table t, at [r // rows_per_shard, t, r % rows_per_shard] of (shards, tables, rows_per_shard).
        self.table = torch.empty(size.tables * size.rows, size.dim, device=self.device)
        self.table.normal_(std=0.1, generator=on_device)
        self.optimizers = [torch.optim.SGD(self.model.parameters(), lr=self.dense_lr, momentum=0.9)]

    def weights(self) -> dict[str, torch.Tensor]:
        return {"table": self.table.detach(), **{name: p.detach() for name, p in self.model.named_parameters()}}

    def _batch(self, teacher: torch.Tensor) -> Batch:
        size, host = self.size, self._host
        dense = 10 * torch.rand(size.batch, size.dense, generator=host)
        lengths = torch.randint(1, 2 * size.ids, (size.tables * size.batch,), generator=host)
        # A few rows are requested often, as in click logs.
        ids = (torch.rand(int(lengths.sum()), generator=host, dtype=torch.float64) ** 3 * size.rows).long()
        features = torch.log1p(dense)
        clicked = ((features - features.mean()) @ teacher > 0).float()
        return Batch(*(self._pinned(tensor) for tensor in (dense, ids, lengths, clicked)))

    # --- tasks

    def _input_tasks(self) -> list[PipelineTask]:
        return [
            PipelineTask("H2D", self._h2d, writes=("dense", "ids", "lengths", "clicked")),
            PipelineTask("InputDistStart", self._dist_start, reads=("ids", "lengths"), writes=("sent", "bag_of_id")),
            PipelineTask("InputDistWait", self._dist_wait, reads=("ids", "sent", "bag_of_id"), writes=("rows", "bags")),
        ]

    def _dense_tasks(self) -> list[PipelineTask]:
        return [
            PipelineTask("ZeroGrad", self._zero_grad),
            PipelineTask("WaitBatch", self._wait_batch, reads=("dense",), writes=("features",)),
        ]

    def _h2d(self, ctx: IterContext) -> None:
        ctx.dense, ctx.ids, ctx.lengths, ctx.clicked = (self._copied(tensor) for tensor in ctx.batch)

    def _dist_start(self, ctx: IterContext) -> None:
        """Store the bag of each id, and the shard of each id with the order in which ids would be sent."""
        bags = torch.arange(ctx.lengths.numel(), device=self.device)
        # Without output_size, the host would wait for the device.
        ctx.bag_of_id = torch.repeat_interleave(bags, ctx.lengths, output_size=ctx.ids.numel())
        ctx.sent = torch.sort(ctx.ids // self.rows_per_shard, stable=True)

    def _dist_wait(self, ctx: IterContext) -> None:
        """Store the ids in order of shards, as rows of `table`, and the bag (table, sample) of each id."""
        shard, order = ctx.sent
        ctx.bags = ctx.bag_of_id[order]
        table = ctx.bags // self.size.batch
        local = ctx.ids[order] % self.rows_per_shard
        ctx.rows = (shard * self.size.tables + table) * self.rows_per_shard + local
        del ctx.sent, ctx.bag_of_id  # pyright: ignore[reportAttributeAccessIssue]

    def _wait_batch(self, ctx: IterContext) -> None:
        """Pass the batch to the model's stream: store log(1 + dense), the input of DLRM."""
        ctx.features = torch.log1p(ctx.dense)

    def _zero_grad(self, ctx: IterContext) -> None:
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    def _step(self, ctx: IterContext) -> None:
        for optimizer in self.optimizers:
            optimizer.step()

    def _pool_bags(self, embeddings: torch.Tensor, bags: torch.Tensor) -> torch.Tensor:
        """Return the embeddings summed by bag: (tables, batch, dim)."""
        size = self.size
        pooled = embeddings.new_zeros(size.tables * size.batch, size.dim).index_add(0, bags, embeddings)
        return pooled.view(size.tables, size.batch, size.dim)

    def _loss(self, ctx: IterContext, pooled: torch.Tensor) -> torch.Tensor:
        logits = self.model(ctx.features, pooled)
        return nn.functional.binary_cross_entropy_with_logits(logits, ctx.clicked)
