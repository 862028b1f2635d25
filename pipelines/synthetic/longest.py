"""The path into a node, computed while the machine runs: no graph is kept, so memory does not grow with the size.

The simulator knows what bound every node when it creates it. So the path into a node is the path into what bound it and
all the time since, and it carries its composition along. It is as long as the time since the window's first node.
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
    """The path into a node: its length and its parts, ns."""

    length: int = 0
    cpu: int = 0
    host: int = 0
    compute: int = 0
    comm: int = 0
    mem: int = 0
    gap: int = 0
    launch: int = 0

    def plus(self, label: str, weight_ns: int) -> Path:
        """Returns this path extended by one edge. A negative weight counts as 0."""
        if weight_ns <= 0:
            return self
        parts = list(self)
        parts[0] += weight_ns
        parts[_PLACE[label]] += weight_ns
        return Path._make(parts)

    def minus(self, start: Path) -> Path:
        """Returns the part of this path after `start`, which must lie on it."""
        return Path._make(a - b for a, b in zip(self, start, strict=True))

    def bound_by(self) -> dict[str, int]:
        """Returns nanoseconds per label, without labels that have no time."""
        return {label: ns for label, ns in zip(LABELS, self[1:], strict=True) if ns}


_PLACE = {label: place for place, label in enumerate(LABELS, start=1)}
ZERO = Path()


def longest(*paths: Path) -> Path:
    """Returns the longest of the paths; the first of equal ones."""
    return max(paths, key=lambda path: path.length)
