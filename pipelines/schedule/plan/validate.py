"""Validation of plans, which rejects every plan that could hang before it runs.

A validated plan cannot hang. A clocked engine submits period by period, and within a period in an order in which
every dependency of that period comes first (order.py). Each thread takes its work first-in-first-out, and each stream
gets its tasks in this order. Corollaries 1 and 3 are equivalent to the rule that no dependency is in a later period. So
the oldest unfinished work never waits for other unfinished work. Without stages (data flow), work is submitted when its
dependencies are done, which only a cycle can prevent.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from typing import Any

from pipelines.schedule.engine.lanes import lane_order
from pipelines.schedule.errors import PlanError, Problem
from pipelines.schedule.plan.checked_plan import CheckedPlan
from pipelines.schedule.plan.corollaries import clock_problems, stage_problems
from pipelines.schedule.plan.plan import PipelinePlan, PipelineTask, TaskRef, TaskSchedule, name_of
from pipelines.schedule.plan.suspicious import Before, suspicious, unordered_state


def validate_plan(
    plan: PipelinePlan,
    *,
    clocked: bool = True,
    needs_functions: bool = False,
    max_depth: int | None = None,
    order: str = "dependencies",
) -> CheckedPlan:
    """Resolve and check a plan. Raise PlanError (a ValueError) if it has faults, with every fault and its remedy.

    `clocked`: whether stages count (SWPipeline). A data-flow engine ignores stages and corollaries 1 and 3.
    `needs_functions`: every task must have a callable. `max_depth` and `order` are DataFlowPipeline's options. With a
    `max_depth` of 1, no iteration overtakes another, so there are no warnings that assume overtaking. By default, the
    plan is checked as if only its dependencies determined an order.
    """
    problems: list[str] = []
    checked = _resolve(plan, problems)
    problems += _check_settings(checked)
    if clocked:
        problems += stage_problems(checked)
    if needs_functions:
        problems += _check_functions(checked)
    problems += _check_cycles(checked)
    if clocked and not problems:
        problems += clock_problems(checked) + _check_depth(plan, checked)
    if problems:
        raise PlanError(problems)
    if not clocked and order == "stages" and (ignored := clock_problems(checked)):
        checked.warnings.append(
            "no clock could run these stages, so each stream takes one iteration after the other, in the order of a serial "
            'run. Correct them, or pass order="dependencies" if only the dependencies matter: ' + "; ".join(ignored)
        )
    before = _first_on_stream(checked, clocked, max_depth, order)
    checked.warnings += suspicious(checked, clocked, before)
    if (checked.depth if clocked else max_depth) != 1:
        checked.warnings += unordered_state(checked, before)
    return checked


def _first_on_stream(checked: CheckedPlan, clocked: bool, max_depth: int | None, order: str) -> Before:
    """Return the function that returns whether the engine orders two tasks of one stream without a dependency."""
    if not clocked and order == "dependencies":
        return lambda earlier, later, iterations: False
    stages = lane_order(checked, checked.depth if clocked or max_depth is None else max_depth)
    positions = {name: position for position, name in enumerate(stages)}

    def before(earlier: str, later: str, iterations: int) -> bool:
        if checked.stream(earlier) != checked.stream(later):
            return False
        return (stages[earlier], positions[earlier]) < (stages[later] + iterations, positions[later])

    return before


def _resolve(plan: PipelinePlan, problems: list[str]) -> CheckedPlan:
    """Return the plan with references resolved to names. Append faults to `problems` and omit the faulty items."""
    checked = CheckedPlan(schedule={}, tasks={}, intra={}, inter={}, depth=1)
    if not plan.schedule:
        problems.append("`schedule` is empty: add at least one task")
    for ref, settings in plan.schedule.items():
        name = name_of(ref)
        if name in checked.schedule:
            problems.append(f"task {name!r} is in `schedule` twice, as an object and by name: keep one of them")
        checked.schedule[name] = settings
        _remember(ref, checked, problems)
        if isinstance(ref, PipelineTask) and ref._dropped_a_namesake:
            problems.append(_two_functions(name))
    checked.intra = _resolve_deps("intra_iter_deps", plan.intra_iter_deps, checked, problems)
    checked.inter = _resolve_deps("inter_iter_deps", plan.inter_iter_deps, checked, problems)
    stages = [s.stage for s in checked.schedule.values() if isinstance(s, TaskSchedule) and isinstance(s.stage, int)]
    checked.depth = max(stages, default=0) + 1
    return checked


def _remember(ref: TaskRef, checked: CheckedPlan, problems: list[str]) -> None:
    if not isinstance(ref, PipelineTask):
        return
    first = checked.tasks.setdefault(ref.name, ref)
    if first is not ref and first.fn != ref.fn and _two_functions(ref.name) not in problems:
        problems.append(_two_functions(ref.name))


def _two_functions(name: str) -> str:
    return (
        f"two different tasks are named {name!r}: tasks are identified by name, and a dict keeps the first task with the second's "
        "settings. Create them again, one of them with another name"
    )


def _resolve_deps(kind: str, deps: Iterable[Any], checked: CheckedPlan, problems: list[str]) -> dict:
    deps_by_task: dict[str, list[str]] = {name: [] for name in checked.schedule}
    for entry in deps:
        if not isinstance(entry, tuple | list) or len(entry) != 2:
            problems.append(f"{kind} has the entry {entry!r}: write (task, depends_on)")
            continue
        for ref in entry:
            _remember(ref, checked, problems)
        task, dep = (name_of(ref) for ref in entry)
        unknown = [n for n in (task, dep) if n not in checked.schedule]
        problems += [_unknown(kind, task, dep, n, checked) for n in unknown]
        if kind == "intra_iter_deps" and task == dep:
            message = (
                f"{kind}: task {task!r} depends on itself and would wait forever. Remove the entry, or put it into "
                "inter_iter_deps if it needs its own result of the iteration before"
            )
            problems.append(Problem(message, kind, deps=[(task, dep)]))
        elif not unknown and dep in deps_by_task[task]:
            checked.warnings.append(f"{kind} names ({task!r}, {dep!r}) twice; the second is ignored")
        elif not unknown:
            deps_by_task[task].append(dep)
    return {name: tuple(names) for name, names in deps_by_task.items()}


def _unknown(kind: str, task: str, dep: str, name: str, checked: CheckedPlan) -> Problem:
    close = difflib.get_close_matches(name, checked.schedule, n=1)
    hint = f"did you mean {close[0]!r}?" if close else "add it to `schedule` or remove the entry"
    message = f"{kind}: ({task!r}, {dep!r}) names task {name!r}, which is not in `schedule`: {hint}"
    return Problem(message, kind, deps=[(task, dep)])


def _check_settings(checked: CheckedPlan) -> list[str]:
    problems = []
    for name, s in checked.schedule.items():
        if not isinstance(s, TaskSchedule):
            problems.append(f"task {name!r} is scheduled by {s!r}: write TaskSchedule(stage=...)")
            continue
        if not name:
            problems.append("a task has an empty name: give it one")
        if not isinstance(s.thread_group, str) or not s.thread_group:
            message = f"task {name!r} has thread_group {s.thread_group!r}: a group must be a name"
            problems.append(Problem(message, "thread_group", name))
    return problems


def _check_functions(checked: CheckedPlan) -> list[str]:
    problems = []
    for name in checked.schedule:
        task = checked.tasks.get(name)
        if task is None:
            problems.append(
                f"task {name!r} is only a name: use a PipelineTask with a function as the key in `schedule`"
            )
        elif not callable(task.fn):
            problems.append(
                f"task {name!r} has fn={task.fn!r}, which cannot be called: give it a function of one context"
            )
    return problems


def _check_cycles(checked: CheckedPlan) -> list[Problem]:
    """Return the fault of a cycle within an iteration.

    Inter-iteration dependencies cannot form a cycle, because each points one iteration back.
    """
    try:
        TopologicalSorter(checked.intra).prepare()
        return []
    except CycleError as error:
        cycle = error.args[1][::-1]  # each task depends on the next one
    path = " -> ".join(repr(n) for n in cycle)
    # Tasks with other settings are reported as a separate fault.
    staged = [n for n in cycle[:-1] if isinstance(checked.schedule[n], TaskSchedule)]
    stages = ", ".join(f"{n!r} stage {checked.stage(n)}" for n in staged)
    message = (
        f"intra_iter_deps have a cycle: {path} (each waits for the next; {stages}). None of them could ever start: "
        "remove one of these dependencies, or make it an inter_iter_deps entry if it means the iteration before"
    )
    return [Problem(message, "intra_iter_deps", deps=pairwise(cycle))]


def _check_depth(plan: PipelinePlan, checked: CheckedPlan) -> list[str]:
    if plan.pipeline_depth in (None, checked.depth):  # None means inferred
        return []
    return [
        f"pipeline_depth={plan.pipeline_depth!r}, but the stages give max(stage) + 1 = {checked.depth}: "
        "leave pipeline_depth out, or change the stages"
    ]
