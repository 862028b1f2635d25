"""The longest path, carried along while the machine runs: no graph is kept, so it costs the same for any size.

The simulator produces every node after all its predecessors. So a node's longest path is the best of its incoming
edges at the moment the node is made, and it carries what that path is made of.
"""

from __future__ import annotations

from typing import NamedTuple

CPU = "cpu_bound"
COMPUTE = "gpu_compute_bound"
COMM = "gpu_communication_bound"
MEM = "gpu_memory_bound"
GAP = "gpu_kernel_kernel_overhead"
LAUNCH = "gpu_kernel_launch_overhead"
LABELS = (CPU, COMPUTE, COMM, MEM, GAP, LAUNCH)


class Path(NamedTuple):
    """The longest path into a node: its length and its parts, ns."""

    length: int = 0
    cpu: int = 0
    compute: int = 0
    comm: int = 0
    mem: int = 0
    gap: int = 0
    launch: int = 0

    def plus(self, label: str, weight_ns: int) -> Path:
        """This path after one more edge. A negative weight counts as 0."""
        if weight_ns <= 0:
            return self
        parts = list(self)
        parts[0] += weight_ns
        parts[_PLACE[label]] += weight_ns
        return Path._make(parts)

    def minus(self, start: Path) -> Path:
        """The part of this path after `start`, which must lie on it."""
        return Path._make(a - b for a, b in zip(self, start, strict=True))

    def bound_by(self) -> dict[str, int]:
        """Nanoseconds a label, labels without time left out."""
        return {label: ns for label, ns in zip(LABELS, self[1:], strict=True) if ns}


_PLACE = {label: place for place, label in enumerate(LABELS, start=1)}
ZERO = Path()


def longest(*paths: Path) -> Path:
    """The longest of the paths; the first of equal ones."""
    return max(paths, key=lambda path: path.length)
