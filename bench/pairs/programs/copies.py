"""Programs with copies between host and device."""

from __future__ import annotations

import torch

from bench.pairs.context import Context
from bench.pairs.parts import mlp, train
from bench.pairs.program import Step, program

HOST = ("host_operators", "host_between_operators", "data_loading", "optimizer", "communication")


def first_rows(x: torch.Tensor, rows: int) -> torch.Tensor:
    return x[:rows]


@program(
    change="batches are already on the device",
    causes=("copies",),
    forbidden=HOST,
    whatif=("--remove", "class:MEMORY"),
)
def pageable_copy(c: Context) -> Step:
    net, host = mlp(c, c.sizes.width, c.sizes.layers), torch.randn(c.sizes.copied // c.sizes.width, c.sizes.width)
    there = host.to(c.device)

    def step(i: int) -> object:
        return train(net, first_rows(there if c.changed else host.to(c.device), c.sizes.batch))

    return step


@program(
    change="pinned memory, non_blocking",
    causes=("copies",),
    forbidden=HOST,
    ratio=("class:MEMORY",),
    whatif=("--remove", "wait:aten::_to_copy"),
    fix="pin_memory",
)
def pageable_or_pinned(c: Context) -> Step:
    net, host = mlp(c, c.sizes.width, c.sizes.layers), torch.randn(c.sizes.copied // c.sizes.width, c.sizes.width)
    if c.changed:
        host = c.pinned(host)

    def step(i: int) -> object:
        return train(net, first_rows(host.to(c.device, non_blocking=c.changed), c.sizes.batch))

    return step


@program(
    change="the next batch is copied on a stream of its own, ordered by events",
    causes=("copies", "gpu_computing"),
    forbidden=HOST,
    fix="copy_ahead",
    sync_events=True,
)
def prefetch_by_events(c: Context) -> Step:
    net = mlp(c, c.sizes.width, c.sizes.layers)
    host = c.pinned(torch.randn(2 * c.sizes.copied // c.sizes.width, c.sizes.width))
    slots = [torch.empty_like(host, device=c.device) for _ in range(2)]
    copied, used = [c.event() for _ in slots], [c.event() for _ in slots]
    copier, main = c.stream(), c.main_stream()
    count = 0

    def copy(slot: int) -> None:
        with c.on(copier):
            copier.wait_event(used[slot])
            slots[slot].copy_(host, non_blocking=True)
            copied[slot].record(copier)

    if c.changed:
        copy(0)

    def step(i: int) -> object:
        nonlocal count
        slot, count = count % 2, count + 1
        if c.changed:
            copy(1 - slot)
            main.wait_event(copied[slot])
        else:
            slots[slot].copy_(host, non_blocking=True)
        loss = train(net, first_rows(slots[slot], c.sizes.batch // 2))
        used[slot].record(main)
        return loss

    return step


@program(
    change="outputs are copied to pinned memory without waiting",
    causes=("copies", "gpu_computing"),
    forbidden=("data_loading", "optimizer", "communication", "host_between_operators"),
    ratio=("class:MEMORY",),
    whatif=("--remove", "wait:aten::_to_copy"),
    fix="pin_memory",
    note="the host waits no longer for the copy, either",
)
def outputs_to_cpu(c: Context) -> Step:
    net, x = mlp(c, c.sizes.width, c.sizes.layers), c.randn(c.sizes.batch, c.sizes.width)
    kept = c.pinned(torch.empty(c.sizes.batch, c.sizes.width))

    def step(i: int) -> object:
        with torch.no_grad():
            y = net(x)
        return kept.copy_(y, non_blocking=True) if c.changed else y.cpu()

    return step


@program(
    change="one copy instead of many small ones",
    causes=("host_operators", "copies", "launching", "synchronization", "host_between_operators"),
    forbidden=("data_loading", "optimizer", "communication", "gpu_computing"),
)
def small_copies(c: Context) -> Step:
    parts = [torch.randn(64, c.sizes.tiny) for _ in range(c.sizes.chain // 2)]
    whole = torch.cat(parts)

    def step(i: int) -> object:
        return whole.to(c.device) if c.changed else [part.to(c.device) for part in parts]

    return step


@program(
    change="pinned once, not in each step",
    causes=("host_operators", "copies", "allocation"),
    forbidden=("data_loading", "optimizer", "communication", "gpu_computing"),
    whatif=("--remove", "aten::pin_memory"),
    needs=("cuda",),
)
def pin_each_step(c: Context) -> Step:
    net = mlp(c, c.sizes.width, c.sizes.layers)
    host = torch.randn(c.sizes.copied // 2 // c.sizes.width, c.sizes.width)
    once = c.pinned(host)

    def step(i: int) -> object:
        pinned = once if c.changed else c.pinned(host)
        return train(net, first_rows(pinned.to(c.device, non_blocking=True), c.sizes.batch // 4))

    return step
