"""What is legal in a plan but probably not meant (SWP-25): a dependency that was forgotten.

Tasks that say nothing of what they use are warned about only where their names decide the order.
"""

from __future__ import annotations

from collections.abc import Iterable

from pipelines.schedule.checked import CheckedPlan, ancestors


def suspicious(checked: CheckedPlan, clocked: bool) -> list[str]:
    """What is legal but probably not meant (SWP-25)."""
    before = ancestors(checked.intra)
    found = []
    names = checked.names
    for i, a in enumerate(names):
        for b in names[i + 1 :]:
            if a in before[b] or b in before[a]:
                continue
            found += _race(checked, a, b, clocked)
            if clocked and checked.stage(a) == checked.stage(b) and checked.stream(a) == checked.stream(b):
                found += _order_by_name(checked, a, b)
    if clocked:
        found += [
            f"no task is in stage {stage}, so the pipeline is a period longer than it has to be: renumber the stages"
            for stage in sorted(set(range(checked.depth)) - {checked.stage(n) for n in names})
        ]
    return found


def _shared_conflict(checked: CheckedPlan, a: str, b: str) -> list[str]:
    """State of all iterations that one of the two writes and the other uses, as far as declared."""
    if a not in checked.tasks or b not in checked.tasks:
        return []
    x, y = checked.tasks[a], checked.tasks[b]
    return _conflict(x.shared_reads, x.shared_writes, y.shared_reads, y.shared_writes)


def _overlap(checked: CheckedPlan, a: str, b: str) -> list[str]:
    """What one of the two writes and the other uses, as far as declared: context attributes, and shared state."""
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


def _race(checked: CheckedPlan, a: str, b: str, clocked: bool) -> list[str]:
    """Nothing orders the two within an iteration. By the clock, one stream does."""
    used, one_stream = _overlap(checked, a, b), checked.stream(a) == checked.stream(b)
    if not used or (clocked and one_stream):
        return []
    where = "have no clock that orders them" if one_stream else "are on different streams"
    return [
        f"tasks {a!r} and {b!r} {where}, both use {', '.join(used)}, and neither depends on the other: a race. "
        "Add the dependency to intra_iter_deps"
    ]


def _order_by_name(checked: CheckedPlan, a: str, b: str) -> list[str]:
    """The same stage and stream: only their names decide which comes first. On two streams they are meant to overlap."""
    declared = [
        bool(t.reads or t.writes or t.shared_reads or t.shared_writes) for n in (a, b) if (t := checked.tasks.get(n))
    ]
    if declared == [True, True] and not _overlap(checked, a, b):
        return []
    return [
        f"tasks {a!r} and {b!r} share stage {checked.stage(a)} and a stream without a dependency between them: their "
        "order is decided by their names. Add one to intra_iter_deps if one of them needs the other"
    ]


def unordered_state(checked: CheckedPlan) -> list[str]:
    """A warning for each dependency that data flow lacks to use declared state as a serial run does.

    By the clock, what is later on a stream was submitted later: OptimizerStep(i-1) is before ZeroGrad(i) although nobody
    said so. Data flow knows dependencies only. There X(i) is before Y(i+1) when Y depends on X (X(i) is before X(i+1): a
    task becomes ready iteration after iteration, and has one thread and one stream), or when some (A, B) of
    inter_iter_deps has X before B and A before Y.

    Only `shared_reads` and `shared_writes` count: whether an old value would be wrong is for the user to say. Of
    dependencies that imply one another only the strongest is named. What nothing orders within an iteration is a race.
    """
    upto = {name: found | {name} for name, found in ancestors(checked.intra).items()}
    kept = [(task, dep) for task, deps in checked.inter.items() for dep in deps]

    def implied(later: str, earlier: str, by: Iterable[tuple[str, str]]) -> bool:
        return any(task in upto[later] and earlier in upto[dep] for task, dep in by)

    lacking = {
        (later, earlier)
        for earlier in checked.names
        for later in upto[earlier] - {earlier}
        if _shared_conflict(checked, later, earlier) and not implied(later, earlier, kept)
    }
    return [_warning(checked, *pair) for pair in sorted(lacking) if not implied(*pair, lacking - {pair})]


def _warning(checked: CheckedPlan, later: str, earlier: str) -> str:
    state = ", ".join(map(repr, _shared_conflict(checked, later, earlier)))
    return (
        f"tasks {earlier!r} and {later!r} share {state}, and without a clock nothing keeps {later!r} behind {earlier!r} of "
        f"the iteration before: add ({later!r}, {earlier!r}) to inter_iter_deps"
    )
