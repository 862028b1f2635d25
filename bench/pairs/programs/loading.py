"""Programs in which the GPU waits for batches or other host work."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Iterator

import torch
from torch.utils.data import DataLoader, Dataset

from bench.pairs.context import Context
from bench.pairs.parts import mlp, train, work_on_host
from bench.pairs.program import Step, program

GPU = ("gpu_computing", "copies", "launching", "allocation", "communication", "optimizer")


class Images(Dataset[torch.Tensor]):
    """Samples whose decoding takes a fixed time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> torch.Tensor:
        decode_image(self.seconds)
        return torch.ones(512)


def decode_image(seconds: float) -> None:
    work_on_host(seconds)


def batches(c: Context, seconds: float, workers: int) -> Iterator[torch.Tensor]:
    options = {"persistent_workers": True, "prefetch_factor": 4} if workers else {}
    loader = DataLoader(Images(seconds), batch_size=c.sizes.rows, num_workers=workers, **options)  # type: ignore[arg-type]
    return iter(loader)


def step_over(c: Context, loaded: Iterator[torch.Tensor], batch: int) -> Step:
    net = mlp(c, c.sizes.width, c.sizes.layers)

    def step(i: int) -> object:
        x = next(loaded).to(c.device)
        repeated = x.repeat(max(1, batch // len(x)), c.sizes.width // 512 + 1)[:, : c.sizes.width]
        return train(net, repeated)

    return step


@program(
    change="decoding takes half as long",
    causes=("data_loading",),
    forbidden=GPU,
    whatif=("--scale", "*decode_image=0.5"),
    steps=4,
    stack=True,
)
def loader_without_workers(c: Context) -> Step:
    seconds = c.sizes.host_s / c.sizes.rows * 4
    return step_over(c, batches(c, c.pick(seconds, seconds / 2), 0), c.sizes.batch // 4)


@program(
    change="four workers instead of none",
    causes=("data_loading",),
    forbidden=GPU,
    fix="load_ahead",
    note="four workers load beside each other, the fix has one loader",
)
def loader_workers(c: Context) -> Step:
    """Build a loader that, with four workers, has a batch ready before the GPU needs it."""
    return step_over(c, batches(c, c.sizes.host_s / c.sizes.rows * 4, c.pick(0, 4)), c.sizes.batch)


@program(
    change="four workers instead of one",
    causes=("data_loading",),
    forbidden=GPU,
    note="the workers are other processes, which the trace does not have",
)
def loader_of_one_worker(c: Context) -> Step:
    return step_over(c, batches(c, c.sizes.host_s / c.sizes.rows * 6, c.pick(1, 4)), c.sizes.batch)


@program(
    change="no normalization on the host",
    causes=("host_between_operators",),
    forbidden=("gpu_computing", "synchronization", "allocation", "communication", "optimizer", "launching"),
    whatif=("--remove", "*normalize"),
    fix="move_host_work",
    steps=4,
    stack=True,
)
def preprocessing(c: Context) -> Step:
    net = mlp(c, c.sizes.width, c.sizes.layers)
    raw = bytearray(range(256)) * (c.sizes.batch // 4 * c.sizes.width // 256 + 1)
    brighter = bytes(min(255, value + 8) for value in range(256))

    def normalize(pixels: bytearray) -> bytearray:
        for _ in range(6):
            pixels = pixels.translate(brighter)
        return pixels

    def step(i: int) -> object:
        pixels = torch.frombuffer(raw if c.changed else normalize(raw), dtype=torch.uint8)
        rows = pixels[: c.sizes.batch // 4 * c.sizes.width].view(-1, c.sizes.width)
        return train(net, rows.to(c.device).float() / 255)

    return step


@program(
    change="batches are prepared in a thread, two ahead",
    causes=("host_between_operators", "data_loading"),
    forbidden=GPU,
    fix="move_host_work",
    steps=4,
    stack=True,
)
def preparation_in_a_thread(c: Context) -> Step:
    net = mlp(c, c.sizes.width, c.sizes.layers)
    raw = torch.randn(c.sizes.batch // 2, c.sizes.width)
    prepared: queue.Queue[torch.Tensor] = queue.Queue(maxsize=2)
    stopped = threading.Event()

    def prepare() -> torch.Tensor:
        work_on_host(2 * c.sizes.host_s)
        return raw

    def fill() -> None:
        while not stopped.is_set():
            batch = prepare()
            while not stopped.is_set():
                try:
                    prepared.put(batch, timeout=0.05)
                    break
                except queue.Full:
                    continue

    if c.changed:
        thread = threading.Thread(target=fill, daemon=True)
        thread.start()
        c.cleanup.callback(thread.join)
        c.cleanup.callback(stopped.set)

    def step(i: int) -> object:
        return train(net, (prepared.get() if c.changed else prepare()).to(c.device))

    return step


@program(
    change="the text is tokenized before",
    causes=("host_between_operators",),
    forbidden=GPU,
    whatif=("--remove", "*tokenize"),
    fix="move_host_work",
    steps=4,
    stack=True,
    note="pure Python: with stacks the profiler may make it longer",
)
def tokenization(c: Context) -> Step:
    net, x = mlp(c, c.sizes.width, c.sizes.layers), c.randn(c.sizes.batch // 4, c.sizes.width)
    words = [f"word{n * 7919 % 1009}" for n in range(int(c.sizes.host_s * 3e7))]

    def tokenize() -> int:
        known: dict[str, int] = {}
        total = 0
        for word in words:
            if word not in known:
                known[word] = len(known)
            total += known[word]
        return total

    def step(i: int) -> object:
        if not c.changed:
            tokenize()
        return train(net, x)

    return step


@program(
    change="no logging",
    causes=("host_between_operators",),
    forbidden=GPU,
    whatif=("--remove", "*log_metrics"),
    fix="move_host_work",
    steps=4,
    stack=True,
    note="pure Python: with stacks the profiler may make it longer",
)
def logging_each_layer(c: Context) -> Step:
    net, x = mlp(c, c.sizes.width // 4, c.sizes.layers), c.randn(c.sizes.batch // 16, c.sizes.width // 4)
    log = logging.Logger("pairs")  # a separate logger, without parents that would also handle its messages
    handler = logging.FileHandler(c.scratch / "pairs.log")
    log.addHandler(handler)
    c.cleanup.callback(handler.close)

    def log_metrics(layer: int) -> None:
        for metric in range(12):
            log.info("layer %d, metric %d: %.6f", layer, metric, layer / (metric + 1))

    def step(i: int) -> object:
        y = x
        with torch.no_grad():
            for number, part in enumerate(net):
                y = part(y)
                if not c.changed:
                    log_metrics(number)
        return y

    return step
