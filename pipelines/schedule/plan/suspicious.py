"""Warnings for what is legal in a plan but probably a mistake (SWP-25): a forgotten dependency.

Tasks that do not declare what they use get a warning only where their names decide the order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pipelines.schedule.plan.checked_plan import CheckedPlan, ancestors

Before = Callable[[str, str, int], bool]
"""(earlier, later, n): whether the engine submits `earlier` of an iteration before `later` of the n-th after it, because
they share a stream."""


def suspicious(checked: CheckedPlan, clocked: bool, before: Before) -> list[str]:
    """Returns warnings for what is legal but probably a mistake (SWP-25)."""
    above = ancestors(checked.intra)
    found = []
    names = checked.names
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            if a in above[b] or b in above[a]:
                continue
            in_order = before(a, b, 0) or before(b, a, 0)
            race = [] if in_order else _race(checked, a, b)
            found += race
            one_place = checked.stage(a) == checked.stage(b) and checked.stream(a) == checked.stream(b)
            if one_place and not race and (in_order or clocked):
                found += _order_without_reason(checked, a, b, in_order)
    if clocked:
        found += [
            f"no task is in stage {stage}, so the pipeline is one period longer than necessary: renumber the stages"
            for stage in sorted(set(range(checked.depth)) - {checked.stage(n) for n in names})
        ]
    return found


def _shared_conflict(checked: CheckedPlan, a: str, b: str) -> list[str]:
    """Returns declared state of all iterations that one of the two tasks writes and the other uses."""
    if a not in checked.tasks or b not in checked.tasks:
        return []
    x, y = checked.tasks[a], checked.tasks[b]
    return _conflict(x.shared_reads, x.shared_writes, y.shared_reads, y.shared_writes)


def _overlap(checked: CheckedPlan, a: str, b: str) -> list[str]:
    """Returns what one of the two tasks writes and the other uses, as declared: context attributes and shared state."""
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
    """Returns whether nothing orders the two tasks within an iteration."""
    used = _overlap(checked, a, b)
    if not used:
        return []
    where = "are on different streams"
    if checked.stream(a) == checked.stream(b):
        one_thread = checked.schedule[a].thread_group == checked.schedule[b].thread_group
        where = "have no clock that orders them" if one_thread else "are submitted by different threads"
    return [
        f"tasks {a!r} and {b!r} {where}, both use {', '.join(used)}, and neither depends on the other: a race. "
        "Add the dependency to intra_iter_deps"
    ]


def _order_without_reason(checked: CheckedPlan, a: str, b: str, in_order: bool) -> list[str]:
    """Tasks of one stage and stream: only names, or chance, decide which comes first. On two streams they are meant to
    overlap.
    """
    declared = [
        bool(t.reads or t.writes or t.shared_reads or t.shared_writes) for n in (a, b) if (t := checked.tasks.get(n))
    ]
    if declared == [True, True] and not _overlap(checked, a, b):
        return []
    order = "is decided by their names" if in_order else "is not defined: two threads submit them"
    return [
        f"tasks {a!r} and {b!r} share stage {checked.stage(a)} and a stream without a dependency between them: their "
        f"order {order}. Add one to intra_iter_deps if one of them needs the other"
    ]


def unordered_state(checked: CheckedPlan, before: Before) -> list[str]:
    """Returns a warning for each dependency that is missing if declared state is to be used as in a serial run.

    On one stream the engine may keep an order without a dependency (`before`): by the clock OptimizerStep(i-1) is
    before ZeroGrad(i) although nothing declares it. Apart from that X(i) is before Y(i+1) when Y depends on X (X(i) is
    before X(i+1): a task becomes ready iteration after iteration, and has one thread and one stream), or when some (A,
    B) of inter_iter_deps has X before B and A before Y.

    Only `shared_reads` and `shared_writes` count: whether a stale value would be wrong is for the user to say. Of
    dependencies that imply one another only the strongest is named. Two tasks that nothing orders within an iteration
    are a race.
    """
    names = checked.names
    first = {
        name: (*deps, *(a for a in names if a != name and before(a, name, 0))) for name, deps in checked.intra.items()
    }
    upto = {name: found | {name} for name, found in ancestors(first).items()}
    kept = [(task, dep) for task, deps in checked.inter.items() for dep in deps]
    kept += [(b, a) for a in names for b in names if a != b and before(a, b, 1)]

    def implied(later: str, earlier: str, by: Iterable[tuple[str, str]]) -> bool:
        return any(task in upto[later] and earlier in upto[dep] for task, dep in by)

    lacking = {
        (later, earlier)
        for earlier in names
        for later in upto[earlier] - {earlier}
        if _shared_conflict(checked, later, earlier) and not implied(later, earlier, kept)
    }
    return [_warning(checked, *pair) for pair in sorted(lacking) if not implied(*pair, lacking - {pair})]


def _warning(checked: CheckedPlan, later: str, earlier: str) -> str:
    state = ", ".join(map(repr, _shared_conflict(checked, later, earlier)))
    return (
        f"tasks {earlier!r} and {later!r} share {state}, and nothing keeps {later!r} behind {earlier!r} of the iteration "
        f"before: add ({later!r}, {earlier!r}) to inter_iter_deps"
    )
