"""The host's part in a plan's speed: the time in which its busiest thread submits the tasks of an iteration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pipelines.schedule.plan.checked_plan import CheckedPlan


def host_load(plan: CheckedPlan, submit_ns: Mapping[str, int], engine: str = "SWPipeline") -> tuple[int, str]:
    """Return the time, ns per iteration, and the thread group. A serial run has one thread. Tasks without a time take 0 ns."""
    loads: Counter[str] = Counter()
    for name, settings in plan.schedule.items():
        loads["serial" if engine == "serial" else settings.thread_group] += submit_ns.get(name, 0)
    busiest = max(loads, key=lambda group: loads[group])
    return loads[busiest], busiest


def host_bound(host_ns: float, ideal_ns: float, bound_by: str) -> str:
    """Return what to say of a plan whose host needs longer than its device."""
    return (
        f"the host needs {ms(host_ns)} per iteration to submit, and the device could do one in {ms(ideal_ns)} "
        f"({bound_by}): use larger batches or no pipeline"
    )


def ms(ns: float) -> str:
    """Return the time as people read it."""
    return f"{ns / 1e6:.3g} ms"
