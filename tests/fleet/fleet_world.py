"""Captures of two ranks with known times. Every number of `capture_metrics` can be worked out on paper."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.harness import call, op, x

DAY_NS = 86_400 * 10**9
BASE_NS = 1_790_000_000 * 10**9


def rank_trace(rank: int, steps_us: list[int], compute_us: int, late_us: int, world_size: int = 2) -> dict[str, Any]:
    """Return a trace of consecutive steps.

    Each has a gemm of `compute_us` at 10 us, then an AllReduce of 100 us plus its wait.

    `late_us`: how much later than the other rank this rank reaches the AllReduce. If negative, this rank waits that
    long for the other.
    """
    events, start = [], 1000
    for number, length in enumerate(steps_us):
        first, second = 10 * number + 1, 10 * number + 2
        arrives = start + 10 + compute_us + 20 + max(late_us, 0)
        events += [
            x("user_annotation", f"ProfilerStep#{number}", start, length),
            op("aten::mm", start + 2, 6),
            call("cudaLaunchKernel", start + 3, 2, first),
            x("kernel", "gemm", start + 10, compute_us, 7, 0, correlation=first, stream=7, device=0),
            call("cudaLaunchKernel", start + 9, 2, second),
            x(
                "kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", arrives, 100 + max(-late_us, 0), 9, 0,
                correlation=second, stream=9, device=0,
            ),
        ]  # fmt: skip
        start += length
    info = {"rank": rank, "world_size": world_size}
    return {"distributedInfo": info, "deviceProperties": [{"id": 0, "name": "H200"}], "traceEvents": events}


def write_capture(
    folder: Path,
    day: int,
    steps_us: list[int],
    compute_us: int = 300,
    late_us: int = 50,
    ranks: tuple[int, ...] = (0, 1),
) -> Path:
    """Write a capture of that day, and return its folder.

    Rank 1 is `late_us` late to every AllReduce, so rank 0 waits as long.
    """
    folder.mkdir(parents=True)
    for rank in ranks:
        trace = rank_trace(rank, steps_us, compute_us, late_us if rank else -late_us)
        (folder / f"rank{rank}.json").write_text(json.dumps({"baseTimeNanoseconds": BASE_NS + day * DAY_NS, **trace}))
    return folder
