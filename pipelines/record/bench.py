"""`python -m pipelines.record.bench`: measures what a recorder costs a training loop, compared with the plain loop.

Method: one small transformer on random data. Blocks of plain steps and blocks of recorded steps alternate, in random
order within each pair, so that drift and other load affect both equally. The overhead is computed from the summed
times. Sampled and other steps of the recorded blocks are also reported separately. On a GPU, a block's time ends when
the GPU has finished. `--stacks HZ` measures stack sampling in the same way; it runs during the recorded blocks only.
"""

from __future__ import annotations

import argparse
import random
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext

import torch

from pipelines.record.spans import record_spans
from pipelines.record.stacks import StackSampler

_KINDS = ("other", "sampled", "census")
"""Kinds of steps of a recorded loop: not sampled, sampled, and sampled with their operators counted."""


def main(arguments: list[str] | None = None) -> None:
    """Measure the overhead and print it."""
    parser = argparse.ArgumentParser(prog="python -m pipelines.record.bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("--budget", type=float, default=0.01, help="fraction of time for sampling (default 0.01)")
    parser.add_argument("--rate", type=float, help="fraction of steps to sample, instead of a budget")
    parser.add_argument("--pairs", type=int, default=20, help="pairs of blocks (default 20)")
    parser.add_argument("--steps", type=int, default=20, help="steps per block (default 20)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=1, help="number of torch's CPU threads (default 1)")
    parser.add_argument(
        "--stacks", type=float, metavar="HZ", help="measure stack sampling, at this many samples per second"
    )
    args = parser.parse_args(arguments)
    if args.pairs < 2 or args.steps < 1:
        parser.error("--pairs must be at least 2 and --steps at least 1")
    torch.set_num_threads(args.threads)
    model, train = _loop(torch.device(args.device))
    with tempfile.TemporaryDirectory() as folder:
        if args.stacks:
            what, by_kind = f"stacks {args.stacks:g} times per second", {}
            plain, recorded, cpu = measure_stacks(train, folder, args.stacks, args.pairs, args.steps)
            share = 100 * (sum(cpu[True]) / sum(cpu[False]) - 1)
            print(f"CPU time of the process (not affected by other work on the machine): {share:+.2f} %")
        else:
            what = f"budget {100 * args.budget:g} %" if args.rate is None else f"rate {args.rate:g}"
            with record_spans(model, folder, args.rate, budget=args.budget) as spans:
                plain, recorded, by_kind = measure(train, spans, args.pairs, args.steps)
    ratios = [r / p for p, r in zip(plain, recorded, strict=True)]
    n_modules = sum(1 for _ in model.modules())
    print(
        f"method: {args.pairs} pairs of blocks of {args.steps} steps, plain and recorded alternately, in random order; "
        f"transformer of {n_modules} modules on {args.device}, torch {torch.__version__}, {torch.get_num_threads()} threads"
    )
    per_step = [1e3 * sum(times) / args.pairs / args.steps for times in (plain, recorded)]
    print(f"plain loop: {per_step[0]:.3f} ms per step; recorded, {what}: {per_step[1]:.3f} ms per step")
    print(
        f"overhead: {100 * (per_step[1] / per_step[0] - 1):+.2f} % of the summed times; median of the pairs "
        f"{100 * (statistics.median(ratios) - 1):+.2f} %, quartiles "
        f"{', '.join(f'{100 * (q - 1):+.2f} %' for q in statistics.quantiles(ratios, n=4)[::2])}"
    )
    for kind, times in by_kind.items():
        if times:
            print(
                f"{kind} steps: {len(times)}, median {1e3 * statistics.median(times):.3f} ms (time of the host's calls)"
            )


def measure(train: Callable[[], None], spans, pairs: int, steps: int) -> tuple[list, list, dict[str, list[float]]]:
    """Return seconds of each plain block, of each recorded block, and of the recorded steps by kind."""
    dice = random.Random(1)
    times: dict[bool, list[float]] = {False: [], True: []}
    by_kind: dict[str, list[float]] = {kind: [] for kind in _KINDS}
    for _ in range(pairs):
        for is_recorded in dice.sample((False, True), 2):
            began = time.perf_counter()
            for _ in range(steps):
                counts_before, step_began = (spans.n_sampled, spans.n_censuses), time.perf_counter()
                with spans.step() if is_recorded else nullcontext():
                    train()
                if is_recorded:
                    kind = _KINDS[spans.n_sampled - counts_before[0] + spans.n_censuses - counts_before[1]]
                    by_kind[kind].append(time.perf_counter() - step_began)
            _finish()
            times[is_recorded].append(time.perf_counter() - began)
    return times[False], times[True], by_kind


def measure_stacks(
    train: Callable[[], None], folder: str, hz: float, pairs: int, steps: int
) -> tuple[list[float], list[float], dict[bool, list[float]]]:
    """Return seconds of each plain block, of each block with stack sampling, and CPU seconds of the process in both."""
    dice = random.Random(1)
    times: dict[bool, list[float]] = {False: [], True: []}
    cpu: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(pairs):
        for is_recorded in dice.sample((False, True), 2):
            with StackSampler(folder, hz) if is_recorded else nullcontext():
                began, cpu_began = time.perf_counter(), time.process_time()
                for _ in range(steps):
                    train()
                _finish()
                times[is_recorded].append(time.perf_counter() - began)
                cpu[is_recorded].append(time.process_time() - cpu_began)
    return times[False], times[True], cpu


def _loop(device: torch.device) -> tuple[torch.nn.Module, Callable[[], None]]:
    if device.type == "cuda":
        torch.cuda.set_device(device)  # `_finish` waits for the current device
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batch = torch.randn(8, 32, 128, device=device)

    def train() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    for _ in range(5):
        train()
    _finish()
    return model, train


def _finish() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # if the reader stops early (`| head -1`), exit as other tools do
    main()
