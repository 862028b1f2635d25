"""Programs with CUDA graphs. Without CUDA, the work runs without a capture."""

from __future__ import annotations

from functools import partial

import torch
from torch.profiler import record_function

from bench.pairs.context import Context
from bench.pairs.parts import Decoder, work_on_host
from bench.pairs.program import Step, program


@program(
    change="decoding is captured in a CUDA graph",
    causes=("host_operators", "launching"),
    forbidden=("gpu_computing", "synchronization", "copies", "data_loading", "communication"),
    fix="graph_or_compile",
    note="without the profiler a step of A took from 2.8 to 7.3 ms in 25 runs",
    steps=3,
)
def decoding(c: Context) -> Step:
    model = Decoder(c)
    decode = c.graph(model.decode) if c.changed else model.decode

    def step(i: int) -> object:
        for _ in range(c.sizes.tokens):
            decode()
        return None

    return step


@program(
    change="no host work between replays",
    causes=("host_between_operators",),
    forbidden=("copies", "data_loading", "communication", "host_operators", "gpu_computing"),
    whatif=("--remove", "schedule_requests"),
    fix="move_host_work",
)
def graph_and_host_work(c: Context) -> Step:
    model = Decoder(c)
    decode = c.graph(model.decode)

    def step(i: int) -> object:
        for _ in range(c.sizes.tokens):
            decode()
            if not c.changed:
                with record_function("schedule_requests"):
                    work_on_host(c.sizes.host_s / 4)
        return None

    return step


@program(
    change="half the columns of the products in the graph",
    causes=("gpu_computing",),
    forbidden=("host_operators", "host_between_operators", "copies", "synchronization", "launching"),
    ratio=("kernel:*gemm*",),
)
def graph_of_products(c: Context) -> Step:
    a = c.randn(c.sizes.batch, c.sizes.width)
    b = c.randn(c.sizes.width, c.pick(c.sizes.width, c.sizes.width // 2))
    results = [torch.empty(c.sizes.batch, b.shape[1], device=c.device) for _ in range(4)]

    def products() -> None:
        with torch.no_grad():
            for result in results:
                torch.mm(a, b, out=result)
                torch.tanh_(a)

    replay = c.graph(products)
    return lambda i: replay()


@program(
    change="one graph of all layers instead of one for each",
    causes=("launching", "gpu_waiting", "host_between_operators", "gpu_computing"),
    forbidden=("copies", "data_loading", "synchronization", "communication"),
    note="which cause is first depends on how fast the host launches a graph",
)
def graph_for_each_layer(c: Context) -> Step:
    weights = [c.randn(c.sizes.tiny, c.sizes.tiny) for _ in range(c.sizes.chain // 3)]
    x = c.randn(8, c.sizes.tiny)

    def layer(weight: torch.Tensor) -> None:
        with torch.no_grad():
            x.copy_(torch.tanh(x @ weight))

    def layers() -> None:
        for weight in weights:
            layer(weight)

    captured = [layers] if c.changed else [partial(layer, weight) for weight in weights]
    replays = [c.graph(work) for work in captured]

    def step(i: int) -> object:
        for replay in replays:
            replay()
        return None

    return step
