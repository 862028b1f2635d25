"""A capture of many ranks in nested groups, with a straggler on one rank of one node and clocks that are off.

`python -m tests.fleet.many_ranks LAKE` computes the capture tables of a lake and prints the peak of its memory.
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Any

from pipelines.lake import Lake
from pipelines.models.catalog import load_catalog
from pipelines.runs.materialize.per_capture import materialize_captures
from pipelines.synthetic import Capture, CaptureSpec, write_capture

SHAPES = {8: (2, 2), 32: (4, 2), 64: (8, 2), 256: (8, 4), 1000: (8, 5)}
"""By number of ranks: of a tensor-parallel group, and stages of the pipeline."""
SKEW_NS = 2_000_000


def many_ranks(folder: Path, ranks: int, **changes: Any) -> Capture:
    """Write the capture; its straggler is in the middle of a node behind the first half of the ranks."""
    tensor, pipeline = SHAPES[ranks]
    draw = Random(ranks)
    spec: dict[str, Any] = {
        "ranks": ranks,
        "steps": 3,
        "layers": 2,
        "ops_per_layer": 2,
        "compute_streams": 1,
        "kernel_ns": 80_000,
        "collective_ns": 60_000,
        "straggler": ranks * 5 // 8 + tensor // 2,
        "straggler_slowdown": 3.0,
        "clock_offset_ns": tuple(draw.randrange(-SKEW_NS, SKEW_NS) for _ in range(ranks)),
        "shape": "parallel",
        "tensor": tensor,
        "pipeline": pipeline,
    }
    return write_capture(CaptureSpec(**spec | changes), folder)


def peak_bytes() -> int:
    """Returns the peak of this process's memory: ru_maxrss would begin with what its parent held."""
    status = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in status if line.startswith("VmHWM")))


def main() -> None:
    """Compute all capture tables, and say what that held in memory."""
    materialize_captures(Lake(sys.argv[1]), load_catalog().of_captures)
    print(peak_bytes())


if __name__ == "__main__":
    main()
