"""The path into a node, computed while the machine runs. No graph is kept, so memory does not grow with the capture.

When the simulator creates a node, it knows the node that determined its time. The path into the new node is the path
into that node plus the time since then, with its parts by label. It is as long as the time since the window's first
node.
"""

from __future__ import annotations

from typing import NamedTuple

CPU = "cpu_bound"
HOST = "host_gap"
COMPUTE = "gpu_compute_bound"
COMM = "gpu_communication_bound"
MEM = "gpu_memory_bound"
GAP = "gpu_kernel_kernel_overhead"
LAUNCH = "gpu_kernel_launch_overhead"
LABELS = (CPU, HOST, COMPUTE, COMM, MEM, GAP, LAUNCH)


class Path(NamedTuple):
    """Path into a node: its length and its parts, ns."""

    length: int = 0
    cpu: int = 0
    host: int = 0
    compute: int = 0
    comm: int = 0
    mem: int = 0
    gap: int = 0
    launch: int = 0

    def plus(self, label: str, weight_ns: int) -> Path:
        """Return this path extended by one edge. A negative weight counts as 0."""
        if weight_ns <= 0:
            return self
        parts = list(self)
        parts[0] += weight_ns
        parts[_PLACE[label]] += weight_ns
        return Path._make(parts)

    def minus(self, start: Path) -> Path:
        """Return the part of this path after `start`, which must be a prefix of it."""
        return Path._make(a - b for a, b in zip(self, start, strict=True))

    def bound_by(self) -> dict[str, int]:
        """Return nanoseconds per label, without labels of 0 ns."""
        return {label: ns for label, ns in zip(LABELS, self[1:], strict=True) if ns}


_PLACE = {label: index for index, label in enumerate(LABELS, start=1)}
ZERO = Path()


def longest(*paths: Path) -> Path:
    """Return the longest path, or the first of several longest paths."""
    return max(paths, key=lambda path: path.length)
