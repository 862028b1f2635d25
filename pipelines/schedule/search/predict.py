"""Prediction of a plan's period, bubbles and efficiency from a simulation, before the plan runs."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from pipelines.schedule.errors import PlanWarning
from pipelines.schedule.pictures.timeline import Timeline
from pipelines.schedule.plan.checked_plan import CheckedPlan
from pipelines.schedule.plan.plan import PipelinePlan
from pipelines.schedule.plan.validate import validate_plan
from pipelines.schedule.search.cycles import ideal_period
from pipelines.schedule.search.host_load import host_bound, host_load
from pipelines.schedule.simulation.durations import Duration
from pipelines.schedule.simulation.simulated import simulate, submission_times

_LONGEST_REPEAT = 24
_ITERATIONS = 200


@dataclass(frozen=True)
class Prediction:
    """Steady state of a plan. Times are ns per iteration."""

    engine: str
    period_ns: float
    """T_actual: time from the end of one iteration to the end of the next."""
    ideal_ns: float
    """T_ideal = max(T_load, T_comp, T_save): the work on the plan's busiest stream, or the longest cycle of
    dependencies if the cycle takes longer. It is a lower bound of the period.
    """
    bottleneck: str
    """The busiest stream or the cycle that determines the ideal, such as `cycle Forward -> Backward`.

    It is `host (GROUP)`, with the thread group, if the host needs longer than the ideal to submit an iteration.
    """
    busy_ns: dict[str, float]
    """Work of each stream (a serial run has one stream)."""
    bubbles: dict[str, dict[str, float]]
    """Idle time of each stream, by kind of stall (`timeline.KINDS`)."""
    fill_ns: int
    """End of the first iteration, ns since the start."""
    host_ns: float = 0.0
    """Time in which the busiest thread submits its tasks (`submit_ns`). It is a lower bound of the period, too."""

    @property
    def efficiency(self) -> float:
        """Return T_ideal / T_actual, or 1 if the period is 0 ns."""
        return self.ideal_ns / self.period_ns if self.period_ns else 1.0

    def bubble_ns(self, stream: str) -> float:
        """Return the idle time of a stream, ns per iteration."""
        return sum(self.bubbles[stream].values())

    def __str__(self) -> str:
        is_host = self.bottleneck.startswith("host (")
        bottleneck = f", {self.bottleneck} {self.host_ns / 1e3:.3f} us" if is_host else f" ({self.bottleneck})"
        lines = [
            f"{self.engine}: period {self.period_ns / 1e3:.3f} us, ideal {self.ideal_ns / 1e3:.3f} us{bottleneck}, "
            f"efficiency {self.efficiency:.1%}"
        ]
        for stream, busy in self.busy_ns.items():
            kinds = ", ".join(f"{kind} {ns / 1e3:.3f}" for kind, ns in self.bubbles[stream].items())
            lines.append(f"  {stream}: busy {busy / 1e3:.3f} us, idle {kinds or '0'}")
        return "\n".join(lines)


def predict(
    plan: PipelinePlan | CheckedPlan,
    durations: Mapping[Any, Duration],
    *,
    iterations: int = _ITERATIONS,
    **simulation: Any,
) -> Prediction:
    """Simulate the plan and return its steady state. `simulation`: engine, max_depth, order … as for `simulate`.

    With fixed durations, the period is exact if the run settles into a cycle of at most 24 iterations. Otherwise, such
    as with distributions, the period, busy times and bubbles are means over the middle of the run. Raise ValueError if
    there are fewer than 8 iterations, which have no middle, and the exceptions of `simulate`. Warn with PlanWarning if
    the host is the bottleneck.
    """
    if iterations < 8:
        raise ValueError(f"iterations={iterations}: a steady state needs at least 8")
    timeline = simulate(plan, durations, iterations=iterations, **simulation)
    checked = plan if isinstance(plan, CheckedPlan) else validate_plan(plan, clocked=False)
    submit_ns = submission_times(checked, simulation.get("submit_ns", 0))
    prediction = prediction_of(timeline, checked, submit_ns)
    if prediction.host_ns > prediction.ideal_ns:
        device = prediction_of(timeline, checked)
        warnings.warn(host_bound(prediction.host_ns, device.ideal_ns, device.bottleneck), PlanWarning, stacklevel=2)
    return prediction


def prediction_of(
    timeline: Timeline, plan: CheckedPlan | None = None, submit_ns: Mapping[str, int] | None = None
) -> Prediction:
    """Return the steady state of an existing timeline, simulated or recorded, of at least 8 iterations.

    The streams and dependencies of `plan` determine the ideal. If `plan` is None, the streams of the timeline determine
    it. A serial run has a single stream, so it would be its own ideal. `submit_ns`: task → host time of its submission.
    Raise ValueError if there are fewer than 8 iterations.
    """
    ends = timeline.completions()
    if len(ends) < 8:
        raise ValueError(f"{len(ends)} iterations: a steady state needs at least 8")
    are_fixed = _always_the_same(timeline)
    first, past = steady(ends, repeats=are_fixed)
    span = past - first
    busy: dict[str, int] = dict.fromkeys(timeline.streams, 0)
    bubbles: dict[str, Counter[str]] = {stream: Counter() for stream in busy}
    work_ns: Counter[str] = Counter()
    for work in timeline.spans:
        if first < work.iteration <= past:
            busy[work.stream] += work.duration_ns
            work_ns[work.task] += work.duration_ns
            for stall in work.stalls:
                bubbles[work.stream][stall.kind] += stall.ns
    if plan:
        ideal_ns, bottleneck = ideal_period(plan, work_ns)
    else:
        bottleneck = max(busy, key=lambda stream: busy[stream])
        ideal_ns = busy[bottleneck]
    host_ns, group = host_load(plan, submit_ns, timeline.engine) if plan and submit_ns else (0, "")
    if host_ns > ideal_ns / span:
        bottleneck = f"host ({group})"
    period_ns = (ends[past] - ends[first]) / span
    if are_fixed:  # without a repeat, the middle may include the start of the run, which is faster than a steady state
        period_ns = max(period_ns, float(ideal_ns / span))
    return Prediction(
        engine=timeline.engine,
        period_ns=period_ns,
        ideal_ns=float(ideal_ns / span),
        bottleneck=bottleneck,
        busy_ns={stream: ns / span for stream, ns in busy.items()},
        bubbles={s: {kind: ns / span for kind, ns in kinds.items()} for s, kinds in bubbles.items()},
        fill_ns=ends[0],
        host_ns=host_ns,
    )


def _always_the_same(timeline: Timeline) -> bool:
    """Return whether every task takes the same time in every iteration.

    Otherwise, a repeat of periods may be a coincidence.
    """
    first: dict[str, int] = {}
    return all(first.setdefault(span.task, span.duration_ns) == span.duration_ns for span in timeline.spans)


def steady(ends: Sequence[int], *, repeats: bool = True) -> tuple[int, int]:
    """Return the iterations (first, past) between whose ends to measure.

    With `repeats`, they span the last complete repeat if there is one, otherwise the middle of the run. The last
    quarter is excluded, because the streams have less work when no new iterations start.

    A short repeat inside a longer cycle is not accepted, because iterations that end in bursts have several equal steps
    in a row. So a repeat must continue for as many steps as the longest cycle has, in addition to its own length, or
    for two thirds of a short run.
    """
    past = len(ends) * 3 // 4
    steps = [b - a for a, b in pairwise(ends[: past + 1])]
    for length in range(1, min(_LONGEST_REPEAT, len(steps) // 3) + 1) if repeats else ():
        tail = steps[-max(3 * length, min(_LONGEST_REPEAT + length, len(steps) * 2 // 3)) :]
        if tail[length:] == tail[:-length]:
            return past - length, past
    return past // 3, past
