"""Plans that are refused before anything runs, and plans that cause warnings: SWP-17 to SWP-25, traps T4 and T6."""

from __future__ import annotations

import itertools
import pickle
from collections import OrderedDict
from typing import Any

import pytest

from pipelines.schedule import IterContext, PipelinePlan, PipelineTask, PlanError, TaskSchedule, validate_plan
from tests.schedule.plans import fused_sparse_dist, plan_of, sparse_dist


def nothing(ctx: IterContext) -> None:
    pass


def refused(plan: PipelinePlan, *words: str, clocked: bool = True) -> list[str]:
    with pytest.raises(PlanError) as caught:
        validate_plan(plan, clocked=clocked, needs_functions=True)
    assert isinstance(caught.value, ValueError)
    for word in words:
        assert word in str(caught.value), (word, str(caught.value))
    return caught.value.problems


def test_swp_17_corollary_1_names_tasks_stages_rule_and_remedy() -> None:
    plan = plan_of({"early": 0, "late": 1}, [("early", "late")])
    refused(plan, "corollary 1", "'early' (stage 0)", "'late' (stage 1)", "Move 'late' to stage 0", "inter_iter_deps")


@pytest.mark.parametrize(("dep_stage", "legal"), [(0, True), (1, True), (2, True), (3, False), (4, False)])
def test_swp_19_corollary_3_allows_k_up_to_1(dep_stage: int, legal: bool) -> None:
    plan = plan_of({"task": 1, "dep": dep_stage}, [], [("task", "dep")])
    if legal:
        assert validate_plan(plan).inter["task"] == ("dep",)
    else:
        refused(plan, "corollary 3", f"'dep' (stage {dep_stage})", f"= {dep_stage - 1} > 1", "Move 'dep' to stage 2")


def test_swp_20_and_21_the_single_and_crossed_thread_scenarios_are_legal() -> None:
    validate_plan(plan_of({"A": 0, "B": 1}, [], [("A", "B")]))
    validate_plan(plan_of({"A": 0, "D": 1, "C": 0, "B": 1}, [], [("A", "B"), ("C", "D")]))


def test_swp_22_scenario_3_is_refused() -> None:
    stages = {"fwd": 0, "bwd": 1, "opt": 2}
    problems = refused(plan_of(stages, [("bwd", "fwd"), ("opt", "bwd")], [("fwd", "opt")]), "corollary 3")
    assert len(problems) == 1


def test_swp_24_with_the_inter_dependency_only_a_b_and_c_are_legal() -> None:
    legal = []
    for stages in itertools.product(range(3), repeat=3):
        if min(stages) or set(range(max(stages))) - set(stages):
            continue  # a later start or an empty stage equals another plan, shifted
        plan = plan_of(
            dict(zip(("fwd", "bwd", "opt"), stages, strict=True)), [("bwd", "fwd"), ("opt", "bwd")], [("fwd", "opt")]
        )
        try:
            validate_plan(plan)
            legal.append(stages)
        except PlanError:
            pass
    assert legal == [(0, 0, 0), (0, 0, 1), (0, 1, 1)]


def test_swp_25_cycles_are_refused_with_their_path() -> None:
    plan = plan_of({"a": 0, "b": 0, "c": 0, "d": 0}, [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")])
    refused(plan, "cycle", "'a' -> 'b' -> 'c' -> 'a'", "remove one")
    refused(plan, "cycle", clocked=False)


def test_swp_25_a_missing_dependency_between_streams_is_warned_about() -> None:
    make = PipelineTask("make", nothing, writes=("x",))
    use = PipelineTask("use", nothing, reads=("x",))
    schedule = {make: TaskSchedule(stream="copy"), use: TaskSchedule()}
    (warning,) = validate_plan(PipelinePlan(schedule, [])).warnings
    assert "'make'" in warning and "ctx.x" in warning and "race" in warning
    assert validate_plan(PipelinePlan(schedule, [(use, make)])).warnings == []
    # A path through a third task is a dependency, too. Reading the same state is not a race.
    other = PipelineTask("other", nothing)
    through = PipelinePlan({**schedule, other: TaskSchedule(stream="third")}, [(other, make), (use, other)])
    assert validate_plan(through).warnings == []
    readers = [PipelineTask(n, nothing, reads=("x",)) for n in "ab"]
    plan = PipelinePlan({readers[0]: TaskSchedule(), readers[1]: TaskSchedule(stream="s")}, [])
    assert validate_plan(plan).warnings == []


def test_swp_25_two_tasks_of_one_stage_and_stream_without_dependency_are_warned_about() -> None:
    (warning,) = validate_plan(plan_of({"zeta": 0, "alpha": 0}, [])).warnings
    assert "decided by their names" in warning
    assert validate_plan(plan_of({"zeta": 0, "alpha": 0}, [("alpha", "zeta")])).warnings == []
    assert validate_plan(fused_sparse_dist()).warnings == []
    assert validate_plan(sparse_dist()).warnings == []


def test_trap_t4_the_pqr_plan_is_refused_and_its_legal_variant_is_not() -> None:
    stages, streams = {"P": 0, "Q": 1, "R": 0, "A": 0}, {"P": "X", "Q": "Y", "R": "X", "A": "Z"}
    plan = plan_of(stages, [("Q", "P"), ("R", "Q")], [("A", "Q")], stream=streams)
    refused(plan, "corollary 1", "'R' (stage 0)", "'Q' (stage 1)")
    validate_plan(plan_of(stages, [("Q", "P")], [("A", "Q"), ("R", "Q")], stream=streams))
    validate_plan(plan, clocked=False)  # legal without stages


@pytest.mark.parametrize(("depth", "legal"), [(None, True), (3, True), (1, False), (2, False), (4, False)])
def test_trap_t6_depth_is_inferred_and_another_one_is_refused(depth: int | None, legal: bool) -> None:
    plan = plan_of({"a": 0, "b": 2, "c": 1}, [])
    plan.pipeline_depth = depth
    if legal:
        assert validate_plan(plan).depth == 3
    else:
        refused(plan, f"pipeline_depth={depth}", "max(stage) + 1 = 3")


def test_swp_37_names_are_unique_and_known() -> None:
    plan = plan_of({"Forward": 0}, [("Forward", "Forwrad")])
    refused(plan, "'Forwrad'", "did you mean 'Forward'?")
    a = PipelineTask("a", nothing)
    refused(PipelinePlan({a: TaskSchedule(), "a": TaskSchedule()}, []), "'a' is in `schedule` twice")
    refused(
        PipelinePlan({a: TaskSchedule(), PipelineTask("a", print): TaskSchedule()}, []), "two different tasks", "'a'"
    )
    again = PipelineTask("b", nothing)
    plan = PipelinePlan({again: TaskSchedule(), a: TaskSchedule()}, [(a, PipelineTask("b", print))])
    refused(plan, "two different tasks", "'b'")


@pytest.mark.parametrize(
    "write",
    [
        lambda a, b: {a: TaskSchedule(), b: TaskSchedule()},
        lambda a, b: {task: TaskSchedule() for task in (a, b)},
        lambda a, b: {**{a: TaskSchedule()}, b: TaskSchedule()},
        lambda a, b: dict([(a, TaskSchedule()), (b, TaskSchedule())]),
        lambda a, b: dict.fromkeys([a, b], TaskSchedule()),
        lambda a, b: {a: TaskSchedule()} | {b: TaskSchedule()},
        lambda a, b: updated({a: TaskSchedule()}, {b: TaskSchedule()}),
        lambda a, b: united({a: TaskSchedule()}, {b: TaskSchedule()}),
        lambda a, b: written({a: TaskSchedule()}, b, TaskSchedule()),
        lambda a, b: OrderedDict([(a, TaskSchedule()), (b, TaskSchedule())]),
    ],
    ids=["literal", "comprehension", "unpacked", "dict", "fromkeys", "union", "update", "|=", "written", "ordered"],
)
def test_swp_37_a_task_that_a_dict_dropped_for_its_name_is_noticed(write: Any) -> None:
    first, second = PipelineTask("a", nothing), PipelineTask("a", print)
    schedule = write(first, second)
    assert len(schedule) == 1
    refused(PipelinePlan(schedule, []), "two different tasks", "'a'")


def updated(schedule: dict, other: dict) -> dict:
    schedule.update(other)
    return schedule


def united(schedule: dict, other: dict) -> dict:
    schedule |= other
    return schedule


def written(schedule: dict, task: PipelineTask, settings: TaskSchedule) -> dict:
    schedule[task] = settings
    return schedule


def popped(tasks: dict, task: PipelineTask) -> Any:
    return dict(tasks).pop(task)


def removed(tasks: dict, task: PipelineTask) -> None:
    copy = {**tasks}
    del copy[task]


@pytest.mark.parametrize(
    "look",
    [
        lambda tasks, b: tasks.get(b),
        lambda tasks, b: tasks[b],
        lambda tasks, b: b in tasks,
        lambda tasks, b: tasks.setdefault(b, 7),
        popped,
        removed,
        lambda tasks, b: [*tasks].index(b),
        lambda tasks, b: [*tasks].count(b),
        lambda tasks, b: {*tasks, b},
        lambda tasks, b: set(tasks) | {b},
        lambda tasks, b: set(tasks).union([b]),
        lambda tasks, b: set(tasks).update([b]),
        lambda tasks, b: {t for t in (*tasks, b)},
        lambda tasks, b: set([*tasks, b]),
        lambda tasks, b: frozenset(tasks) | {b},
        lambda tasks, b: tasks.keys() | {b},
        lambda tasks, b: tasks.keys() & {b},
        lambda tasks, b: set(tasks) - {b},
        lambda tasks, b: set(tasks) == {b},
        lambda tasks, b: tasks == {b: 0},
        lambda tasks, b: sorted([*tasks, b], key=lambda task: task.name)[0] == b,
    ],
)
def test_two_tasks_of_one_name_that_a_dict_or_a_set_compares_are_no_duplicate(look: Any) -> None:
    """Functions build the plans twice, and the tasks of one plan are looked up in the other."""
    first, second = PipelineTask("a", nothing), PipelineTask("a", print)
    plans = [PipelinePlan({task: TaskSchedule()}, []) for task in (first, second)]
    look(plans[0].schedule, second)
    look(plans[1].schedule, first)
    for task, plan in zip((first, second), plans, strict=True):
        assert validate_plan(plan).tasks == {"a": task}


def test_the_task_that_a_refused_dict_dropped_may_have_a_plan_of_its_own() -> None:
    first, second = PipelineTask("a", nothing), PipelineTask("a", print)
    refused(PipelinePlan({first: TaskSchedule(), second: TaskSchedule()}, []), "two different tasks")
    assert validate_plan(PipelinePlan({second: TaskSchedule()}, [])).tasks["a"] is second


def test_swp_3_comparing_tasks_by_hand_leaves_a_later_plan_alone() -> None:
    first, second = PipelineTask("a", nothing), PipelineTask("a", print)
    plans = [PipelinePlan({task: TaskSchedule()}, []) for task in (first, second)]
    assert first == second
    assert (second != first) is False
    assert second in [first]
    assert [first] == [second]
    assert second in plans[0].schedule
    assert plans[0].schedule[second] == TaskSchedule()
    assert plans[0] == plans[1]
    for task, plan in zip((first, second), plans, strict=True):
        assert validate_plan(plan).tasks == {"a": task}


def test_other_faults_are_named_together() -> None:
    plan = plan_of({"a": -1, "b": 0}, [("b", "b"), ("b",)])  # type: ignore[list-item]
    plan.schedule["c"] = TaskSchedule(thread_group="")
    problems = refused(plan, "stage -1", "'b' depends on itself", "('b',)", "'c' is only a name", "thread_group ''")
    assert len(problems) == 5
    refused(PipelinePlan({}, []), "empty")
    refused(PipelinePlan({PipelineTask("x", nothing): 0}, []), "task 'x' is scheduled by 0: write TaskSchedule")  # type: ignore[dict-item]
    refused(PipelinePlan({PipelineTask("x", None): TaskSchedule()}, []), "cannot be called")  # type: ignore[arg-type]


def test_its_own_previous_iteration_is_no_cycle() -> None:
    assert validate_plan(plan_of({"opt": 0}, [], [("opt", "opt")])).inter == {"opt": ("opt",)}


def test_small_suspicions_are_warned_about() -> None:
    twice = validate_plan(plan_of({"a": 0, "b": 0}, [("b", "a"), ("b", "a")]))
    assert twice.intra["b"] == ("a",)
    assert "twice" in twice.warnings[0]
    assert "no task is in stage 0" in validate_plan(plan_of({"a": 1}, [])).warnings[0]


def test_errors_travel_between_processes() -> None:
    error = pickle.loads(pickle.dumps(PlanError(["one", "two"])))
    assert error.problems == ["one", "two"]
