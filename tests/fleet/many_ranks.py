"""A capture of many ranks in nested groups, with a straggler on one rank of one node, and clocks that differ.

`python -m tests.fleet.many_ranks LAKE` computes the capture tables of a lake and prints the peak of its memory in
bytes.
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
"""For each number of ranks the size of a tensor-parallel group, and the number of pipeline stages."""
SKEW_NS = 2_000_000


def many_ranks(folder: Path, ranks: int, **changes: Any) -> Capture:
    """Write the capture, and return it. Its straggler is in the middle of a node after the first half of the ranks."""
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
    """Return the peak of this process's memory, in bytes. ru_maxrss would start at its parent's memory."""
    status = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in status if line.startswith("VmHWM")))


def main() -> None:
    """Compute all capture tables, and print the peak of memory."""
    materialize_captures(Lake(sys.argv[1]), load_catalog().of_captures)
    print(peak_bytes())


if __name__ == "__main__":
    main()
