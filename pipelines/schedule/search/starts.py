"""Simple plans as starts of a search, with work cut into stages by greedy rules, and streams with even shares of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pipelines.schedule.search.assignments import Assignment, Space, numbered


def starts(space: Space, durations: Mapping[str, int], rest: Mapping[str, int]) -> list[Assignment]:
    """Return legal assignments without duplicates. `rest`: longest chain from each task to the iteration's end, ns."""
    assignments: dict[Assignment, None] = {}
    for depth in range(1, space.max_depth + 1):
        for cut in _cuts(space.names, durations, rest, depth):
            stages = _legal(space, cut, depth)
            for streams in _stream_choices(space, stages, durations):
                assignments[Assignment(stages, numbered(streams))] = None
    return [assignment for assignment in assignments if space.is_legal(assignment)]


def _cuts(
    names: Sequence[str], durations: Mapping[str, int], chain_ns: Mapping[str, int], depth: int
) -> Iterator[list[int]]:
    """Yield the stage of each task by four rules. The stages may still be illegal.

    The rules are: equal shares of the work, the best cut of the order, one task per stage at the end of the order, and
    the latest stage that leaves enough periods for the chain to the iteration's end.
    """
    total, longest = sum(durations.values()), max(chain_ns.values(), default=0)
    load_before = 0
    shares = []
    for name in names:
        shares.append(min(depth - 1, load_before * depth // max(1, total)))
        load_before += durations[name]
    yield shares
    yield _best_cut([durations[name] for name in names], depth)
    yield [max(0, depth - len(names) + index) for index in range(len(names))]
    period = max([longest / depth, *durations.values()])
    yield [max(0, min(depth - 1, int(depth - chain_ns[name] / period))) if period else 0 for name in names]


def _best_cut(loads: Sequence[int], parts: int) -> list[int]:
    """Return the part of each load after a cut, in order, into at most `parts` parts with a minimal maximum."""
    low, high = max(loads), sum(loads)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if max(_filled(loads, middle)) < parts else (middle + 1, high)
    return _filled(loads, low)


def _filled(loads: Sequence[int], size: int) -> list[int]:
    """Return the part of each load if each part contains as many loads as fit into `size`."""
    part, part_load, parts = 0, 0, []
    for load in loads:
        if part_load and part_load + load > size:
            part, part_load = part + 1, 0
        part_load += load
        parts.append(part)
    return parts


def _legal(space: Space, cut: Sequence[int], depth: int) -> tuple[int, ...]:
    """Return the stages after moving tasks later until corollaries 1 and 3 are satisfied. No stage is empty."""
    stages = dict(zip(space.names, cut, strict=True))
    changed = True
    while changed:
        changed = False
        for name in space.names:
            earliest = max(
                [stages[name], *(stages[d] for d in space.intra[name]), *(stages[d] - 1 for d in space.inter[name])]
            )
            if earliest > stages[name]:
                stages[name], changed = min(earliest, depth - 1), True
    used = sorted(set(stages.values()))
    return tuple(used.index(stages[name]) for name in space.names)


def _stream_choices(space: Space, stages: Sequence[int], durations: Mapping[str, int]) -> Iterator[tuple[int, ...]]:
    """Yield the stream of each task: one stream per unit, one per stage, and streams with equal shares of the work."""
    units = max(space.units) + 1
    loads, stage_by_unit = [0] * units, [0] * units
    for unit, stage, name in zip(space.units, stages, space.names, strict=True):
        loads[unit] += durations[name]
        stage_by_unit[unit] = max(stage_by_unit[unit], stage)
    if units <= space.max_streams:
        yield tuple(space.units)
    if max(stages) < space.max_streams:
        yield tuple(stage_by_unit[unit] for unit in space.units)
    max_streams = min(units, space.max_streams)
    for streams in sorted({max_streams, *(size for size in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32) if size < max_streams)}):
        load_by_stream, stream_by_unit = [0] * streams, [0] * units
        for unit in sorted(range(units), key=lambda unit: -loads[unit]):  # longest first, onto the least loaded stream
            stream_by_unit[unit] = min(range(streams), key=lambda stream: load_by_stream[stream])
            load_by_stream[stream_by_unit[unit]] += loads[unit]
        yield tuple(stream_by_unit[unit] for unit in space.units)
