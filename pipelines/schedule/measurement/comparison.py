"""Comparison of engines on one plan: periods measured in turn, and a verdict on each engine.

The engines run in one process, for several rounds, from one seed. While the clock runs there is neither a profiler nor an
event per task: traces and timings come from runs of their own (measure.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from pipelines.schedule.measurement.measure import Measured, Settings, engine_of, nominal_durations, set_up
from pipelines.schedule.search.predict import Prediction, prediction_of

AT_LIMIT = 1.05
"""A period of at most so many times the ideal has reached it."""
_SHORT = 8
"""Iterations of the short run, whose time is subtracted from the long run's: both fill and drain the pipeline once."""


def periods_in_turn(run: Settings, engines: Sequence[str], rounds: int) -> dict[str, list[int]]:
    """Return engine -> its period in each round, ns per iteration.

    A period is the time of `run.iterations` iterations: a long run less a short one. Each round begins with another
    engine, so that a drift of the machine's speed does not favor one of them. Engine exceptions pass through.
    """
    seconds = _simulated(run) if run.device == "simulated" else _on_device(run, engines)
    periods: dict[str, list[int]] = {engine: [] for engine in engines}
    for turn in range(rounds):
        first = turn % len(engines)
        for engine in (*engines[first:], *engines[:first]):
            short = seconds(engine, _SHORT, turn)
            long = seconds(engine, _SHORT + run.iterations, turn)
            periods[engine].append(round((long - short) * 1e9 / run.iterations))
    return periods


def _simulated(run: Settings) -> Any:
    durations = nominal_durations(run)

    def seconds(engine: str, iterations: int, turn: int) -> float:
        timeline = replace(run, engine=engine).simulated(durations, iterations=iterations, seed=run.seed + turn)
        return timeline.end_ns / 1e9

    return seconds


def _on_device(run: Settings, engines: Sequence[str]) -> Any:
    device, workload, tasks = set_up(run, n_delays=max(run.warmup, _SHORT + run.iterations))
    pipelines = {engine: engine_of(replace(run, engine=engine), tasks, device) for engine in engines}

    def seconds(engine: str, iterations: int, turn: int) -> float:
        pipeline, batches = pipelines[engine], workload.batches(iterations)
        elapsed = pipeline.run_serial(batches) if engine == "serial" else pipeline.run(batches)
        pipeline.drain()
        return elapsed

    for engine in engines:
        seconds(engine, max(1, run.warmup), 0)
    return seconds


@dataclass(frozen=True)
class Comparison:
    """A comparison's result: the run of each engine, and its periods, ns, one per round of `iterations` iterations."""

    comparison_id: str
    run_ids: Mapping[str, str]
    periods_ns: Mapping[str, Sequence[int]]
    iterations: int

    def run_id(self, engine: str) -> str:
        """Return the id of the engine's run."""
        return self.run_ids[engine]

    def tables(self, run: Settings, measured: Measured) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of schedule_rounds and schedule_verdicts for the engine of `run`, which was measured by itself."""
        periods_ns = self.periods_ns[run.engine]
        keys = {"run_id": self.run_ids[run.engine], "comparison_id": self.comparison_id}
        rounds = [
            {**keys, "round": turn, "iterations": self.iterations, "period_ns": period_ns}
            for turn, period_ns in enumerate(periods_ns)
        ]
        if run.engine == "serial":
            return {"schedule_rounds": rounds, "schedule_verdicts": []}
        ideal = prediction_of(measured.timeline, run.plan.checked)
        result = verdict(self.periods_ns["serial"], periods_ns, ideal, _submitting(run, measured))
        row = {
            **keys,
            "serial_run_id": self.run_ids["serial"],
            "speedup": result.speedup,
            "speedup_low": result.low,
            "speedup_high": result.high,
            "verdict": result.text,
        }
        return {"schedule_rounds": rounds, "schedule_verdicts": [row]}


def _submitting(run: Settings, measured: Measured) -> dict[str, int] | None:
    """Return thread group -> median time in which its thread submits an iteration, ns. None if the times are not a GPU's."""
    if not measured.by_events:
        return None
    groups = {task.name: task.thread_group for task in run.plan.tasks}
    times: dict[str, list[int]] = {name: [] for name in groups}
    for launch in measured.launches or ():
        times[launch.task].append(launch.submitted_ns - launch.submit_ns)
    submitting_ns: dict[str, int] = dict.fromkeys(groups.values(), 0)
    for name, group in groups.items():
        submitting_ns[group] += round(median(times[name]))
    return submitting_ns


@dataclass(frozen=True)
class Verdict:
    """What a comparison says of a pipelined engine. Speed-ups are serial periods divided by the engine's, round by round."""

    speedup: float
    """The median."""
    low: float
    high: float
    text: str


def verdict(
    serial_ns: Sequence[int], period_ns: Sequence[int], ideal: Prediction, host_ns: Mapping[str, int] | None
) -> Verdict:
    """Return the verdict from the periods of each round.

    `ideal`: the engine's own limit. `host_ns`: thread group -> time that its thread needs to submit an iteration, or None
    if the host's time is the tasks' time (a CPU).
    """
    speedups = [serial / max(1, period) for serial, period in zip(serial_ns, period_ns, strict=True)]
    speedup, low, high = median(speedups), min(speedups), max(speedups)
    if low <= 1 <= high:
        text = f"no difference measured ({low:.2f} to {high:.2f} times as fast as serial)"
    elif speedup > 1:
        text = f"{speedup:.2f} times as fast as serial"
    else:
        text = f"slower than serial ({speedup:.2f} times as fast)"
    return Verdict(speedup, low, high, text + _limit(median(serial_ns), median(period_ns), ideal, host_ns))


def _limit(serial_ns: float, period_ns: float, ideal: Prediction, host_ns: Mapping[str, int] | None) -> str:
    bound_by = ideal.bottleneck if ideal.bottleneck.startswith("cycle ") else f"stream {ideal.bottleneck}"
    if period_ns <= AT_LIMIT * ideal.ideal_ns:
        return f", which is the limit ({bound_by})"
    submitting_ns = max((host_ns or {"": 0}).values())
    if submitting_ns > ideal.ideal_ns:
        return (
            f": the host needs {_ms(submitting_ns)} per iteration to submit, and the device works "
            f"{_ms(sum(ideal.busy_ns.values()))} of {_ms(period_ns)}; use larger batches or no pipeline"
        )
    return f"; the limit is {serial_ns / max(1.0, ideal.ideal_ns):.2f} ({bound_by})"


def _ms(ns: float) -> str:
    return f"{ns / 1e6:.3g} ms"
