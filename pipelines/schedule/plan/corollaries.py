"""Stages that a clocked engine can run: the document's corollaries 1 and 3."""

from __future__ import annotations

from pipelines.schedule.errors import Problem
from pipelines.schedule.plan.checked_plan import CheckedPlan
from pipelines.schedule.plan.plan import TaskSchedule


def clock_problems(checked: CheckedPlan) -> list[Problem]:
    """Return the reasons why a clocked engine could not run these stages, one sentence per fault.

    Stages are whole numbers or, in a plan for a data-flow engine, any value.
    """
    return stage_problems(checked) or _corollary_1(checked) + _corollary_3(checked)


def stage_problems(checked: CheckedPlan) -> list[Problem]:
    """Return the faults of stages that are not whole numbers from 0."""
    settings = {name: s for name, s in checked.schedule.items() if isinstance(s, TaskSchedule)}
    return [
        Problem(f"task {name!r} has stage {s.stage!r}: a stage must be a whole number from 0", "stage", name)
        for name, s in settings.items()
        if not isinstance(s.stage, int) or isinstance(s.stage, bool) or s.stage < 0
    ]


def _corollary_1(checked: CheckedPlan) -> list[Problem]:
    """Return violations of corollary 1: within an iteration, a dependency must not be in a later stage than its task.

    The document's own P/Q/R examples of ready-first break this rule (R of stage 0 depends on Q of stage 1), so they are
    rejected. With (R, Q) in inter_iter_deps, they are legal.
    """
    problems = []
    for task, deps in checked.intra.items():
        for dep in deps:
            task_stage, dep_stage = checked.stage(task), checked.stage(dep)
            if dep_stage > task_stage:
                message = (
                    f"corollary 1: task {task!r} (stage {task_stage}) depends on {dep!r} (stage {dep_stage}) of the same iteration, "
                    f"which is submitted {dep_stage - task_stage} period(s) later: a deadlock. Move {dep!r} to stage {task_stage} or "
                    f"lower, or {task!r} to stage {dep_stage} or higher, or use inter_iter_deps if {task!r} needs the "
                    f"{dep!r} of the iteration before"
                )
                problems.append(Problem(message, "intra_iter_deps", deps=[(task, dep)]))
    return problems


def _corollary_3(checked: CheckedPlan) -> list[Problem]:
    """Return violations of corollary 3: a dependency on the previous iteration is at most one stage after its task."""
    problems = []
    for task, deps in checked.inter.items():
        for dep in deps:
            task_stage, dep_stage = checked.stage(task), checked.stage(dep)
            stages_later = dep_stage - task_stage
            if stages_later > 1:
                message = (
                    f"corollary 3: task {task!r} (stage {task_stage}) depends on {dep!r} (stage {dep_stage}) of the iteration "
                    f"before, k = {dep_stage} - {task_stage} = {stages_later} > 1: that is submitted {stages_later - 1} period(s) later, a deadlock in "
                    f"any order. Move {dep!r} to stage {task_stage + 1} or lower, or {task!r} to stage {dep_stage - 1} or higher"
                )
                problems.append(Problem(message, "inter_iter_deps", deps=[(task, dep)]))
    return problems
