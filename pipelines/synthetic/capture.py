"""Writer of a capture of N ranks to disk, as a stream, with known answers."""

from __future__ import annotations

import gzip
from collections import Counter, deque
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from io import BufferedWriter
from pathlib import Path as FilePath
from random import Random
from tempfile import TemporaryDirectory
from typing import IO, cast

from .busy import BreakdownTruth
from .changes import Changes
from .kineto import Clock, Rows, head, tail
from .longest import Path
from .machine import Machine
from .programs.accumulation import AccumulationProgram
from .programs.busy_queue import FullQueueProgram
from .programs.devices import DevicesProgram
from .programs.inference import DecodeProgram, ServingProgram
from .programs.loop import LoopProgram
from .programs.parallel import ParallelProgram
from .programs.planted import PlantedProgram
from .programs.polling import PollingProgram
from .programs.pool import PoolProgram
from .programs.program import COMM_STREAM, COMPUTE_STREAM, COPY_STREAM, SIDE_STREAMS, StepProgram
from .programs.waits import WaitsProgram
from .spec import CaptureSpec
from .work import MachineTruth, Pending

_PROGRAMS = {
    "training": StepProgram,
    "inference": DecodeProgram,
    "inference_graph": DecodeProgram,
    "serving": ServingProgram,
    "parallel": ParallelProgram,
    "loop": LoopProgram,
    "polling": PollingProgram,
    "full_queue": FullQueueProgram,
    "accumulation": AccumulationProgram,
    "waits": WaitsProgram,
    "pool": PoolProgram,
    "devices": DevicesProgram,
    "planted": PlantedProgram,
}


@dataclass(slots=True)
class PathTruth:
    """A critical path of the default profile, with its length and its parts by label (see longest.py), in ns."""

    length_ns: int
    bound_by: dict[str, int]

    @classmethod
    def of(cls, path: Path) -> PathTruth:
        return cls(path.length, path.bound_by())


@dataclass(slots=True)
class Truth:
    """Known answers of one rank. `machine`: counts of GPU activities by the real cause of their start.

    collective_wait_ns: time that this rank's collectives waited for the last rank to arrive.
    arrived_last: number of collectives in which this rank arrived last.
    """

    full: PathTruth
    steps: list[PathTruth]
    breakdown: BreakdownTruth
    machine: MachineTruth
    clock_offset_ns: int
    collective_wait_ns: int
    arrived_last: int


@dataclass(slots=True)
class RankCapture:
    """One written trace file of a rank, with its known answers."""

    path: FilePath
    rank: int
    n_events: int
    truth: Truth


@dataclass(slots=True)
class Capture:
    """A written capture. `ranks` are in rank order."""

    spec: CaptureSpec
    ranks: list[RankCapture]
    straggler: int | None
    n_collectives: int = 0

    @property
    def paths(self) -> list[FilePath]:
        """Return the files, in rank order."""
        return [rank.path for rank in self.ranks]

    def again(self, factors: Mapping[str, float], folder: FilePath | str) -> Capture:
        """Write the same program with changed durations (factors by target, see `Changes`) into another folder."""
        return write_capture(self.spec, folder, Changes(factors))


@dataclass(slots=True)
class _Rank:
    """State of a rank while its file is written."""

    number: int
    machine: Machine
    file: IO[bytes]
    path: FilePath
    slowdown: float
    steps: list[PathTruth] = field(default_factory=list)
    wait_ns: int = 0
    arrived_last: int = 0
    sequences: Counter[str] = field(default_factory=Counter)
    first_line: bool = True

    def flush(self) -> None:
        """Write the machine's output so far to the rank's file."""
        lines = self.machine.rows.take()
        if lines:
            self.file.write(("" if self.first_line else ",\n").encode() + ",\n".join(lines).encode())
            self.first_line = False


def write_capture(spec: CaptureSpec, folder: FilePath | str, changes: Changes | None = None) -> Capture:
    """Write one trace file per rank into `folder` (created if missing). Return the capture with its known answers.

    `changes`: factors of durations, in an otherwise equal run. The same spec yields the same bytes. Memory does not
    depend on the number of steps. Raise OSError if a file cannot be written.
    """
    folder = FilePath(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        ranks = [_open_rank(spec, number, folder, stack, changes) for number in range(spec.ranks)]
        n_collectives = 0
        for step in range(spec.steps):
            n_collectives += _write_step(spec, ranks, step)
        return Capture(spec, [_close_rank(spec, rank) for rank in ranks], spec.straggler, n_collectives)


def steps_for(spec: CaptureSpec, n_bytes: int) -> int:
    """Return the number of steps for a file of about `n_bytes` per rank before gzip, from trials of 1 and 2 steps."""
    with TemporaryDirectory() as folder:
        sizes = []
        for steps in (1, 2):
            trial = write_capture(replace(spec, steps=steps, gz=False), FilePath(folder) / str(steps))
            sizes.append(trial.paths[0].stat().st_size)
    return max(1 + round((n_bytes - sizes[0]) / (sizes[1] - sizes[0])), 1)


def _open_rank(spec: CaptureSpec, number: int, folder: FilePath, stack: ExitStack, changes: Changes | None) -> _Rank:
    path = folder / f"rank{number}.json{'.gz' if spec.gz else ''}"
    raw = stack.enter_context(path.open("wb"))
    # No name and no time in the gzip header, so that the same spec yields the same bytes.
    file = stack.enter_context(gzip.GzipFile("", "wb", 1, raw, mtime=0)) if spec.gz else raw
    device = number % 8
    rows = Rows(Clock(spec.fractional_ts, spec.offset_ns(number)), 1000 + 10 * number, device)
    slowdown = spec.straggler_slowdown if number == spec.straggler else 1.0
    rank = _Rank(
        number, Machine(rows, changes=changes, queue_limit=spec.queue_limit), cast(BufferedWriter, file), path, slowdown
    )
    numbers = [COMPUTE_STREAM, COPY_STREAM, COMM_STREAM]
    numbers += range(SIDE_STREAMS, SIDE_STREAMS + spec.compute_streams - 1)
    rows.metadata(
        {rows.pid: f"thread {rows.pid} (python3.11)", rows.pid + 1: "thread pt_autograd_0"},
        {stream: f"stream {stream} " for stream in numbers},
    )
    rank.file.write(head(number, spec.ranks, device).encode())
    rank.machine.now = 10_000
    return rank


def _write_step(spec: CaptureSpec, ranks: list[_Rank], step: int) -> int:
    """Run one step on all ranks, rank after rank up to each collective. Return the number of collectives."""
    programs = [_start_step(spec, rank, step) for rank in ranks]
    rng = Random(f"{spec.seed}/collectives/{step}")
    n_collectives = _run(spec, ranks, programs, rng)
    for rank in ranks:
        if spec.sync_each_step:
            # The sync joins all streams with the CPU, so the step's path is the growth of the CPU's path.
            rank.steps.append(PathTruth.of(rank.machine.step_paths[-1]))
        rank.machine.busy.settle(rank.machine.now)
        rank.flush()
    return n_collectives


def _run(spec: CaptureSpec, ranks: list[_Rank], programs: list[Generator[Pending, int, None]], rng: Random) -> int:
    """Resume the ranks of each collective once all its members wait in it. Return the number of collectives."""
    all_ranks = tuple(range(len(ranks)))
    waiting: dict[int, Pending] = {}
    arrived: Counter[tuple[int, ...]] = Counter()
    ready: deque[tuple[int, ...]] = deque()
    n_collectives = 0

    def wait(rank: int, pending: Pending | None) -> None:
        if pending is None:
            return
        members = pending.members or all_ranks
        waiting[rank] = pending
        arrived[members] += 1
        if arrived[members] == len(members):
            ready.append(members)
            del arrived[members]

    for rank, program in enumerate(programs):
        wait(rank, next(program, None))
    while ready:
        members = ready.popleft()
        n_collectives += 1
        ends = _meet(spec, [ranks[rank] for rank in members], [waiting.pop(rank) for rank in members], rng)
        for rank, end in zip(members, ends, strict=True):
            wait(rank, _resume(programs[rank], end))
    if waiting:
        raise ValueError(f"ranks wait for each other without end: {sorted(waiting)}")
    return n_collectives


def _start_step(spec: CaptureSpec, rank: _Rank, step: int) -> Generator[Pending, int, None]:
    rng = Random(f"{spec.seed}/{rank.number}/{step}")
    program = _PROGRAMS[spec.shape](rank.machine, spec, rank.number, rank.slowdown, rng, rank.sequences)
    return program.run(spec.first_step + step)


def _resume(program: Generator[Pending, int, None], end_ns: int) -> Pending | None:
    try:
        return program.send(end_ns)
    except StopIteration:
        return None


def _meet(spec: CaptureSpec, ranks: Sequence[_Rank], pending: Sequence[Pending], rng: Random) -> list[int]:
    """Return the end of one collective on each of its ranks, true ns.

    It is last arrival + transfer + the rank's skew.
    """
    grid = ranks[0].machine.grid
    last = max(p.start_ns for p in pending)
    culprit = next(i for i, p in enumerate(pending) if p.start_ns == last)
    ranks[culprit].arrived_last += 1
    transfer = int(spec.collective_ns * (0.8 + 0.4 * rng.random()))
    ends = []
    for rank, p in zip(ranks, pending, strict=True):
        rank.wait_ns += last - p.start_ns
        skew = rng.randrange(spec.collective_skew_ns + 1)
        ends.append(last + max((transfer + skew) // grid * grid, grid))
    return ends


def _close_rank(spec: CaptureSpec, rank: _Rank) -> RankCapture:
    machine = rank.machine
    machine.rows.closing(machine.now)
    rank.flush()
    rank.file.write(tail(rank.number, machine.rows.clock).encode())
    full, breakdown = PathTruth.of(machine.truth.path), machine.busy.close()
    offset = spec.offset_ns(rank.number)
    truth = Truth(full, rank.steps, breakdown, machine.truth, offset, rank.wait_ns, rank.arrived_last)
    return RankCapture(rank.path, rank.number, machine.rows.n_events, truth)
