"""The ideal period: the work on the busiest stream, or the longest cycle of dependencies if the cycle takes longer.

A cycle is a lower bound of the period, independent of the number of streams and of iterations in flight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction

from pipelines.schedule.plan.checked_plan import CheckedPlan
from pipelines.schedule.simulation.simulator import stream_labels

Edge = tuple[str, str, int]
"""(dependency, task, 1 if the dependency is on the previous iteration, else 0)."""


def ideal_period(plan: CheckedPlan, durations_ns: Mapping[str, int]) -> tuple[Fraction, str]:
    """Return the ideal period, ns, and the stream or cycle that determines it, such as `cycle Forward -> Backward`."""
    loads: Counter[str] = Counter()
    for task, stream in stream_labels(plan).items():
        loads[stream] += durations_ns[task]
    busiest = max(loads, key=lambda stream: loads[stream])
    cycle_ns, tasks = longest_cycle(plan, durations_ns)
    return (cycle_ns, f"cycle {tasks}") if cycle_ns > loads[busiest] else (Fraction(loads[busiest]), busiest)


def longest_cycle(plan: CheckedPlan, durations_ns: Mapping[str, int]) -> tuple[Fraction, str]:
    """Return the largest duration of a cycle of dependencies per iteration that it spans, ns, and the cycle's tasks.

    The tasks are text, for example `EmbLookup -> Forward -> Backward`, where EmbLookup depends on the previous
    iteration's Backward. Return (0, "") if no cycle takes time.

    Each round finds a cycle that is longer, per iteration, than the longest so far. The search ends, because the number
    of cycles is finite.
    """
    edges = [(dep, task, 0) for task, deps in plan.intra.items() for dep in deps]
    edges += [(dep, task, 1) for task, deps in plan.inter.items() for dep in deps]
    longest, tasks = Fraction(0), ""
    while cycle := _longer(plan.names, edges, durations_ns, longest):
        longest = Fraction(sum(durations_ns[task] for _, task, _ in cycle), sum(spanned for _, _, spanned in cycle))
        first = min((i for i, edge in enumerate(cycle) if edge[2]), key=lambda i: plan.names.index(cycle[i][1]))
        tasks = " -> ".join(task for _, task, _ in (*cycle[first:], *cycle[:first]))
    return longest, tasks


def _longer(
    names: Sequence[str], edges: Sequence[Edge], durations_ns: Mapping[str, int], per_iteration: Fraction
) -> list[Edge]:
    """Return the edges of a cycle that takes more than `per_iteration` ns per iteration, or [] if there is none.

    The Bellman-Ford algorithm searches for a positive cycle. An edge's weight is its task's duration minus
    `per_iteration` for each iteration that it spans, multiplied by the denominator so that all weights are integers.
    """
    weights = [durations_ns[e[1]] * per_iteration.denominator - e[2] * per_iteration.numerator for e in edges]
    distance = dict.fromkeys(names, 0)
    entered: dict[str, Edge] = {}
    changed = ""
    for _ in names:
        changed = ""
        for edge, weight in zip(edges, weights, strict=True):
            dep, task, _ = edge
            if distance[dep] + weight > distance[task]:
                distance[task] = distance[dep] + weight
                entered[task] = edge
                changed = task
        if not changed:
            return []
    for _ in names:  # after this many steps back, `changed` is on the cycle
        changed = entered[changed][0]
    cycle = [entered[changed]]
    while cycle[-1][0] != changed:
        cycle.append(entered[cycle[-1][0]])
    return cycle[::-1]
