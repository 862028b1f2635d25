"""Data types of the simulated machine: work, its end, events, streams, and the recorded truth."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from .busy import COMPUTATION
from .longest import ZERO, Path

KERNEL_ARGS = (
    '"queued": 0, "registers per thread": 32, "shared memory": 0, "blocks per SM": 4.740741, '
    '"warps per SM": 75.851852, "grid": [512, 1, 1], "block": [512, 1, 1], "est. achieved occupancy %": 75'
)


@dataclass(frozen=True, slots=True)
class Work:
    """Work that a launch puts on a stream: a kernel, memcpy or memset."""

    name: str
    cat: str = "kernel"
    kind: str = COMPUTATION
    call: str = "cudaLaunchKernel"
    args: str = KERNEL_ARGS


@dataclass(frozen=True, slots=True)
class Done:
    """End of a GPU activity, with the path into it."""

    end_ns: int
    path: Path


@dataclass(frozen=True, slots=True)
class Event:
    """A recorded CUDA event. source: the last work on its stream at that time, or None."""

    number: int
    correlation: int
    stream: int
    source: Done | None


@dataclass(slots=True)
class Stream:
    last: Done | None = None
    waits: list[Done] = field(default_factory=list)
    queue: deque[Done] = field(default_factory=lambda: deque(maxlen=4096))


@dataclass(slots=True)
class Pending:
    """Launched work whose end is still unknown, such as a collective that waits for the other ranks.

    members: the ranks of the collective, None for all.
    """

    work: Work
    stream: int
    start_ns: int
    path: Path
    external: int
    correlation: int
    members: tuple[int, ...] | None = None


@dataclass(slots=True)
class MachineTruth:
    """The simulator's truth about one rank.

    started_by: number of GPU activities by the real cause of their start: `launch`, `kernel` (the previous activity on
    the stream) or `wait` (an event). rule: number of GPU activities by the edge that the path's rule assigns to their
    waiting time. blocked_syncs: blocking calls that waited. idle_syncs: blocking calls after the end of the GPU's work
    (their time stays CPU time). blocked_launches: launches that waited for a full queue of their stream, and cudaFree
    calls that waited. blocked_polls: polling loops that waited.
    """

    path: Path = ZERO
    n_kernels: Counter[str] = field(default_factory=Counter)
    started_by: Counter[str] = field(default_factory=Counter)
    rule: Counter[str] = field(default_factory=Counter)
    blocked_syncs: int = 0
    idle_syncs: int = 0
    blocked_launches: int = 0
    blocked_polls: int = 0
