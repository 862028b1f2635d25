"""Programs with several streams, ordered by events. Products are small, so that streams can share the GPU."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import torch

from bench.pairs.context import Context
from bench.pairs.parts import work_on_host
from bench.pairs.program import Step, program

HOST = ("host_operators", "host_between_operators", "copies", "data_loading", "communication", "optimizer")
GPU = ("gpu_computing", "gpu_waiting")


def small_products(c: Context, stream: object, n: int, a: torch.Tensor, b: torch.Tensor, out: torch.Tensor) -> None:
    with c.on(stream), torch.no_grad():
        for _ in range(n):
            torch.mm(a, b, out=out)


def operands(c: Context) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return two operands whose product takes long on few multiprocessors, and a tensor for the result."""
    n = c.sizes.width // 4
    return c.randn(n, 8 * c.sizes.width), c.randn(8 * c.sizes.width, n), c.randn(n, n)


@program(
    change="half the products of the side stream",
    causes=GPU,
    forbidden=HOST,
    ratio=("kernel:*gemm*",),
    sync_events=True,
)
def side_stream_binds(c: Context) -> Step:
    side, main = c.stream(), c.main_stream()
    a, b, out = operands(c)
    x = c.randn(c.sizes.vector // 16)

    def step(i: int) -> object:
        side.wait_stream(main)
        small_products(c, side, c.pick(16, 8), a, b, out)
        y = torch.tanh(x)
        main.wait_stream(side)
        return y.add_(out[0, 0])

    return step


@program(
    change="half the products of the longest of four branches",
    causes=GPU,
    forbidden=HOST,
    ratio=("stream:*",),
    sync_events=True,
    note="the streams share the GPU's units",
)
def four_branches(c: Context) -> Step:
    main = c.main_stream()
    branches = [(c.stream(), c.event(), operands(c)) for _ in range(4)]
    forked = c.event()

    def step(i: int) -> object:
        forked.record(main)
        for number, (stream, joined, (a, b, out)) in enumerate(branches):
            stream.wait_event(forked)
            small_products(c, stream, c.pick(20, 10) if number == 2 else 4, a, b, out)
            joined.record(stream)
        for _, joined, _ in branches:
            main.wait_event(joined)
        return sum(out[0, 0] for _, _, (_, _, out) in branches)

    return step


@program(
    change="half the products before each hand-over",
    causes=GPU,
    forbidden=HOST,
    ratio=("stream:*",),
    sync_events=True,
)
def one_event_reused(c: Context) -> Step:
    """Build two streams that hand over to each other with one event, which is recorded again each time."""
    side, main, event = c.stream(), c.main_stream(), c.event()
    a, b, out = operands(c)

    def step(i: int) -> object:
        for _ in range(4):
            event.record(main)
            side.wait_event(event)
            small_products(c, side, c.pick(4, 2), a, b, out)
            event.record(side)
            main.wait_event(event)
            small_products(c, main, 2, a, b, out)
        return out

    return step


@program(
    change="half the products after the record",
    causes=GPU,
    forbidden=HOST,
    sync_events=True,
    note="the side stream waits for an event that was recorded before the main stream's products",
)
def early_event(c: Context) -> Step:
    side, main, early, late = c.stream(), c.main_stream(), c.event(), c.event()
    (a, b, out), (a2, b2, out2) = operands(c), operands(c)

    def step(i: int) -> object:
        small_products(c, main, 2, a, b, out)
        early.record(main)
        small_products(c, main, c.pick(16, 8), a, b, out)
        side.wait_event(early)
        small_products(c, side, 6, a2, b2, out2)
        late.record(side)
        main.wait_event(late)
        return out.add_(out2)

    return step


@program(
    change="half the products of the thread",
    causes=GPU,
    forbidden=HOST,
    ratio=("stream:*",),
    sync_events=True,
)
def wait_on_a_thread(c: Context) -> Step:
    """Build a step in which another thread launches on the side stream, which waits for the main stream's event."""
    side, main, begun, ended = c.stream(), c.main_stream(), c.event(), c.event()
    (a, b, out), (a2, b2, out2) = operands(c), operands(c)
    threads = c.cleanup.enter_context(ThreadPoolExecutor(1))

    def launch() -> None:
        with c.on(side):
            side.wait_event(begun)
            small_products(c, side, c.pick(16, 8), a2, b2, out2)
            ended.record(side)

    def step(i: int) -> object:
        small_products(c, main, 2, a, b, out)
        begun.record(main)
        launched = threads.submit(launch)
        small_products(c, main, 4, a, b, out)
        launched.result()
        main.wait_event(ended)
        return out.add_(out2)

    return step


@program(
    change="the stream waits for the event instead of the host",
    causes=("synchronization", "host_between_operators", "gpu_computing"),
    forbidden=("copies", "data_loading", "communication", "optimizer"),
    whatif=("--remove", "wait:cudaEventSynchronize"),
    fix="do_not_wait",
    sync_events=True,
)
def event_synchronize(c: Context) -> Step:
    side, main, event = c.stream(), c.main_stream(), c.event()
    a, b, out = operands(c)

    def step(i: int) -> object:
        for _ in range(3):
            small_products(c, side, 4, a, b, out)
            event.record(side)
            if c.changed:
                main.wait_event(event)
            else:
                event.synchronize()
            work_on_host(c.sizes.host_s / 4)
            small_products(c, main, 2, a, b, out)
            side.wait_stream(main)
        return out

    return step


@program(
    change="four micro-batches instead of one",
    causes=GPU,
    forbidden=HOST,
    sync_events=True,
    note="the stages overlap only in B, where they share the GPU's units",
)
def pipeline_of_streams(c: Context) -> Step:
    """Build two stages on two streams. With micro-batches, the second stage starts while the first computes."""
    stages = [c.stream(), c.stream()]
    main = c.main_stream()
    n = c.pick(1, 4)
    a, b, _ = operands(c)
    rows = max(1, len(a) // n)
    parts = [(c.event(), c.randn(rows, b.shape[1]), c.randn(rows, b.shape[1])) for _ in range(n)]

    def step(i: int) -> object:
        for stage in stages:
            stage.wait_stream(main)
        for number, (done, first, second) in enumerate(parts):
            piece = a[number * rows : (number + 1) * rows]
            small_products(c, stages[0], 8, piece, b, first)
            done.record(stages[0])
            stages[1].wait_event(done)
            small_products(c, stages[1], 8, piece, b, second)
        for stage in stages:
            main.wait_stream(stage)
        return None

    return step
