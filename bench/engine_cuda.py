"""FusedSparseDist's work on a GPU: serial, SWPipeline and DataFlowPipeline compared with the bottleneck stream's time.

Needs only torch and the standard library (Python 3.11 to 3.14). Example:
`python -m bench.engine_cuda --json numbers.json`
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench import engine_torchrec
from bench.engine_loops import AT_MOST, Fn, fused_plan
from bench.engine_work import Recommender, by_hand, spinning
from pipelines.schedule import DataFlowPipeline, IterContext, PipelinePlan, SWPipeline, validate_plan
from pipelines.schedule.engine.order import enqueue_order
from pipelines.schedule.search.predict import predict

MAX_DEPTH = 5  # as in the document's example of DataFlowPipeline


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the options, measure, and print the results."""
    parser = argparse.ArgumentParser(prog="python -m bench.engine_cuda", description=__doc__)
    parser.add_argument("--device", default="cuda", help="cuda, or cpu: only to try the script")
    parser.add_argument("--iterations", type=int, default=100, help="iterations that a period is measured over (100)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each, in turn; the median counts (3)")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the recommender (1)")
    parser.add_argument("--json", type=Path, help="write the numbers here too")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    on_gpu = options.device == "cuda"
    name = torch.cuda.get_device_name() if on_gpu else platform.processor() or platform.machine()
    print(f"{name}, torch {torch.__version__}, Python {platform.python_version()}")
    results: dict[str, Any] = {"device": name, "torch": torch.__version__, "python": platform.python_version()}
    if on_gpu:
        torch.backends.cuda.matmul.allow_tf32 = True
        results["empty tasks, us a task"] = _empty(options.iterations * 10, options.rounds)
        for scale in (1.0, 0.1):
            functions = spinning(scale)
            title = f"spinning kernels x {scale:g}"
            results[title] = _compare(title, functions, options, lambda n: range(n))
    work = Recommender(options.device, options.scale)
    title = f"recommender x {options.scale:g}"
    results[title] = _compare(title, work.functions(), options, work.data)
    results["losses"] = _same_losses(work, options.device)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


def _compare(title: str, functions: dict[str, Fn], options: Any, data: Callable[[int], Any]) -> dict[str, Any]:
    """Measure and print the achieved periods, and the predictions from the tasks' times, ms. Return them."""
    plan = training_plan(functions)
    took = _task_times(functions, options.device, data(30))
    waits = "submitted" if options.device == "cuda" else "finished"  # the state that progress() waits for
    clocked, flow = SWPipeline(plan, options.device), DataFlowPipeline(plan, MAX_DEPTH, options.device)
    ideal = predict(plan, took, retire=waits)
    predicted = {
        "serial": sum(took.values()),
        "SWPipeline": ideal.period_ns,
        "DataFlowPipeline": predict(plan, took, engine="DataFlowPipeline", max_depth=MAX_DEPTH, retire=waits).period_ns,
    }
    runs: dict[str, Callable[[int], float]] = {
        "serial": lambda n: clocked.run_serial(data(n)),
        "SWPipeline": lambda n: _run(clocked, data(n)),
        "DataFlowPipeline": lambda n: _run(flow, data(n)),
    }
    periods: dict[str, list[float]] = {kind: [] for kind in runs}
    for run in runs.values():
        run(10)  # warm
    for _ in range(options.rounds):
        for kind, run in runs.items():
            periods[kind].append(_period(run, options.iterations))
    print(f"\n{title}: bottleneck {ideal.bottleneck!r}, {ideal.ideal_ns / 1e6:.3f} ms")
    print("  tasks, ms: " + ", ".join(f"{name} {ns / 1e6:.3f}" for name, ns in took.items()))
    print(f"  {'':<17} {'period':>10} {'predicted':>10} {'/ bottleneck':>13} {'faster':>8}")
    rows = {kind: statistics.median(values) for kind, values in periods.items()}
    for kind, seconds in rows.items():
        ratio, faster = seconds * 1e9 / max(1.0, ideal.ideal_ns), rows["serial"] / seconds
        print(f"  {kind:<17} {seconds * 1e3:>7.3f} ms {predicted[kind] / 1e6:>7.3f} ms {ratio:>12.3f}x {faster:>7.2f}x")
    return {
        "tasks_ms": {name: ns / 1e6 for name, ns in took.items()},
        "bottleneck_ms": ideal.ideal_ns / 1e6,
        "predicted_ms": {kind: ns / 1e6 for kind, ns in predicted.items()},
        "period_ms": {kind: seconds * 1e3 for kind, seconds in rows.items()},
    }


def training_plan(functions: dict[str, Fn]) -> PipelinePlan:
    """Return FusedSparseDist with explicit dependencies for the order that its stages imply.

    Data flow ignores stages. Without the two dependencies, it submits ZeroGrad and Forward of the next iterations
    before OptimizerStep of this iteration, and the model trains on other gradients and older weights. In SWPipeline,
    the dependencies cost nothing.
    """
    plan = fused_plan(functions)
    plan.inter_iter_deps = [*plan.inter_iter_deps, ("ZeroGrad", "OptimizerStep"), ("Forward", "OptimizerStep")]
    return plan


def _run(pipe: SWPipeline | DataFlowPipeline, data: Any) -> float:
    seconds = pipe.run(data)
    pipe.drain()
    return seconds


def _period(run: Callable[[int], float], iterations: int) -> float:
    """Return the seconds per iteration without filling and draining: a long run minus a short run."""
    short = run(10)
    return (run(10 + iterations) - short) / iterations


def _task_times(functions: dict[str, Fn], device: str, data: Any) -> dict[str, int]:
    """Return the median ns of each task in a serial run, when the device has no other work."""
    clock = _EventClock() if device == "cuda" else _HostClock()
    timed = {name: clock.around(name, fn) for name, fn in functions.items()}
    SWPipeline(fused_plan(timed), device).run_serial(data)
    return {name: round(statistics.median(values)) for name, values in clock.durations().items()}


class _HostClock:
    def __init__(self) -> None:
        self.taken: dict[str, list[Any]] = {}

    def around(self, name: str, fn: Fn) -> Fn:
        taken = self.taken.setdefault(name, [])

        def timed(ctx: IterContext) -> None:
            start = self.now()
            fn(ctx)
            taken.append((start, self.now()))

        return timed

    def now(self) -> Any:
        return time.perf_counter_ns()

    def durations(self) -> dict[str, list[float]]:
        return {name: [end - start for start, end in pairs] for name, pairs in self.taken.items()}


class _EventClock(_HostClock):
    """Clock of the GPU's time."""

    def now(self) -> Any:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def durations(self) -> dict[str, list[float]]:
        torch.cuda.synchronize()
        return {n: [start.elapsed_time(end) * 1e6 for start, end in pairs] for n, pairs in self.taken.items()}


def _same_losses(work: Recommender, device: str, iterations: int = 40) -> str:
    """Return whether the engines train like the serial run, as text.

    The plan allows no staleness, so the losses must be equal. On a GPU, they are not equal to the bit, because
    duplicate rows are added up in any order. A plan with staleness differs by 3e-4.
    """
    plan, seen = training_plan(work.functions()), {}
    for kind in ("serial", "SWPipeline", "DataFlowPipeline"):
        work.reset()
        pipe = DataFlowPipeline(plan, MAX_DEPTH, device) if kind[0] == "D" else SWPipeline(plan, device)
        _ = pipe.run_serial(work.data(iterations)) if kind == "serial" else _run(pipe, work.data(iterations))
        seen[kind] = torch.stack(work.losses).cpu()
    worst = max(float((losses / seen["serial"] - 1).abs().max()) for losses in seen.values())
    fell = float(seen["serial"][0] - seen["serial"][-1])
    verdict = (
        f"the same losses as the serial run, within {worst:.1e}" if worst < 2e-5 else f"LOSSES DIFFER: {worst:.1e}"
    )
    print(f"  {verdict} (they fell by {fell:.4f} in {iterations} iterations)")
    return verdict


def _empty(iterations: int, rounds: int) -> dict[str, float]:
    """Return the host time per empty task, us, of the engines and of a single thread with streams and events."""
    plan = validate_plan(fused_plan())
    streams = SWPipeline(fused_plan())._streams
    loops: dict[str, Callable[[int], float]] = {"by hand": by_hand(enqueue_order(plan, "ready_first"), plan, streams)}
    at_most: dict[str, float] = {}
    for groups, bound in AT_MOST.items():
        for kind, pipe in _pipes(groups).items():
            name = f"{kind}, {groups} thread group{'s' * (groups > 1)}"
            loops[name], at_most[name] = partial(_run_empty, pipe), bound
    absent = engine_torchrec.missing()
    if absent is None:
        loops["torchrec StagedTrainPipeline"] = engine_torchrec.staged("cuda")
    taken: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(rounds + 1):
        for name, run in loops.items():
            taken[name].append(run(iterations) / iterations / len(plan.names) * 1e6)
    costs = {name: statistics.median(values[1:]) for name, values in taken.items()}  # the first round is a warm-up
    print(f"\nempty tasks on the GPU, {rounds} x {iterations} iterations")
    for name, cost in costs.items():
        ratio = cost / costs["by hand"]
        print(f"  {name:<34} {cost:>6.1f} us a task {ratio:>6.2f}x{_mark(ratio, at_most.get(name))}")
    if absent is not None:
        print(f"  {absent}")
    return costs


def _pipes(groups: int) -> dict[str, SWPipeline | DataFlowPipeline]:
    plan = fused_plan(groups=groups)
    return {"SWPipeline": SWPipeline(plan), "DataFlowPipeline": DataFlowPipeline(plan, MAX_DEPTH)}


def _run_empty(pipe: SWPipeline | DataFlowPipeline, iterations: int) -> float:
    return _run(pipe, range(iterations))


def _mark(ratio: float, bound: float | None) -> str:
    """The bound and whether it holds."""
    return "" if bound is None else f"  {'holds' if ratio <= bound else 'MISSES'} at most {bound:g}x"


if __name__ == "__main__":
    main()
