"""Programs with torch.compile."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from bench.pairs.context import Context
from bench.pairs.program import Step, program


def reset(c: Context) -> None:
    import torch._dynamo
    from torch._inductor import utils

    fresh_cache = getattr(utils, "fresh_cache", None) or utils.fresh_inductor_cache  # its name until torch 2.7
    torch._dynamo.reset()
    torch._dynamo.config.recompile_limit = 64
    c.cleanup.callback(torch._dynamo.reset)
    c.cleanup.enter_context(fresh_cache())  # so that each variant compiles its code itself


@program(
    change="the elementwise chain is compiled into one kernel",
    causes=("gpu_computing",),
    forbidden=("host_operators", "host_between_operators", "launching", "copies", "synchronization", "compilation"),
    needs=("compile",),
)
def elementwise_fused(c: Context) -> Step:
    x = c.randn(c.sizes.vector // 2)

    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(5):
            x = torch.tanh(x) * 0.5 + 0.1
        return x

    reset(c)
    run = torch.compile(chain) if c.changed else chain
    return lambda i: run(x)


@program(
    change="small operators are compiled",
    causes=("host_operators", "launching"),
    forbidden=("gpu_computing", "copies", "synchronization", "compilation", "data_loading"),
    fix="graph_or_compile",
    needs=("compile",),
)
def small_operators_compiled(c: Context) -> Step:
    x = c.randn(64, c.sizes.tiny)

    def chain(x: torch.Tensor) -> torch.Tensor:
        for _ in range(c.sizes.chain // 2):
            x = F.gelu(x) * 0.9 + 0.1
        return x

    reset(c)
    run = torch.compile(chain) if c.changed else chain
    return lambda i: run(x)


@program(
    change="compiled once instead of for each shape",
    causes=("compilation",),
    forbidden=("gpu_computing", "copies", "synchronization", "data_loading", "host_operators"),
    whatif=("--remove", "entire_frame_compile"),
    fix="compile_once",
    steps=3,
    warm=0,
    needs=("compile",),
    repeatable=False,
)
def recompilation(c: Context) -> Step:
    def work(x: torch.Tensor) -> torch.Tensor:
        return (F.gelu(x) * 2 + x.sum(-1, keepdim=True)).relu()

    reset(c)
    run = torch.compile(work, dynamic=c.changed)
    for rows in (64, 192) if c.changed else (64,):
        run(c.randn(rows, 512))
    rows = 256

    def step(i: int) -> object:
        nonlocal rows
        rows += 32
        result = run(c.randn(rows, 512)).sum()
        c.sync()
        return result

    return step
