"""The cost of `trace_handler` for a training loop on the CPU, compared with an export by torch alone.

`python -m bench.trace_handler [--rounds 3] [--steps 100]`. A round trains for `--steps` steps with a handler that
only exports, then with `trace_handler`. Each run profiles three steps after a third of its steps. The command prints
medians over the rounds: the duration of the handler's call, and how much slower steps are while the trace is compressed
and ingested.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tracelake.torch import trace_handler


@dataclass(frozen=True)
class Loop:
    """Times of a training loop, s: the steps before profiling, the handler's call, and the steps after the call."""

    before: list[float]
    call: float
    after: list[float]

    @property
    def slower_percent(self) -> float:
        """Return how much longer the median step is after the call than before profiling, in percent."""
        return 100 * (statistics.median(self.after) / statistics.median(self.before) - 1)


def train(n_steps: int, handler: Callable[[Any], None], is_busy: Callable[[], bool]) -> Loop:
    """Train a small model, and return the times of its steps.

    `after` contains the steps that begin after the handler's call and while `is_busy()`. If no step begins while
    `is_busy()`, it contains all steps after the call.
    """
    model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8)))
    optimizer = torch.optim.Adam(model.parameters())
    batch, wait = torch.randn(256, 512), n_steps // 3
    before, after, calls = list[float](), list[tuple[float, bool]](), list[float]()

    def timed(profiler: Any) -> None:
        began = time.perf_counter()
        handler(profiler)
        calls.append(time.perf_counter() - began)

    schedule = torch.profiler.schedule(wait=wait, warmup=1, active=3, repeat=1)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=timed) as profiler:
        for _ in range(n_steps):
            busy, began = bool(calls) and is_busy(), time.perf_counter()
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            seconds = time.perf_counter() - began
            if calls:
                after.append((seconds, busy))
            elif len(before) < wait:
                before.append(seconds)
            profiler.step()
    during = [seconds for seconds, busy in after if busy]
    return Loop(before, calls[0], during or [seconds for seconds, _ in after])


def measure(n_steps: int, folder: Path) -> tuple[Loop, Loop, float]:
    """Train with torch's export, then with the handler. Return both loops, and the CPU seconds of child processes.

    The handler's process is the only child of the second loop.
    """
    plain = train(n_steps, lambda profiler: profiler.export_chrome_trace(str(folder / "plain.json")), lambda: False)
    handler = trace_handler(folder / "lake", job="bench")
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    handled = train(n_steps, handler, lambda: not handler.wait(0))
    if not handler.wait():
        raise SystemExit("the trace was not delivered")
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return plain, handled, used.ru_utime + used.ru_stime - children.ru_utime - children.ru_stime


def main() -> None:
    """Print a table of medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rounds = [measure(options.steps, Path(folder)) for _ in range(options.rounds)]
    step = statistics.median(seconds for plain, _, _ in rounds for seconds in plain.before)
    print(f"{options.rounds} rounds on {os.cpu_count()} cores; a step takes {1e3 * step:.1f} ms")
    print("| | torch's export | trace_handler |\n|---|---:|---:|")
    calls = [1e3 * statistics.median(loops[i].call for *loops, _ in rounds) for i in range(2)]
    print(f"| duration of the handler's call | {calls[0]:.1f} ms | {calls[1]:.1f} ms |")
    slower = [statistics.median(loops[i].slower_percent for *loops, _ in rounds) for i in range(2)]
    print(f"| steps after it are longer by | {slower[0]:.1f} % | {slower[1]:.1f} % |")
    print(f"| CPU of the process that ingests | | {statistics.median(cpu for *_, cpu in rounds):.1f} s |")


if __name__ == "__main__":
    main()
