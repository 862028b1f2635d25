"""Which traces and windows of two sides are compared with each other, and what is left out, with its reason."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import duckdb

from pipelines.base.datafiles import threshold
from pipelines.fleet.trends.comparison import CompareError, Pair, Trace, Window
from pipelines.models.sqltext import quoted

FIRST, EVERY = "first", "all"
_UNSURE = "compared, though it may be warm-up"
_ALONE = threshold("compare_warm_up_alone")


class Chosen(NamedTuple):
    """Pairs of windows, and sentences on what is left out."""

    pairs: list[Pair]
    left_out: list[str]


Which = int | str
"""A step by its number, `first` of each trace, or `all`: the whole trace, also what is outside of steps."""


def choose(control: Sequence[Trace], test: Sequence[Trace], steps: Which | tuple[Which, Which] | None = None) -> Chosen:
    """Pair the traces of two sides by rank, and their windows by step.

    `steps`: which window, or that of control and that of test; None: all steps that both have, without warm-up. Raises
    CompareError where a trace has no such step.
    """
    asked = steps if isinstance(steps, tuple) or steps is None else (steps, steps)
    places, left_out = _by_rank(control, test)
    pairs: list[Pair] = []
    for one, other in places:
        found, without = _windows(one, other, asked)
        rank = one.rank if one.rank == other.rank else None
        where = " and ".join(dict.fromkeys((_named(one), _named(other)))) if len(places) > 1 else ""
        pairs += [Pair(where, rank, *windows) for windows in found]
        left_out += [said for said in without if said not in left_out]
    return Chosen(pairs, left_out)


def _by_rank(control: Sequence[Trace], test: Sequence[Trace]) -> tuple[list[tuple[Trace, Trace]], list[str]]:
    """Returns traces of the same rank; where they have none in common, or one side is a single trace, in their order."""
    ranks = [{trace.rank: trace for trace in side if trace.rank is not None} for side in (control, test)]
    common = sorted(ranks[0].keys() & ranks[1].keys())
    unique = all(len(known) == len(side) for known, side in zip(ranks, (control, test), strict=True))
    if unique and common:
        pairs = [(ranks[0][rank], ranks[1][rank]) for rank in common]
    else:
        pairs = list(zip(control, test, strict=False))
    paired = {trace.trace_id for pair in pairs for trace in pair}
    left_out = []
    for side, traces in (("control", control), ("test", test)):
        if lonely := [_named(trace) for trace in traces if trace.trace_id not in paired]:
            left_out.append(f"{side}: {', '.join(lonely)} without counterpart")
    return pairs, left_out


def _named(trace: Trace) -> str:
    return trace.file if trace.rank is None else f"rank {trace.rank}"


def _windows(
    one: Trace, other: Trace, asked: tuple[Which, Which] | None
) -> tuple[list[tuple[Window, Window]], list[str]]:
    """Returns pairs of windows of two traces, and what is left out."""
    if asked and FIRST not in asked:
        return [(_window(one, asked[0]), _window(other, asked[1]))], []
    if not (one.steps and other.steps):
        lacks = [side for side, trace in (("control", one), ("test", other)) if not trace.steps]
        return [(one.whole, other.whole)], [f"{lacks[0]} has no steps: whole traces are compared"] * (len(lacks) == 1)
    if asked:
        return [(_window(one, asked[0]), _window(other, asked[1]))], []
    return _all_steps(one.steps, other.steps)


def _all_steps(one: Sequence[Window], other: Sequence[Window]) -> tuple[list[tuple[Window, Window]], list[str]]:
    """Returns the steps with the same numbers; where there are none, the first with the first; without warm-up."""
    left_out: list[str] = []
    unsure: list[set[int | None]] = [set(), set()]
    warm = [{window.step for window in steps if window.warm_up_times is not None} for steps in (one, other)]
    numbers = [{window.step for window in steps} for steps in (one, other)]
    if common := numbers[0] & numbers[1]:
        sure = warm[0] & warm[1] | {w.step for w in (*one, *other) if (w.warm_up_times or 0) > _ALONE}
        warm, unsure = [sure, sure], [steps - sure for steps in warm]
        if common <= warm[0]:  # better than nothing
            left_out += _said("both", [w.step for w in one if w.step in common], _UNSURE)
            warm = [set(), set()]
        kept = [[window for window in steps if window.step in common - warm[0]] for steps in (one, other)]
    else:
        kept = [
            [window for window in steps if window.step not in first]
            for steps, first in zip((one, other), warm, strict=True)
        ]
    pairs = list(zip(*kept, strict=False))
    if common:
        left_out += _said("both", [w.step for w in one if w.step in common & warm[0]], "left out as warm-up")
    for side, steps, first, place in (("control", one, warm[0], 0), ("test", other, warm[1], 1)):
        paired = {pair[place].step for pair in pairs}
        left_out += _said(side, [w.step for w in steps if w.step in unsure[place] & paired], _UNSURE)
        if not common:
            left_out += _said(side, [w.step for w in steps if w.step in first], "left out as warm-up")
        lonely = [w.step for w in steps if w.step not in first | paired]
        left_out += _said(side, lonely, "without counterpart")
    return pairs, left_out


def _said(side: str, steps: Sequence[int | None], what: str) -> list[str]:
    if not steps:
        return []
    return [f"{side}: step{'s' if len(steps) > 1 else ''} {', '.join(map(str, steps))} {what}"]


def _window(trace: Trace, which: Which) -> Window:
    if which == EVERY:
        return trace.whole
    for window in trace.steps:
        if which in (window.step, FIRST):
            return window
    known = ", ".join(str(window.step) for window in trace.steps) or "none"
    raise CompareError(f"{_named(trace)} (trace {trace.trace_id}) has no step {which}; it has {known}")


def traces_of(con: duckdb.DuckDBPyConnection, name: str, ranks: int | str = EVERY) -> list[str]:
    """The trace, or the traces of the capture, whose id begins with `name`, in the order of ranks.

    `ranks` of a capture: a number, `first` (the lowest) or `all`. `con` has `traces` and `capture_ranks`. Raises
    CompareError.
    """
    members = con.execute(
        "SELECT capture_id, rank, trace_id FROM capture_ranks "
        f"WHERE left_out_reason IS NULL AND starts_with(capture_id, {quoted(name)}) ORDER BY rank, trace_id"
    ).fetchall()
    captures = {capture for capture, _, _ in members}
    traces = con.execute(f"SELECT trace_id FROM traces WHERE starts_with(trace_id, {quoted(name)})").fetchall()
    if len(captures) + len(traces) != 1:
        found = sorted([*captures, *(trace for (trace,) in traces)])
        raise CompareError(
            f"{name!r} is a prefix of {len(found)} captures and traces: {', '.join(found[:10])}"
            if found
            else f"no capture or trace id starts with {name!r}"
        )
    if traces:
        return [traces[0][0]]
    numbers = [rank for _, rank, _ in members]
    wanted = set(numbers) if ranks == EVERY else {numbers[0] if ranks == FIRST else ranks}
    if not wanted <= set(numbers):
        raise CompareError(f"capture {members[0][0]} has no rank {ranks}; it has {', '.join(map(str, numbers))}")
    return [trace for _, rank, trace in members if rank in wanted]
