"""`make bench-engine`: cost of the engines between tasks, compared with hand-written loops; on CUDA, their period.

Example: `python -m bench.engine --iterations 500 --rounds 3`
"""

from __future__ import annotations

import argparse
import gc
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

from rich.table import Table

from bench.report import Floor, console, times

TASKS = 9


@dataclass
class Loop:
    """A way to run the empty tasks, with µs of wall time and CPU time per task, by cores and round."""

    name: str
    run: Callable[[int], float]
    ours: bool = False
    wall: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)

    def measure(self, iterations: int, where: str) -> None:
        gc.collect()
        before = time.process_time()
        seconds = self.run(iterations)
        used = time.process_time() - before
        self.wall.setdefault(where, []).append(seconds / iterations / TASKS * 1e6)
        self.cpu.setdefault(where, []).append(used / iterations / TASKS * 1e6)

    def cost(self, where: str) -> float:
        """Return the wall time per task of the median round, µs."""
        return statistics.median(self.wall[where])


def main() -> None:
    """Parse the options, measure, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    parser.add_argument("--iterations", type=int, default=2000, help="iterations of a round (2000)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds, in turn (7)")
    options = parser.parse_args()
    if options.iterations < 10 or options.rounds < 1:
        parser.error("--iterations must be at least 10 and --rounds at least 1")
    try:
        import torch
    except ImportError:
        raise SystemExit("error: the engines need torch, which is not installed") from None

    warnings.simplefilter("ignore")  # the validator's warnings about the plan do not matter for the benchmark
    console.print(
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python "
        f"{platform.python_version()}, torch {torch.__version__}"
    )
    _overhead(options.iterations, options.rounds)
    if torch.cuda.is_available():
        from bench import engine_cuda

        engine_cuda.main([])
    else:
        console.print("torch sees no CUDA device here: the achieved period was not measured")


def _overhead(iterations: int, rounds: int) -> None:
    from bench import engine_torchrec
    from bench.engine_loops import AT_MOST

    loops_of = {groups: _loops(groups) for groups in AT_MOST}
    absent = engine_torchrec.missing()
    if absent is None:
        loops_of[1].append(Loop("torchrec StagedTrainPipeline, no threads", engine_torchrec.staged("cpu")))
    loops = [loop for same_groups in loops_of.values() for loop in same_groups]
    places = _places()
    with console.status("empty tasks") as status:
        for loop in loops:
            loop.run(max(10, iterations // 10))  # warm
        for turn in range(rounds):
            for where, cores in places.items():
                _pin(cores)
                for loop in loops:
                    status.update(f"{loop.name}, {where}, round {turn + 1} of {rounds}")
                    loop.measure(iterations, where)
    for where in places:
        for groups, same_groups in loops_of.items():
            title = f"{where}, {groups} thread group{'s' * (groups > 1)}, {rounds} x {iterations} iterations"
            _print(same_groups, where, title, Floor(AT_MOST[groups], at_least=False))
    console.print(
        "two phases: the document's protocol with the same threads (one submits for each group, one runs each stream). A "
        "thread a stream: no thread submits, which a GPU cannot do without; the least that a loop can cost. Python runs one "
        "thread at a time; on several cores most of the time is one core waking another, for whoever uses threads."
    )
    if absent is not None:
        console.print(absent)


def _loops(groups: int) -> list[Loop]:
    """The hand-written loops and the engines, for a plan with that many thread groups."""
    from bench.engine_loops import StreamThreads, TwoPhases, fused_plan

    return [
        Loop("by hand: a thread a stream", StreamThreads(fused_plan(groups=groups)).run),
        Loop("by hand: two phases, as documented", TwoPhases(fused_plan(groups=groups)).run),
        Loop("SWPipeline", _engine("SWPipeline", groups), ours=True),
        Loop("DataFlowPipeline, max_depth=3", _engine("DataFlowPipeline", groups), ours=True),
    ]


def _places() -> dict[str, set[int] | None]:
    """Return the sets of cores to run on.

    Numbers are reproducible on one core. On all cores, other load affects them.
    """
    if not hasattr(os, "sched_setaffinity"):
        return {"all cores": None}
    cores = os.sched_getaffinity(0)
    return {"one core": {max(cores)}, "all cores": cores} if len(cores) > 1 else {"one core": cores}


def _pin(cores: set[int] | None) -> None:
    """Restrict the calling thread, and threads that it starts later, to these cores."""
    if cores is not None:
        os.sched_setaffinity(0, cores)


def _engine(kind: str, groups: int) -> Callable[[int], float]:
    from bench.engine_loops import fused_plan
    from pipelines.schedule import DataFlowPipeline, SWPipeline

    plan = fused_plan(groups=groups)
    pipe = SWPipeline(plan, "cpu") if kind == "SWPipeline" else DataFlowPipeline(plan, 3, "cpu")

    def run(iterations: int) -> float:
        seconds = pipe.run(range(iterations))
        pipe.drain()
        return seconds

    return run


def _print(loops: list[Loop], where: str, title: str, ratio: Floor) -> None:
    table = Table(title=f"Empty tasks on cpu, {title}: FusedSparseDist (9 tasks, 4 streams)", title_justify="left")
    table.add_column("loop")
    for name in ("median a task", "best", "CPU time", "/ a thread a stream", "/ two phases", "aim"):
        table.add_column(name, justify="right")
    least, same = loops[0].cost(where), loops[1].cost(where)
    for loop in loops:
        cost = loop.cost(where)
        table.add_row(
            loop.name,
            f"{cost:.1f} us",
            f"{min(loop.wall[where]):.1f} us",
            f"{statistics.median(loop.cpu[where]):.1f} us",
            times(cost / least),
            times(cost / same),
            ratio.mark(cost / same, "engine") if loop.ours else "",
        )
    console.print(table)


if __name__ == "__main__":
    main()
