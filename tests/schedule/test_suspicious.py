"""Order that only a clock guarantees: dependencies that data flow needs, by declared shared state.

SWP-25, SWP-54, SWP-70.
"""

from __future__ import annotations

import warnings
from dataclasses import replace
from itertools import product

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.schedule import PipelinePlan, PipelineTask, PlanWarning, TaskSchedule, simulate, validate_plan
from tests.effort import examples
from tests.schedule.plans import FUSED_INTER, FUSED_INTRA, FUSED_STAGES
from tests.schedule.simulation_help import FUSED_NS

USES = {  # task -> (reads, writes) of state that iterations share
    "EmbLookup": (("table",), ()),
    "ZeroGrad": ((), ("gradients",)),
    "Forward": (("weights",), ()),
    "Backward": (("weights",), ("gradients", "table")),
    "OptimizerStep": (("gradients",), ("weights",)),
}
MISSING = ("ZeroGrad", "OptimizerStep")


def fused(inter: list[tuple[str, str]], uses: dict = USES) -> PipelinePlan:
    """Return FusedSparseDist, whose tasks declare their shared state."""
    streams = {"H2D": "memcpy", "InputDistStart": "data_dist", "InputDistWait": "data_dist", "EmbLookup": "emb_lookup"}
    schedule = {}
    for name, stage in FUSED_STAGES.items():
        reads, writes = uses.get(name, ((), ()))
        task = PipelineTask(name, lambda ctx: None, shared_reads=reads, shared_writes=writes)
        schedule[task] = TaskSchedule(stage, streams.get(name))
    return PipelinePlan(schedule, list(FUSED_INTRA), list(inter))


def test_swp_70_the_documents_plan_lacks_one_dependency_for_data_flow() -> None:
    (warning,) = validate_plan(fused(FUSED_INTER), clocked=False).warnings
    assert f"add {MISSING!r} to inter_iter_deps" in warning
    assert "'OptimizerStep' and 'ZeroGrad' share 'gradients'" in warning
    assert validate_plan(fused([*FUSED_INTER, MISSING]), clocked=False).warnings == []
    without_the_table = validate_plan(fused([MISSING]), clocked=False).warnings
    assert len(without_the_table) == 1 and "('EmbLookup', 'Backward')" in without_the_table[0]


def test_swp_25_where_the_order_is_there_nothing_is_said() -> None:
    assert validate_plan(fused(FUSED_INTER)).warnings == []  # clocked
    assert validate_plan(fused(FUSED_INTER), clocked=False, max_depth=1).warnings == []
    assert validate_plan(fused(FUSED_INTER, {}), clocked=False).warnings == []  # no state is declared
    stale = {**USES, "Forward": ((), ()), "Backward": ((), ("table",)), "ZeroGrad": ((), ())}
    assert validate_plan(fused(FUSED_INTER, stale), clocked=False).warnings == []  # old weights do no harm


def test_swp_70_the_dependency_that_is_named_is_the_one_whose_lack_trains_wrongly() -> None:
    """The simulated engine's default stream shows which tasks run between ZeroGrad and its step.

    Its times are the engine's.
    """

    def order(inter: list[tuple[str, str]]) -> list[str]:
        flow = {"engine": "DataFlowPipeline", "max_depth": 3, "order": "dependencies"}
        timeline = simulate(fused(inter), FUSED_NS, iterations=3, **flow)
        spans = sorted((s.start_ns, i, f"{s.task}{s.iteration}") for i, s in enumerate(timeline.spans))
        return [name for *_, name in spans if name[:-1] in MISSING]

    assert order(FUSED_INTER)[:2] == ["ZeroGrad0", "ZeroGrad1"]
    assert order([*FUSED_INTER, MISSING]) == [f"{name}{i}" for i in range(3) for name in MISSING]


def test_swp_54_the_engine_warns_where_it_keeps_no_order_on_streams() -> None:
    pytest.importorskip("torch", reason="the engines need torch")
    from pipelines.schedule import DataFlowPipeline, SWPipeline

    with pytest.warns(PlanWarning, match=r"nothing keeps 'ZeroGrad' behind 'OptimizerStep'"):
        DataFlowPipeline(fused(FUSED_INTER), 2, "cpu", order="dependencies")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SWPipeline(fused(FUSED_INTER), "cpu")
        DataFlowPipeline(fused(FUSED_INTER), 5, "cpu")
        DataFlowPipeline(fused(FUSED_INTER), 1, "cpu", order="dependencies")
        DataFlowPipeline(fused([*FUSED_INTER, MISSING]), 2, "cpu", order="dependencies")


def test_swp_25_no_engine_orders_two_iterations_across_streams() -> None:
    """Even with the clock, EmbLookup(i+1) and Backward(i) run concurrently on two streams.

    Rows are read before their update.
    """
    pytest.importorskip("torch", reason="the engines need torch")
    from pipelines.schedule import DataFlowPipeline, SWPipeline

    for engine in (lambda plan: SWPipeline(plan, "cpu"), lambda plan: DataFlowPipeline(plan, 5, "cpu")):
        with pytest.warns(
            PlanWarning, match=r"share 'table', and nothing keeps 'EmbLookup' behind 'Backward'"
        ) as caught:
            engine(fused([]))
        assert len(caught) == 1


def test_swp_25_two_threads_of_one_stream_keep_its_order() -> None:
    make, use = (PipelineTask(n, print, writes=("x",)) for n in ("make", "use"))
    plan = PipelinePlan({make: TaskSchedule(thread_group="a"), use: TaskSchedule(1, thread_group="b")}, [])
    assert validate_plan(plan).warnings == []
    assert validate_plan(plan, clocked=False, order="stages").warnings == []
    (warning,) = validate_plan(plan, clocked=False).warnings
    assert "are submitted by different threads, both use ctx.x" in warning
    silent = {PipelineTask(n, print): TaskSchedule(thread_group=n) for n in ("make", "use")}
    (warning,) = validate_plan(PipelinePlan(silent, [])).warnings
    assert "their order is decided by their names" in warning
    forward = PipelineTask("forward", print, shared_reads=("weights",))
    update = PipelineTask("update", print, shared_writes=("weights",))
    step = PipelinePlan({forward: TaskSchedule(), update: TaskSchedule(thread_group="a")}, [(update, forward)])
    assert validate_plan(step).warnings == []


def test_swp_25_without_a_clock_one_stream_orders_nothing_within_an_iteration() -> None:
    make, use = (PipelineTask(n, print, writes=("x",)) for n in ("make", "use"))
    plan = PipelinePlan({make: TaskSchedule(), use: TaskSchedule(1)}, [])
    assert validate_plan(plan).warnings == []  # with the clock, use is a period later
    (warning,) = validate_plan(plan, clocked=False).warnings
    assert "have no clock that orders them, both use ctx.x" in warning


def test_swp_25_shared_state_of_two_streams_is_a_race_by_the_clock_too() -> None:
    tasks = [PipelineTask("read", print, shared_reads=("t",)), PipelineTask("write", print, shared_writes=("t",))]
    plan = PipelinePlan({tasks[0]: TaskSchedule(stream="s"), tasks[1]: TaskSchedule()}, [])
    (warning,) = validate_plan(plan).warnings
    assert "are on different streams, both use 't'" in warning


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data(), n=st.integers(2, 6))
def test_swp_25_warned_about_is_what_has_no_path_in_the_unrolled_graph(data: st.DataObject, n: int) -> None:
    """There is no warning exactly if a path orders every conflict of two iterations.

    The named dependencies add all paths.
    """
    names = [f"t{i}" for i in range(n)]
    pairs = [(b, a) for i, a in enumerate(names) for b in names[i + 1 :]]
    intra = data.draw(st.lists(st.sampled_from(pairs), unique=True, max_size=8))
    inter = data.draw(st.lists(st.sampled_from(list(product(names, names))), unique=True, max_size=3))
    state = st.lists(st.sampled_from(["s", "t"]), unique=True, max_size=2).map(tuple)
    tasks = {PipelineTask(x, print, shared_reads=data.draw(state), shared_writes=data.draw(state)) for x in names}
    plan = PipelinePlan({task: TaskSchedule() for task in tasks}, intra, inter)
    messages = [w for w in validate_plan(plan, clocked=False).warnings if "nothing keeps" in w]
    assert bool(messages) == bool(unordered(plan))
    suggested = [(w.split("add ('")[1].split("'")[0], w.split(", '")[-1].split("'")[0]) for w in messages]
    complete = replace(plan, inter_iter_deps=[*inter, *suggested])
    assert unordered(complete) == []
    for pair in suggested:  # each suggestion is needed
        assert unordered(replace(plan, inter_iter_deps=[*inter, *(s for s in suggested if s != pair)]))


def unordered(plan: PipelinePlan, iterations: int = 4) -> list[tuple]:
    """Return the conflicting tasks of two iterations that no path connects, by brute force.

    Tasks that are unordered within one iteration are excluded, because another warning covers them.
    """
    graph = nx.DiGraph()
    tasks = {task.name: task for task in plan.schedule if isinstance(task, PipelineTask)}
    for i in range(iterations):
        graph.add_edges_from(((dep, i), (task, i)) for task, dep in plan.intra_iter_deps)
        if i:
            graph.add_edges_from(((dep, i - 1), (task, i)) for task, dep in plan.inter_iter_deps)
            graph.add_edges_from(((name, i - 1), (name, i)) for name in tasks)
    graph.add_nodes_from(product(tasks, range(iterations)))
    conflicts = []
    for x, y in product(tasks.values(), tasks.values()):
        if not (nx.has_path(graph, (x.name, 0), (y.name, 0)) or nx.has_path(graph, (y.name, 0), (x.name, 0))):
            continue
        writes = {*x.shared_writes} & {*y.shared_reads, *y.shared_writes} | {*y.shared_writes} & {*x.shared_reads}
        for i, j in product(range(iterations), range(iterations)):
            if writes and i < j and not nx.has_path(graph, (x.name, i), (y.name, j)):
                conflicts.append((x.name, i, y.name, j))
    return conflicts
