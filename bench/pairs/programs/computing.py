"""Programs whose steps take as long as the GPU's work."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from bench.pairs.context import Context
from bench.pairs.parts import mlp, train
from bench.pairs.program import Step, program

HOST = (
    "host_operators",
    "host_between_operators",
    "launching",
    "copies",
    "synchronization",
    "data_loading",
    "communication",
    "optimizer",
)


@program(
    change="half the columns",
    causes=("gpu_computing",),
    forbidden=HOST,
    ratio=("kernel:*gemm*",),
)
def products(c: Context) -> Step:
    n = c.sizes.width * 2
    a, b, other = c.randn(n, n), c.randn(n, c.pick(n, n // 2)), c.randn(n, n)

    def step(i: int) -> object:
        with torch.no_grad():
            for _ in range(3):
                torch.mm(a, b)
                torch.tanh(other)
        return None

    return step


@program(
    change="TF32 products",
    causes=("gpu_computing",),
    forbidden=HOST,
    ratio=("op:aten::addmm", "op:aten::mm"),
    fix="lower_precision",
)
def float32_or_tf32(c: Context) -> Step:
    net, x = mlp(c, c.sizes.width, c.sizes.layers), c.randn(2 * c.sizes.batch, c.sizes.width)
    torch.backends.cuda.matmul.allow_tf32 = c.changed
    c.cleanup.callback(setattr, torch.backends.cuda.matmul, "allow_tf32", False)
    return lambda i: train(net, x)


@program(
    change="bfloat16 instead of float32",
    causes=("gpu_computing",),
    forbidden=HOST,
    ratio=("op:aten::addmm", "op:aten::gelu"),
    fix="lower_precision",
)
def float32_or_bfloat16(c: Context) -> Step:
    kind = c.pick(torch.float32, torch.bfloat16)
    net = mlp(c, c.sizes.width * 2, c.sizes.layers).to(kind)
    x = c.randn(c.sizes.batch, c.sizes.width * 2).to(kind)

    def step(i: int) -> object:
        with torch.no_grad():
            return net(x)

    return step


@program(
    change="scaled_dot_product_attention instead of its three operators",
    causes=("gpu_computing",),
    forbidden=HOST,
)
def attention(c: Context) -> Step:
    heads, length = 16, c.sizes.batch
    q, k, v = (c.randn(2, heads, length, 64, dtype=torch.bfloat16) for _ in range(3))

    def step(i: int) -> object:
        with torch.no_grad():
            for _ in range(2):
                if c.changed:
                    out = F.scaled_dot_product_attention(q, k, v)
                else:
                    out = torch.softmax(q @ k.transpose(-1, -2) / 8, dim=-1) @ v
        return out

    return step


@program(
    change="activations are kept instead of computed again",
    causes=("gpu_computing",),
    forbidden=HOST,
)
def activation_checkpointing(c: Context) -> Step:
    blocks = nn.Sequential(*[mlp(c, c.sizes.width, 1) for _ in range(c.sizes.layers)])
    x = c.randn(c.sizes.batch, c.sizes.width)

    def step(i: int) -> object:
        y = x
        for block in blocks:
            y = block(y) if c.changed else checkpoint(block, y, use_reentrant=False)
        y.pow(2).mean().backward()
        blocks.zero_grad(set_to_none=True)
        return None

    return step


@program(
    change="elementwise work on half the elements",
    causes=("gpu_computing",),
    forbidden=HOST,
    ratio=("kernel:*elementwise*",),
)
def elementwise(c: Context) -> Step:
    x = c.randn(c.pick(c.sizes.vector, c.sizes.vector // 2))

    def step(i: int) -> object:
        y = x
        for _ in range(6):
            y = torch.tanh(y) * 0.5
        return y

    return step


@program(
    change="no backward pass for the frozen half",
    causes=("gpu_computing",),
    forbidden=HOST,
)
def frozen_layers(c: Context) -> Step:
    net, x = mlp(c, c.sizes.width, 2 * c.sizes.layers), c.randn(c.sizes.batch // 2, c.sizes.width)
    if c.changed:
        for part in list(net)[: 2 * c.sizes.layers]:
            part.requires_grad_(False)
    return lambda i: train(net, x)
