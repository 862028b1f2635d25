"""Programs with many small operators, which the host launches more slowly than the GPU runs them."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from bench.pairs.context import Context
from bench.pairs.parts import Decoder, mlp, train
from bench.pairs.program import Step, program

LAUNCHES = ("host_operators", "launching")
OTHERS = ("gpu_computing", "synchronization", "copies", "data_loading", "communication")


@program(
    change="no SiLU",
    causes=LAUNCHES,
    forbidden=OTHERS,
    whatif=("--remove", "aten::silu"),
)
def small_operators(c: Context) -> Step:
    weights = [c.randn(c.sizes.tiny, c.sizes.tiny) for _ in range(c.sizes.chain)]

    def step(i: int) -> object:
        x = c.randn(8, c.sizes.tiny)
        with torch.no_grad():
            for weight in weights:
                x = x @ weight
                if not c.changed:
                    x = F.silu(x)
                x = x * 0.1
        return x

    return step


@program(
    change="one batch instead of sixteen",
    steps=3,
    causes=LAUNCHES,
    forbidden=OTHERS,
    note="the GPU's work is not the same: one larger product for sixteen",
)
def small_batches(c: Context) -> Step:
    net, x = mlp(c, c.sizes.width // 4, c.sizes.layers), c.randn(256, c.sizes.width // 4)

    def step(i: int) -> object:
        for part in x.chunk(c.pick(16, 1)):
            train(net, part)
        return None

    return step


@program(
    change="no hook on each module",
    causes=LAUNCHES,
    forbidden=OTHERS,
    whatif=("--remove", "observe"),
)
def hooks(c: Context) -> Step:
    """Build a step in which a hook computes statistics of each output, inside an annotation."""
    net, x = mlp(c, c.sizes.width // 4, 2 * c.sizes.layers), c.randn(256, c.sizes.width // 4)

    def observe(module: object, inputs: object, output: torch.Tensor) -> None:
        with torch.profiler.record_function("observe"):
            output.detach().abs().mean()
            output.detach().std()

    if not c.changed:
        for part in net:
            part.register_forward_hook(observe)
    return lambda i: train(net, x)


@program(
    change="the end is looked for once a step, not after each token",
    causes=(*LAUNCHES, "synchronization"),
    forbidden=("gpu_computing", "copies", "data_loading", "communication"),
    whatif=("--remove", "wait:aten::is_nonzero"),
    fix="do_not_wait",
    steps=3,
)
def generation(c: Context) -> Step:
    """Build greedy decoding with a key-value cache, in which the host reads whether all sequences have ended."""
    model = Decoder(c)

    def step(i: int) -> object:
        for n in range(c.sizes.tokens):
            ended = (model.decode() < 0).all()
            if (not c.changed or n == c.sizes.tokens - 1) and ended:
                break
        return None

    return step


@program(
    change="half the tokens",
    causes=LAUNCHES,
    forbidden=OTHERS,
    whatif=("--remove", "second_half"),
    steps=3,
)
def generation_of_half(c: Context) -> Step:
    model = Decoder(c)

    def step(i: int) -> object:
        for half in ("first_half", "second_half")[: c.pick(2, 1)]:
            with torch.profiler.record_function(half):
                for _ in range(max(1, c.sizes.tokens // 2)):
                    model.decode()
        return None

    return step
