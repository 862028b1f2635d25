"""Programs with optimizers over many small parameters."""

from __future__ import annotations

import torch
from torch import nn

from bench.pairs.context import Context
from bench.pairs.parts import mlp
from bench.pairs.program import Step, program

OTHERS = ("gpu_computing", "synchronization", "copies", "data_loading", "communication")


def training(c: Context, options: dict[str, bool], kind: type[torch.optim.Optimizer] = torch.optim.Adam) -> Step:
    width = 4 * c.sizes.tiny
    net = nn.Sequential(*[nn.Linear(width, width) for _ in range(c.sizes.parameters)]).to(c.device)
    x = c.randn(64, width)
    optimizer = kind(net.parameters(), lr=1e-4, **options)  # type: ignore[call-arg]

    def step(i: int) -> object:
        optimizer.zero_grad()
        net(x).pow(2).mean().backward()
        optimizer.step()
        return None

    return step


@program(
    change="Adam fused instead of a loop over parameters",
    causes=("optimizer",),
    forbidden=OTHERS,
    ratio=("Optimizer.step#Adam.step",),
    fix="fused_optimizer",
    steps=3,
)
def adam_loop_or_fused(c: Context) -> Step:
    return training(c, c.pick({"foreach": False}, {"fused": True}))


@program(
    change="Adam by lists of tensors instead of a loop over parameters",
    causes=("optimizer",),
    forbidden=OTHERS,
    ratio=("Optimizer.step#Adam.step",),
    fix="fused_optimizer",
    steps=3,
)
def adam_loop_or_foreach(c: Context) -> Step:
    return training(c, {"foreach": c.changed})


@program(
    change="AdamW fused instead of by lists of tensors",
    causes=("host_operators", "optimizer", "launching"),
    forbidden=OTHERS,
    ratio=("Optimizer.step#AdamW.step",),
    fix="fused_optimizer",
    steps=4,
)
def adamw_foreach_or_fused(c: Context) -> Step:
    return training(c, c.pick({"foreach": True}, {"fused": True}), torch.optim.AdamW)


@program(
    change="one optimizer step after four micro-batches instead of after each",
    causes=("optimizer", "host_operators", "launching"),
    forbidden=OTHERS,
    whatif=("--scale", "Optimizer.step#SGD.step=0.25", "--scale", "Optimizer.zero_grad#SGD.zero_grad=0.25"),
    steps=3,
)
def gradient_accumulation(c: Context) -> Step:
    net, x = mlp(c, 4 * c.sizes.tiny, c.sizes.parameters // 4), c.randn(64, 4 * c.sizes.tiny)
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-4, momentum=0.9, foreach=False)

    def step(i: int) -> object:
        for micro in range(4):
            net(x).pow(2).mean().backward()
            if not c.changed or micro == 3:
                optimizer.step()
                optimizer.zero_grad()
        return None

    return step
