"""Comparison of engines on one plan: periods measured in turn, and a verdict on each engine.

The engines run in one process, for several rounds, from one seed. The timed runs have neither a profiler nor an event
per task. Traces and timings come from separate runs (measure.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from pipelines.schedule.measurement.measure import engine_of, nominal_durations, probed, set_up
from pipelines.schedule.measurement.settings import Measured, Settings
from pipelines.schedule.measurement.task_times import Limit, limit_of
from pipelines.schedule.search.host_load import ms

AT_LIMIT = 1.05
"""Periods that differ by at most this factor count as equal when they are compared with the ideal."""
_SHORT = 8
"""Iterations of the short run. Its time is subtracted from the long run's, because both fill and drain the pipeline."""


def periods_in_turn(run: Settings, engines: Sequence[str], rounds: int) -> dict[str, list[int]]:
    """Return the period of each engine in each round, ns per iteration.

    A period is measured over `run.iterations` iterations, as a long run minus a short run. Each round begins with
    another engine, so that a drift of the machine's speed does not favor an engine. Raise RuntimeError if the long run
    is not longer, because then the machine's noise exceeds the period. Engine exceptions pass through.
    """
    seconds = _simulated(run) if run.device == "simulated" else _on_device(run, engines)
    periods: dict[str, list[int]] = {engine: [] for engine in engines}
    for turn in range(rounds):
        first = turn % len(engines)
        for engine in (*engines[first:], *engines[:first]):
            short = seconds(engine, _SHORT, turn)
            long = seconds(engine, _SHORT + run.iterations, turn)
            if long <= short:
                raise RuntimeError(
                    f"{engine}: {_SHORT + run.iterations} iterations took no longer than {_SHORT}; use more --iterations"
                )
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

    probed(run, device, workload, tasks)
    for engine in engines:
        seconds(engine, max(1, run.warmup), 0)
    return seconds


@dataclass(frozen=True)
class Comparison:
    """A comparison's result: each engine's run, and its periods in ns, one per round of `iterations` iterations."""

    comparison_id: str
    run_ids: Mapping[str, str]
    periods_ns: Mapping[str, Sequence[int]]
    iterations: int

    def tables(self, run: Settings, measured: Measured) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of schedule_rounds and schedule_verdicts for the engine of `run`.

        `measured` is a separate run of this engine.
        """
        periods_ns = self.periods_ns[run.engine]
        keys = {"run_id": self.run_ids[run.engine], "comparison_id": self.comparison_id}
        rounds = [
            {**keys, "round": turn, "iterations": self.iterations, "period_ns": period_ns}
            for turn, period_ns in enumerate(periods_ns)
        ]
        if run.engine == "serial":
            return {"schedule_rounds": rounds, "schedule_verdicts": []}
        result = verdict(self.periods_ns["serial"], periods_ns, limit_of(run, measured))
        row = {
            **keys,
            "serial_run_id": self.run_ids["serial"],
            "speedup": result.speedup,
            "speedup_low": result.low,
            "speedup_high": result.high,
            "verdict": result.text,
        }
        return {"schedule_rounds": rounds, "schedule_verdicts": [row]}


@dataclass(frozen=True)
class Verdict:
    """The result of a pipelined engine. Speed-ups are serial periods divided by the engine's, round by round."""

    speedup: float
    """The median."""
    low: float
    high: float
    text: str


def verdict(serial_ns: Sequence[int], period_ns: Sequence[int], limit: Limit) -> Verdict:
    """Return the verdict from the periods of each round and the engine's limit."""
    speedups = [serial / period for serial, period in zip(serial_ns, period_ns, strict=True)]
    speedup, low, high = median(speedups), min(speedups), max(speedups)
    if low <= 1 <= high:
        text = f"no difference measured ({low:.2f} to {high:.2f} times as fast as serial)"
    elif speedup > 1:
        text = f"{speedup:.2f} times as fast as serial"
    else:
        text = f"slower than serial ({speedup:.2f} times as fast)"
    return Verdict(speedup, low, high, text + _reason(median(serial_ns), median(period_ns), limit))


def _reason(serial_ns: float, period_ns: float, limit: Limit) -> str:
    bound_by = limit.bound_by if limit.bound_by.startswith("cycle ") else f"stream {limit.bound_by}"
    is_at_limit = period_ns <= AT_LIMIT * limit.ideal_ns
    if limit.is_host_bound and not is_at_limit:
        return (
            f": the host needs {ms(limit.host_ns)} per iteration to submit, and the device works {ms(limit.work_ns)} "
            f"of {ms(period_ns)}; use larger batches or no pipeline"
        )
    if limit.ideal_ns > AT_LIMIT * serial_ns:
        return (
            f": the tasks slow one another down; {bound_by} alone takes {ms(limit.ideal_ns)}, a serial iteration "
            f"{ms(serial_ns)}"
        )
    if is_at_limit:
        return f", which is the limit ({bound_by})"
    return f"; the limit is {serial_ns / limit.ideal_ns:.2f} ({bound_by})"
