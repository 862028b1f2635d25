"""Programs with memory allocation, garbage collection and checkpoints."""

from __future__ import annotations

import gc
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch.profiler import record_function

from bench.pairs.context import Context
from bench.pairs.parts import mlp, train
from bench.pairs.program import Step, program

OTHERS = ("gpu_computing", "copies", "communication", "data_loading", "optimizer")


@program(
    change="no empty_cache()",
    causes=("allocation", "gpu_computing", "synchronization"),
    forbidden=("communication", "data_loading", "optimizer", "copies"),
    whatif=("--remove", "cudaFree", "--remove", "cudaMalloc"),
    fix="no_empty_cache",
    note="the prediction removes only the calls cudaFree and cudaMalloc (10.3 of 31.4 ms). In the second run the allocator's other work is missing, too, so operators take 12.2 ms instead of 14.1 ms",
)
def empty_cache(c: Context) -> Step:
    net = mlp(c, c.sizes.width, c.sizes.layers)

    def step(i: int) -> object:
        train(net, c.randn(c.sizes.batch // 4, c.sizes.width))
        if not c.changed and c.cuda:
            torch.cuda.empty_cache()
        return None

    return step


@program(
    change="no gc.collect()",
    causes=("garbage_collection",),
    forbidden=OTHERS,
    whatif=("--remove", "<built-in function collect>"),
    fix="no_gc",
    steps=4,
    stack=True,
)
def garbage(c: Context) -> Step:
    net, x = mlp(c, c.sizes.width, c.sizes.layers), c.randn(c.sizes.batch // 2, c.sizes.width)
    kept = [{"parts": [n, {}]} for n in range(c.sizes.objects)]

    def step(i: int) -> object:
        train(net, x)
        if not c.changed:
            gc.collect()
        return kept

    return step


@program(
    change="no checkpoint",
    causes=("checkpointing",),
    forbidden=OTHERS,
    whatif=("--remove", "save_checkpoint"),
    fix="asynchronous_checkpoint",
    stack=True,
)
def checkpoint(c: Context) -> Step:
    net, x = mlp(c, c.sizes.width, c.sizes.layers), c.randn(c.sizes.batch // 2, c.sizes.width)

    def step(i: int) -> object:
        train(net, x)
        if not c.changed and i % 4 == 3:
            with record_function("save_checkpoint"):
                torch.save(net.state_dict(), c.scratch / "checkpoint.pt")
        return None

    return step


@program(
    change="a thread writes the checkpoint from a copy in pinned memory",
    causes=("checkpointing",),
    forbidden=OTHERS,
    fix="asynchronous_checkpoint",
    note="the thread's Python holds the lock now and then, and its last write may end after the window",
)
def checkpoint_in_a_thread(c: Context) -> Step:
    net, x = mlp(c, c.sizes.width, c.sizes.layers), c.randn(c.sizes.batch, c.sizes.width)
    copies = {name: c.pinned(torch.empty(value.shape)) for name, value in net.state_dict().items()}
    threads = c.cleanup.enter_context(ThreadPoolExecutor(1))
    copied = c.event()
    writing: list[Future[None]] = []

    def write(state: dict[str, torch.Tensor]) -> None:
        copied.synchronize()
        torch.save(state, c.scratch / "checkpoint.pt")

    def save() -> None:
        with record_function("save_checkpoint"):
            if not c.changed:
                torch.save(net.state_dict(), c.scratch / "checkpoint.pt")
                return
            while writing:
                writing.pop().result()
            for name, value in net.state_dict().items():
                copies[name].copy_(value, non_blocking=True)
            copied.record()
            writing.append(threads.submit(write, copies))

    def step(i: int) -> object:
        train(net, x)
        if i % 8 == 3:
            save()
        return None

    return step


@program(
    change="half of the checkpoints",
    causes=("checkpointing",),
    forbidden=OTHERS,
    whatif=("--scale", "save_checkpoint=0.5"),
)
def half_the_checkpoints(c: Context) -> Step:
    net, x = mlp(c, c.sizes.width, c.sizes.layers), c.randn(c.sizes.batch // 4, c.sizes.width)

    def step(i: int) -> object:
        train(net, x)
        if i % c.pick(2, 4) == 1:
            with record_function("save_checkpoint"):
                torch.save(net.state_dict(), c.scratch / "checkpoint.pt")
        return None

    return step
