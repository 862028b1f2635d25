"""Simple plans to start a search from: work cut into stages by greedy rules, and streams that share it evenly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pipelines.schedule.search.assignments import Assignment, Space, numbered


def starts(space: Space, durations: Mapping[str, int], rest: Mapping[str, int]) -> list[Assignment]:
    """Returns legal assignments, each once. `rest`: the longest chain from a task to the iteration's end, ns."""
    found: dict[Assignment, None] = {}
    for depth in range(1, space.max_depth + 1):
        for drawn in _cuts(space.names, durations, rest, depth):
            stages = _legal(space, drawn, depth)
            for streams in _stream_choices(space, stages, durations):
                found[Assignment(stages, numbered(streams))] = None
    return [assignment for assignment in found if space.is_legal(assignment)]


def _cuts(
    names: Sequence[str], durations: Mapping[str, int], rest: Mapping[str, int], depth: int
) -> Iterator[list[int]]:
    """Returns stages by name, not yet legal: equal shares of the work, the best cut of the order, as early or as late
    as possible.
    """
    whole, chain = sum(durations.values()), max(rest.values(), default=0)
    before = 0
    shares = []
    for name in names:
        shares.append(min(depth - 1, before * depth // max(1, whole)))
        before += durations[name]
    yield shares
    yield _best_cut([durations[name] for name in names], depth)
    yield [max(0, depth - len(names) + place) for place in range(len(names))]
    period = max([chain / depth, *durations.values()])
    yield [max(0, min(depth - 1, int(depth - rest[name] / period))) if period else 0 for name in names]


def _best_cut(loads: Sequence[int], parts: int) -> list[int]:
    """Cuts the loads, in order, into at most the given number of parts so that the largest is as small as possible."""
    low, high = max(loads), sum(loads)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if max(_filled(loads, middle)) < parts else (middle + 1, high)
    return _filled(loads, low)


def _filled(loads: Sequence[int], size: int) -> list[int]:
    """Returns the part of each load if each part takes as many as fit."""
    part, held, parts = 0, 0, []
    for load in loads:
        if held and held + load > size:
            part, held = part + 1, 0
        held += load
        parts.append(part)
    return parts


def _legal(space: Space, drawn: Sequence[int], depth: int) -> tuple[int, ...]:
    """Returns the same stages with tasks moved later until corollaries 1 and 3 hold and no stage is empty."""
    stages = dict(zip(space.names, drawn, strict=True))
    changed = True
    while changed:
        changed = False
        for name in space.names:
            least = max(
                [stages[name], *(stages[d] for d in space.intra[name]), *(stages[d] - 1 for d in space.inter[name])]
            )
            if least > stages[name]:
                stages[name], changed = min(least, depth - 1), True
    used = sorted(set(stages.values()))
    return tuple(used.index(stages[name]) for name in space.names)


def _stream_choices(space: Space, stages: Sequence[int], durations: Mapping[str, int]) -> Iterator[tuple[int, ...]]:
    """Yields streams: one per unit, one per stage, and equal shares of the work."""
    units = max(space.units) + 1
    loads, first = [0] * units, [0] * units
    for unit, stage, name in zip(space.units, stages, space.names, strict=True):
        loads[unit] += durations[name]
        first[unit] = max(first[unit], stage)
    if units <= space.max_streams:
        yield tuple(space.units)
    if max(stages) < space.max_streams:
        yield tuple(first[unit] for unit in space.units)
    most = min(units, space.max_streams)
    for streams in sorted({most, *(size for size in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32) if size < most)}):
        held, of = [0] * streams, [0] * units
        for unit in sorted(range(units), key=lambda unit: -loads[unit]):  # longest first, to the least loaded
            of[unit] = min(range(streams), key=lambda stream: held[stream])
            held[of[unit]] += loads[unit]
        yield tuple(of[unit] for unit in space.units)
