"""Warnings about legal plans that probably miss a dependency.

Tasks without declared reads and writes get a warning only if their names decide their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pipelines.schedule.plan.checked_plan import CheckedPlan, ancestors

Before = Callable[[str, str, int], bool]
"""Function (earlier, later, n): whether the engine submits `earlier` of an iteration before `later` of the n-th iteration
after it, because both tasks share a stream."""


def suspicious(checked: CheckedPlan, clocked: bool, before: Before) -> list[str]:
    """Return warnings about legal parts of the plan that are probably mistakes."""
    ancestors_by_task = ancestors(checked.intra)
    warnings = []
    names = checked.names
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            if a in ancestors_by_task[b] or b in ancestors_by_task[a]:
                continue
            in_order = before(a, b, 0) or before(b, a, 0)
            warnings += [] if in_order else _race(checked, a, b)
            if in_order and checked.stage(a) == checked.stage(b):
                warnings += _order_without_reason(checked, a, b)
    if clocked:
        warnings += [
            f"no task is in stage {stage}, so the pipeline is one period longer than necessary: renumber the stages"
            for stage in sorted(set(range(checked.depth)) - {checked.stage(n) for n in names})
        ]
    return warnings


def _shared_conflict(checked: CheckedPlan, a: str, b: str) -> list[str]:
    """Return the declared state, shared by all iterations, that one of the two tasks writes and the other uses."""
    if a not in checked.tasks or b not in checked.tasks:
        return []
    x, y = checked.tasks[a], checked.tasks[b]
    return _conflict(x.shared_reads, x.shared_writes, y.shared_reads, y.shared_writes)


def _overlap(checked: CheckedPlan, a: str, b: str) -> list[str]:
    """Return the declared context attributes and shared state that one of the two tasks writes and the other uses."""
    if a not in checked.tasks or b not in checked.tasks:
        return []
    x, y = checked.tasks[a], checked.tasks[b]
    attributes = _conflict(x.reads, x.writes, y.reads, y.writes)
    return [f"ctx.{name}" for name in attributes] + [repr(name) for name in _shared_conflict(checked, a, b)]


def _conflict(
    reads: Iterable[str], writes: Iterable[str], other_reads: Iterable[str], other_writes: Iterable[str]
) -> list[str]:
    used_by_both = {*reads, *writes} & {*other_reads, *other_writes}
    return sorted(used_by_both & {*writes, *other_writes})


def _race(checked: CheckedPlan, a: str, b: str) -> list[str]:
    """Return a warning if the two tasks use the same state. Call it only for tasks without an order in an iteration."""
    shared_names = _overlap(checked, a, b)
    if not shared_names:
        return []
    relation = "are on different streams"
    if checked.stream(a) == checked.stream(b):
        same_thread = checked.schedule[a].thread_group == checked.schedule[b].thread_group
        relation = "have no clock that orders them" if same_thread else "are submitted by different threads"
    return [
        f"tasks {a!r} and {b!r} {relation}, both use {', '.join(shared_names)}, and neither depends on the other: a race. "
        "Add the dependency to intra_iter_deps"
    ]


def _order_without_reason(checked: CheckedPlan, a: str, b: str) -> list[str]:
    """Return a warning about two tasks of one stage and stream if only their names decide their order.

    Tasks on two streams need no warning, because they are meant to overlap.
    """
    declared = [
        bool(t.reads or t.writes or t.shared_reads or t.shared_writes) for n in (a, b) if (t := checked.tasks.get(n))
    ]
    if declared == [True, True] and not _overlap(checked, a, b):
        return []
    return [
        f"tasks {a!r} and {b!r} share stage {checked.stage(a)} and a stream without a dependency between them: their "
        "order is decided by their names. Add one to intra_iter_deps if one of them needs the other"
    ]


def unordered_state(checked: CheckedPlan, before: Before) -> list[str]:
    """Return a warning for each missing dependency without which declared state is not used as in a serial run.

    On one stream, the engine may keep an order without a dependency (`before`). For example, the clock puts
    OptimizerStep(i-1) before ZeroGrad(i), although no dependency declares it. Otherwise, X(i) is before Y(i+1) in two
    cases. First, if Y depends on X, because X(i) is before X(i+1): a task becomes ready iteration after iteration, and
    has one thread and one stream. Second, if some (A, B) of inter_iter_deps has X before B and A before Y.

    Only `shared_reads` and `shared_writes` count, because only the user knows whether a stale value would be wrong. If
    dependencies imply one another, only the strongest is reported. Two tasks without an order within an iteration are a
    race (see `_race`).
    """
    names = checked.names
    first = {
        name: (*deps, *(a for a in names if a != name and before(a, name, 0))) for name, deps in checked.intra.items()
    }
    upto = {name: earlier_tasks | {name} for name, earlier_tasks in ancestors(first).items()}
    inter_order = [(task, dep) for task, deps in checked.inter.items() for dep in deps]
    inter_order += [(b, a) for a in names for b in names if a != b and before(a, b, 1)]

    def implied(later: str, earlier: str, pairs: Iterable[tuple[str, str]]) -> bool:
        return any(task in upto[later] and earlier in upto[dep] for task, dep in pairs)

    missing = {
        (later, earlier)
        for earlier in names
        for later in upto[earlier] - {earlier}
        if _shared_conflict(checked, later, earlier) and not implied(later, earlier, inter_order)
    }
    return [_warning(checked, *pair) for pair in sorted(missing) if not implied(*pair, missing - {pair})]


def _warning(checked: CheckedPlan, later: str, earlier: str) -> str:
    state = ", ".join(map(repr, _shared_conflict(checked, later, earlier)))
    return (
        f"tasks {earlier!r} and {later!r} share {state}, and nothing keeps {later!r} behind {earlier!r} of the iteration "
        f"before: add ({later!r}, {earlier!r}) to inter_iter_deps"
    )
