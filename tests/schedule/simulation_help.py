"""Plans of the document, random legal plans, and invariants of any timeline of a plan."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from hypothesis import strategies as st

from pipelines.schedule import CheckedPlan, PipelinePlan, TaskSchedule
from pipelines.schedule.simulation.simulated import Timeline

US = 1_000


def fused_sparse_dist() -> PipelinePlan:
    """Return the plan of SWP-69: 9 tasks, 3 stages, 4 streams."""
    return PipelinePlan(
        schedule={
            "H2D": TaskSchedule(0, "memcpy"),
            "InputDistStart": TaskSchedule(1, "data_dist", globally_ordered=True),
            "InputDistWait": TaskSchedule(1, "data_dist"),
            "EmbLookup": TaskSchedule(2, "emb_lookup"),
            **{name: TaskSchedule(2) for name in ("ZeroGrad", "WaitBatch", "Forward", "Backward", "OptimizerStep")},
        },
        intra_iter_deps=[
            ("InputDistStart", "H2D"),
            ("InputDistWait", "InputDistStart"),
            ("EmbLookup", "InputDistWait"),
            ("Forward", "EmbLookup"),
            ("WaitBatch", "ZeroGrad"),
            ("Forward", "WaitBatch"),
            ("Backward", "Forward"),
            ("OptimizerStep", "Backward"),
        ],
        inter_iter_deps=[("EmbLookup", "Backward")],
    )


FUSED_NS = {
    "H2D": 1000 * US,
    "InputDistStart": 500 * US,
    "InputDistWait": 500 * US,
    "EmbLookup": 800 * US,
    "ZeroGrad": 100 * US,
    "WaitBatch": 0,
    "Forward": 3000 * US,
    "Backward": 6000 * US,
    "OptimizerStep": 900 * US,
}


def chain(count: int) -> PipelinePlan:
    """Return a chain T0 → T1 → … of `count` stages, with one task and one stream each."""
    return PipelinePlan(
        {f"T{i}": TaskSchedule(i, f"S{i}") for i in range(count)}, [(f"T{i + 1}", f"T{i}") for i in range(count - 1)]
    )


@st.composite
def legal_plans(draw: st.DrawFn) -> PipelinePlan:
    """Draw a plan that obeys corollaries 1 and 3, with up to 6 tasks, 3 stages, 3 streams and 3 thread groups."""
    names = [f"t{i}" for i in draw(st.permutations(range(draw(st.integers(1, 6)))))]
    stages = sorted(draw(st.lists(st.integers(0, 2), min_size=len(names), max_size=len(names))))
    schedule = {
        name: TaskSchedule(
            stage,
            draw(st.sampled_from([None, "x", "y"])),
            draw(st.sampled_from(["default", "io", "net"])),
            draw(st.booleans()),
        )
        for name, stage in zip(names, stages, strict=True)
    }
    at = range(len(names))
    intra = [(names[i], names[j]) for i in at for j in range(i) if draw(st.integers(0, 2)) == 0]
    inter = [
        (names[i], names[j]) for i in at for j in at if stages[j] - stages[i] <= 1 and draw(st.integers(0, 4)) == 0
    ]
    return PipelinePlan(schedule, intra, inter, None)  # type: ignore[arg-type]


def check_timeline(plan: CheckedPlan, timeline: Timeline, durations: Mapping[str, int], iterations: int) -> None:
    """Assert that every task ran once per iteration, for its duration, as soon as its stream and dependencies allowed."""
    assert sorted((s.task, s.iteration) for s in timeline.spans) == sorted(
        (name, i) for name in plan.names for i in range(iterations)
    )
    done: dict[tuple[str, int], int] = {}
    free = dict.fromkeys(timeline.streams, 0)
    for span in timeline.spans:
        deps = [(dep, span.iteration) for dep in plan.intra[span.task]]
        deps += [(dep, span.iteration - 1) for dep in plan.inter[span.task] if span.iteration]
        # A KeyError means that the task was submitted before its dependency, which would make an engine hang.
        assert span.start_ns == max([free[span.stream], span.submit_ns, *(done[dep] for dep in deps)])
        assert span.duration_ns == durations[span.task]
        assert span.stall_ns == span.start_ns - free[span.stream]
        assert all(stall.ns > 0 for stall in span.stalls)
        done[span.task, span.iteration] = free[span.stream] = span.end_ns
    for name in plan.names:
        assert [s.iteration for s in timeline.spans if s.task == name] == list(range(iterations))


def check_limit(timeline: Timeline, limit: int) -> None:
    """Assert that no iteration begins before there is room for it, if progress() waits for the device."""
    assert all(a <= b for a, b in pairwise(timeline.retired_ns))
    for span in timeline.spans:
        if span.iteration >= limit:
            assert span.submit_ns >= timeline.retired_ns[span.iteration - limit]
    ends = timeline.completions()
    assert all(retired >= end for retired, end in zip(timeline.retired_ns, ends, strict=True))
