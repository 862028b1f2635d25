"""Programs of several ranks. Ranks on one GPU share it in turns, so one rank waits while another computes."""

from __future__ import annotations

from contextlib import nullcontext

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from bench.pairs.context import Context
from bench.pairs.parts import mlp, work_on_host
from bench.pairs.program import Step, program

SHARED = "all ranks share one GPU in turns, and communicate over sockets"
OTHERS = ("copies", "data_loading", "allocation", "compilation", "checkpointing", "garbage_collection")


def parallel(c: Context) -> DistributedDataParallel:
    return DistributedDataParallel(mlp(c, c.sizes.rank_width, c.sizes.layers), device_ids=[0] if c.cuda else None)


def rank_batch(c: Context) -> torch.Tensor:
    return c.randn(64, c.sizes.rank_width)


@program(
    change="gradients are reduced after the last of four micro-batches only",
    causes=("communication", "late_rank"),
    forbidden=OTHERS,
    whatif=("--scale", "class:COMMUNICATION=0.25"),
    fix="overlap_communication",
    steps=2,
    warm=2,
    needs=("ranks",),
    note=SHARED,
)
def reduce_each_micro_batch(c: Context) -> Step:
    net, x = parallel(c), rank_batch(c)

    def step(i: int) -> object:
        for micro in range(4):
            with net.no_sync() if c.changed and micro < 3 else nullcontext():
                net(x).pow(2).mean().backward()
        net.zero_grad(set_to_none=True)
        return None

    return step


@program(
    change="no host work on rank 1",
    causes=("late_rank", "host_between_operators", "communication"),
    forbidden=OTHERS,
    whatif=("--remove", "augment"),
    fix="even_ranks",
    steps=2,
    stack=True,
    warm=2,
    needs=("ranks",),
    note=SHARED,
)
def late_rank(c: Context) -> Step:
    net, x = parallel(c), rank_batch(c)

    def step(i: int) -> object:
        if not c.changed and c.rank == 1:
            with torch.profiler.record_function("augment"):
                work_on_host(25 * c.sizes.host_s)
        net(x).pow(2).mean().backward()
        net.zero_grad(set_to_none=True)
        return None

    return step


@program(
    change="one reduction of all metrics instead of one of each",
    causes=("communication", "late_rank", "synchronization"),
    forbidden=OTHERS,
    whatif=("--scale", "class:COMMUNICATION=0.1667", "--remove", "wait:aten::item"),
    steps=2,
    warm=2,
    needs=("ranks",),
    note=SHARED,
)
def reduce_each_metric(c: Context) -> Step:
    x = rank_batch(c)

    def step(i: int) -> object:
        metrics = [(x * k).mean() for k in range(6)]
        if c.changed:
            together = torch.stack(metrics)
            dist.all_reduce(together)
            return together.tolist()
        for metric in metrics:
            dist.all_reduce(metric)
        return [metric.item() for metric in metrics]

    return step


@program(
    change="parameters are kept between forward and backward",
    causes=("communication", "late_rank"),
    forbidden=OTHERS,
    whatif=("--scale", "kernel:*AllGather*=0.5"),
    steps=2,
    warm=2,
    needs=("ranks",),
    note=SHARED,
)
def fully_sharded(c: Context) -> Step:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(c.device, (c.ranks,))
    net, x = mlp(c, c.sizes.rank_width, c.sizes.layers), rank_batch(c)
    for part in net:
        if isinstance(part, nn.Linear):
            fully_shard(part, mesh=mesh, reshard_after_forward=not c.changed)
    fully_shard(net, mesh=mesh, reshard_after_forward=not c.changed)

    def step(i: int) -> object:
        net(x).pow(2).mean().backward()
        net.zero_grad(set_to_none=True)
        return None

    return step


@program(
    change="four micro-batches instead of one",
    causes=("late_rank", "communication", "host_between_operators", "gpu_computing"),
    forbidden=OTHERS,
    steps=2,
    warm=2,
    needs=("ranks",),
    note=SHARED,
)
def pipeline_of_ranks(c: Context) -> Step:
    """Build a pipeline of ranks. Each receives from the previous rank, works, and sends to the next rank."""
    net = mlp(c, c.sizes.rank_width, c.sizes.layers)
    n = c.pick(1, 4)
    received = [c.randn(64 // n, c.sizes.rank_width) for _ in range(n)]

    def step(i: int) -> object:
        with torch.no_grad():
            for piece in received:
                if c.rank > 0:
                    dist.recv(piece, c.rank - 1)
                with torch.profiler.record_function("stage"):
                    y = net(piece)
                    c.sync()
                    work_on_host(8 * c.sizes.host_s / n)
                if c.rank < c.ranks - 1:
                    dist.send(y, c.rank + 1)
        return None

    return step
