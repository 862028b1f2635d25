"""Measures what recording an event costs PyTorch's profiler on this machine: `python -m pipelines.record.profiler.cost`.

Small loops run with and without the profiler. `note_profiler_cost` writes the result into the traces of a profile.
`tracelake why` prefers a trace's own cost to `sql/rules/profiler/profiler_costs.csv`. Needs torch and the standard
library.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from collections.abc import Callable, Iterable
from statistics import median
from typing import Any

KEY = "tracelake_profiler_cost"
"""Key of the cost in a trace file."""
_LOOP = 300  # iterations of a loop: enough to time, few enough for the profiler's buffers
_OPERATORS, _INNER = 3, ("aten::transpose", "aten::as_strided")  # operators of Tensor.t(), and the nested ones


def profiler_cost(device: str | None = None, repeats: int = 9) -> dict[str, float]:
    """Return the cost of recording one event, ns: `operator_ns`, `call_ns` (with a GPU), `frame_ns`, `annotation_ns`.

    A further key, `cheap_operator_ns`, is the delay between the starts of nested operators while they are recorded. It
    serves to compare the speed of a trace's host with this host. `device`: cuda, cuda:N or cpu, by default cuda if
    available. The measurement takes about a second. No profiler may be running.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    on_gpu = device.startswith("cuda")
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if on_gpu else [])]
    wait = torch.cuda.synchronize if on_gpu else (lambda: None)
    small, on_device = torch.ones(2, 2), torch.ones(2, 2, device=device)

    def operators() -> None:
        for _ in range(_LOOP):
            small.t()

    def launches() -> None:
        for _ in range(_LOOP):
            on_device.add_(1)

    def frames() -> None:
        for _ in range(_LOOP):
            _nothing()

    def annotations() -> None:
        for _ in range(_LOOP):
            with record_function("tracelake"):
                pass

    def extra(loop: Callable[[], None], *, stacks: bool = False) -> tuple[float, Any]:
        """Return the time that recording adds to an iteration of a loop, ns, and the profile."""
        plain = _shortest(loop, wait, repeats)
        with profile(activities=activities, with_stack=stacks) as recorded:
            loop()
            slow = _shortest(loop, wait, repeats)
        return max(slow - plain, 0.0) / _LOOP, recorded

    nested, recorded = extra(operators)
    cost_ns = {"operator_ns": nested / _OPERATORS, "cheap_operator_ns": _delay(recorded.events())}
    if on_gpu:
        cost_ns["call_ns"] = max(extra(launches)[0] - cost_ns["operator_ns"], 0.0)
    cost_ns["frame_ns"] = extra(frames, stacks=True)[0]
    cost_ns["annotation_ns"] = extra(annotations)[0]
    return {name: round(ns, 1) for name, ns in cost_ns.items()}


def note_profiler_cost(profile: Any, cost: dict[str, float] | None = None) -> None:
    """Write the cost into the traces of a `torch.profiler.profile` that has not begun. Measure it if `cost` is None."""
    profile.preset_metadata_json(KEY, json.dumps(profiler_cost() if cost is None else cost))


def _nothing() -> None:
    pass


def _shortest(loop: Callable[[], None], wait: Callable[[], None], repeats: int) -> float:
    """Return the shortest duration of `repeats` runs of a loop, ns."""
    best = float("inf")
    for _ in range(repeats):
        wait()
        began = time.perf_counter_ns()
        loop()
        best = min(best, time.perf_counter_ns() - began)
    return best


def _delay(events: Iterable[Any]) -> float:
    """Return the median delay from an operator's start to its nested operator's start, ns, 0 without nested operators.

    It is the lowest median among the kinds of nested operators.
    """
    delays: dict[str, list[float]] = {name: [] for name in _INNER}
    for event in events:
        for inner in event.cpu_children[:1]:
            if inner.name in delays:
                delays[inner.name].append(1000 * (inner.time_range.start - event.time_range.start))
    return min((median(times) for times in delays.values() if times), default=0.0)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line: print the cost as JSON."""
    parser = argparse.ArgumentParser(
        "python -m pipelines.record.profiler.cost", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--device", help="cuda, cuda:N or cpu; default: cuda if available")
    print(json.dumps(profiler_cost(parser.parse_args(arguments).device)))


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # if the reader stops early (`| head -1`), exit as other tools do
    main()
