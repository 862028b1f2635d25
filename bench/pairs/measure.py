"""Measurement of seconds per step, without and with the profiler, and of the trace of a window of steps."""

from __future__ import annotations

import gc
import gzip
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from bench.pairs.context import Context
from bench.pairs.program import Program, Step

SECONDS = 0.3
"""Total seconds of the rounds of one variant, without warm-up."""
ROUNDS = (3, 15)
"""Minimum and maximum number of rounds of one variant."""
RANK_ROUNDS = 3
"""Number of rounds with several ranks. It is fixed, because all ranks must take part in the same rounds."""

Fence = Callable[[], None]


def build(program: Program, c: Context) -> Step:
    """Build the step and run its warm-up steps, so that one-time work is done before the measurement."""
    torch.manual_seed(0)
    step = program.make(c)
    for i in range(program.warm):
        step(i)
    c.sync()
    return step


def discard(c: Context) -> None:
    """Release the variant's resources, so that the next variant starts from the same state."""
    c.cleanup.close()
    gc.collect()
    if c.cuda:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


def window(step: Step, steps: int, c: Context, fence: Fence) -> float:
    """Run a window of steps and return the seconds per step."""
    fence()
    start = time.perf_counter()
    for i in range(steps):
        step(i)
    c.sync()
    return (time.perf_counter() - start) / steps


def measure_plain(program: Program, c: Context, fence: Fence) -> list[float]:
    """Return the seconds per step of each round, without the profiler."""
    step = build(program, c)
    rounds = [window(step, program.steps, c, fence)]
    least, most = (RANK_ROUNDS, RANK_ROUNDS) if c.ranks > 1 else ROUNDS
    if not program.repeatable:
        least = most = 1
    wanted = min(most, max(least, int(SECONDS / (rounds[0] * program.steps))))
    rounds += [window(step, program.steps, c, fence) for _ in range(wanted - 1)]
    del step
    discard(c)
    return rounds


def measure_traced(program: Program, c: Context, fence: Fence, path: Path) -> list[float]:
    """Write the trace of the last window to `path`, and return the seconds per step of each traced window."""
    step = build(program, c)
    options: dict[str, Any] = {
        "activities": [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if c.cuda else [])],
        "with_stack": program.stack,
    }
    if program.sync_events:
        options["experimental_config"] = torch._C._profiler._ExperimentalConfig(enable_cuda_sync_events=True)  # pyright: ignore[reportAttributeAccessIssue]
    if program.repeatable:
        with profile(**options):  # the first profile starts CUPTI
            step(0)
            c.sync()
    seconds = []
    for _ in range(2 if program.repeatable else 1):
        with profile(**options) as recorded:
            c.sync()
            fence()
            start = time.perf_counter()
            for i in range(program.steps):
                with record_function(f"ProfilerStep#{i}"):
                    step(i)
            with record_function("closing"):
                c.sync()
            seconds.append((time.perf_counter() - start) / program.steps)
    unpacked = path.with_suffix("")
    recorded.export_chrome_trace(str(unpacked))
    with unpacked.open("rb") as source, gzip.open(path, "wb", 9) as target:
        shutil.copyfileobj(source, target)
    unpacked.unlink()
    del step
    discard(c)
    return seconds


def numbers(program: Program, plain: list[float], traced: list[float]) -> dict[str, object]:
    """Return the entry of one variant in truth.json."""
    return {
        "plain_step_s": median(plain) if plain else None,
        "plain_all_s": plain,
        "traced_step_s": traced[-1],
        "traced_all_s": traced,
        "steps": program.steps,
    }
