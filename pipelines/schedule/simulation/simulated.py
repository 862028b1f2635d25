"""Simulation of a plan on a virtual clock: thousands of iterations in seconds, reproducible, with a complete timeline.

    from pipelines.schedule.simulation.simulated import simulate
    timeline = simulate(plan, {"copy": 1_000_000, "forward": Jitter(5_000_000, 300_000)}, iterations=1000)

`simulate` follows the engines' rules (simulator.py, simulated_engines.py). It needs neither torch nor functions in the
plan, orders all threads by one clock, and can model a progress() that waits for the device. `SimulatedDevice` runs an
engine's code, with its threads and the tasks' functions, on virtual streams (simulated_device.py). It behaves like CUDA
without a GPU, and shows that the engines and `simulate` agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pipelines.schedule.engine.lanes import ORDERS as LANE_ORDERS
from pipelines.schedule.engine.order import enqueue_order, serial_order
from pipelines.schedule.pictures.timeline import Span, Stall, Timeline
from pipelines.schedule.plan.checked_plan import CheckedPlan
from pipelines.schedule.plan.plan import PipelinePlan, by_known_name
from pipelines.schedule.plan.validate import validate_plan
from pipelines.schedule.simulation.durations import Duration, Jitter, Spikes, drawn
from pipelines.schedule.simulation.simulated_device import SimulatedDevice
from pipelines.schedule.simulation.simulated_engines import ClockedSimulation, DataFlowSimulation, SerialSimulation
from pipelines.schedule.simulation.simulator import Simulation, Work
from pipelines.schedule.simulation.virtual_host import DeadlockError

__all__ = ["ENGINES", "DeadlockError", "Jitter", "SimulatedDevice", "Span", "Spikes", "Stall", "Timeline", "simulate"]

ENGINES = ("SWPipeline", "DataFlowPipeline", "serial")
RETIRE = ("finished", "submitted")


def simulate(
    plan: PipelinePlan | CheckedPlan,
    durations: Mapping[Any, Duration],
    *,
    iterations: int = 100,
    engine: str = "SWPipeline",
    max_depth: int | None = None,
    order: str | Sequence[str] | None = None,
    submit_ns: int | Mapping[Any, int] = 0,
    retire: str = "finished",
    seed: int = 0,
) -> Timeline:
    """Return the timeline of `iterations` iterations. All times are in ns.

    `durations`: ns, or a distribution that is drawn with `seed`, by task or name. `submit_ns`: host time of one
    submission, for all tasks or by task. `max_depth`: iterations in flight, for DataFlowPipeline only (default: the
    plan's depth). `order`: the name of an order of the engine (None for its default), or for SWPipeline the task names
    in submission order, unchecked.

    `retire`: when progress() returns an iteration. "finished": when it is finished (as on `cpu`, in the document's
    drawings, and on CUDA if the training loop reads its loss every step). "submitted": when it is submitted (as on CUDA
    otherwise, where the host runs ahead, and the in-flight limit bounds submissions, not memory on the device).

    A PipelinePlan is validated for its engine. A CheckedPlan is used unchanged, so that a simulation can show that an
    illegal plan hangs. Raise PlanError if the plan is illegal, ValueError if an argument is invalid, and DeadlockError
    if the caller's order or an unchecked plan hangs.
    """
    _check_option("engine", engine, ENGINES)
    _check_option("retire", retire, RETIRE)
    if iterations < 0:
        raise ValueError(f"iterations={iterations}: give 0 or more")
    checked = _checked(plan, engine)
    work = Work(
        plan=checked,
        durations=drawn(checked.names, durations, iterations, seed),
        iterations=iterations,
        submit_ns=submission_times(checked, submit_ns),
        finished=retire == "finished",
    )
    return _simulation(work, engine, order, max_depth).run()


def _checked(plan: PipelinePlan | CheckedPlan, engine: str) -> CheckedPlan:
    return plan if isinstance(plan, CheckedPlan) else validate_plan(plan, clocked=engine == "SWPipeline")


def _simulation(work: Work, engine: str, order: str | Sequence[str] | None, max_depth: int | None) -> Simulation:
    if engine == "SWPipeline":
        order = "ready_first" if order is None else order
        names = enqueue_order(work.plan, order) if isinstance(order, str) else list(order)
        if sorted(names) != sorted(work.plan.names):
            raise ValueError(f"order={names}: name every task of the plan once")
        return ClockedSimulation(work, names)
    if engine == "serial":
        return SerialSimulation(work, serial_order(work.plan))
    depth = work.plan.depth if max_depth is None else max_depth
    if depth < 1:
        raise ValueError(f"max_depth={depth}: at least one iteration must be in flight")
    order = "stages" if order is None else order
    if order not in LANE_ORDERS:
        raise ValueError(f"order={order!r}: DataFlowPipeline has {', '.join(map(repr, LANE_ORDERS))}")
    return DataFlowSimulation(work, depth, order)


def submission_times(plan: CheckedPlan, submit_ns: int | Mapping[Any, int]) -> dict[str, int]:
    """Return the host time of one submission by task, ns. Tasks missing from a mapping take 0 ns."""
    if isinstance(submit_ns, Mapping):
        ns_by_task = by_known_name("submit_ns", submit_ns, plan.names)
        return {name: ns_by_task.get(name, 0) for name in plan.names}
    return dict.fromkeys(plan.names, submit_ns)


def _check_option(option: str, value: str, allowed: Sequence[str]) -> None:
    if value not in allowed:
        raise ValueError(f"{option}={value!r}: use one of {', '.join(map(repr, allowed))}")
