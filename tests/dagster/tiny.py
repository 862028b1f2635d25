"""A hand-written trace, and files that look as if they had been quiet."""

import json
import os
from pathlib import Path

from tests.harness import call, kernel, x

TINY = [
    x("cpu_op", "aten::mm", 1000, 50, **{"External id": 1}),
    call("cudaLaunchKernel", 1010, 20, 7),
    kernel("gemm", 1040, 100, 7),
    call("cudaDeviceSynchronize", 1060, 90, 8),
]


def write_trace(path: Path, shift: int = 0) -> Path:
    """Write the tiny trace, with times moved by `shift` (us), so that each shift has different content.

    Return its path.
    """
    events = [{**e, "ts": e["ts"] + shift} for e in TINY]
    path.write_text(json.dumps({"schemaVersion": 1, "distributedInfo": {"rank": 0}, "traceEvents": events}))
    return path


def age(path: Path, seconds: float = 60) -> Path:
    """Set a file's modification time `seconds` back, so that it looks quiet. Return its path."""
    then = path.stat().st_mtime - seconds
    os.utime(path, (then, then))
    return path
