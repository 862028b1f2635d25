"""The choice of the traces and windows of two sides that are compared, with a reason for each excluded one."""

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
    """Pairs of windows, and notes on excluded or uncertain traces and steps."""

    pairs: list[Pair]
    left_out: list[str]


Which = int | str
"""A step by its number, `first` (the first step of each trace), or `all` (the whole trace, with the time outside steps)."""


def choose(control: Sequence[Trace], test: Sequence[Trace], steps: Which | tuple[Which, Which] | None = None) -> Chosen:
    """Pair the traces of two sides by rank, and their windows by step.

    `steps`: the window of both sides, or (of control, of test). None means all steps that both have, without warm-up.
    Raise CompareError if a trace has no such step.
    """
    which = steps if isinstance(steps, tuple) or steps is None else (steps, steps)
    trace_pairs, left_out = _by_rank(control, test)
    pairs: list[Pair] = []
    for control_trace, test_trace in trace_pairs:
        window_pairs, notes = _windows(control_trace, test_trace, which)
        rank = control_trace.rank if control_trace.rank == test_trace.rank else None
        where = " and ".join(dict.fromkeys((_named(control_trace), _named(test_trace)))) if len(trace_pairs) > 1 else ""
        pairs += [Pair(where, rank, *windows) for windows in window_pairs]
        left_out += [note for note in notes if note not in left_out]
    return Chosen(pairs, left_out)


def _by_rank(control: Sequence[Trace], test: Sequence[Trace]) -> tuple[list[tuple[Trace, Trace]], list[str]]:
    """Pair traces of the same rank, and return notes on traces without counterpart.

    Without a common rank, or if a side has two traces of one rank or a trace without rank, pair the traces in their
    order.
    """
    ranks = [{trace.rank: trace for trace in side if trace.rank is not None} for side in (control, test)]
    common = sorted(ranks[0].keys() & ranks[1].keys())
    unique = all(len(by_rank) == len(side) for by_rank, side in zip(ranks, (control, test), strict=True))
    if unique and common:
        pairs = [(ranks[0][rank], ranks[1][rank]) for rank in common]
    else:
        pairs = list(zip(control, test, strict=False))
    paired = {trace.trace_id for pair in pairs for trace in pair}
    notes = []
    for side, traces in (("control", control), ("test", test)):
        if unpaired := [_named(trace) for trace in traces if trace.trace_id not in paired]:
            notes.append(f"{side}: {', '.join(unpaired)} without counterpart")
    return pairs, notes


def _named(trace: Trace) -> str:
    return trace.file if trace.rank is None else f"rank {trace.rank}"


def _windows(
    control: Trace, test: Trace, which: tuple[Which, Which] | None
) -> tuple[list[tuple[Window, Window]], list[str]]:
    """Return the pairs of windows of two traces, and notes on excluded or uncertain steps."""
    if which and FIRST not in which:
        return [(_window(control, which[0]), _window(test, which[1]))], []
    if not (control.steps and test.steps):
        sides_without_steps = [side for side, trace in (("control", control), ("test", test)) if not trace.steps]
        return [(control.whole, test.whole)], [f"{sides_without_steps[0]} has no steps: whole traces are compared"] * (
            len(sides_without_steps) == 1
        )
    if which:
        return [(_window(control, which[0]), _window(test, which[1]))], []
    return _all_steps(control.steps, test.steps)


def _all_steps(control: Sequence[Window], test: Sequence[Window]) -> tuple[list[tuple[Window, Window]], list[str]]:
    """Pair the steps with the same numbers, without warm-up.

    Without a common number, pair the first step with the first, and so on. Return the pairs and notes.
    """
    notes: list[str] = []
    unsure_by_side: list[set[int | None]] = [set(), set()]
    warm_up_by_side = [
        {window.step for window in steps if window.warm_up_times is not None} for steps in (control, test)
    ]
    numbers_by_side = [{window.step for window in steps} for steps in (control, test)]
    if common := numbers_by_side[0] & numbers_by_side[1]:
        sure_warm_up = warm_up_by_side[0] & warm_up_by_side[1] | {
            window.step for window in (*control, *test) if (window.warm_up_times or 0) > _ALONE
        }
        warm_up_by_side, unsure_by_side = (
            [sure_warm_up, sure_warm_up],
            [steps - sure_warm_up for steps in warm_up_by_side],
        )
        if common <= warm_up_by_side[0]:  # all common steps are warm-up, so compare them anyway
            notes += _said("both", [window.step for window in control if window.step in common], _UNSURE)
            warm_up_by_side = [set(), set()]
        steps_by_side = [
            [window for window in steps if window.step in common - warm_up_by_side[0]] for steps in (control, test)
        ]
    else:
        steps_by_side = [
            [window for window in steps if window.step not in warm_up]
            for steps, warm_up in zip((control, test), warm_up_by_side, strict=True)
        ]
    pairs = list(zip(*steps_by_side, strict=False))
    if common:
        notes += _said(
            "both",
            [window.step for window in control if window.step in common & warm_up_by_side[0]],
            "left out as warm-up",
        )
    for side, steps, warm_up, side_index in (
        ("control", control, warm_up_by_side[0], 0),
        ("test", test, warm_up_by_side[1], 1),
    ):
        paired = {pair[side_index].step for pair in pairs}
        notes += _said(
            side, [window.step for window in steps if window.step in unsure_by_side[side_index] & paired], _UNSURE
        )
        if not common:
            notes += _said(side, [window.step for window in steps if window.step in warm_up], "left out as warm-up")
        unpaired = [window.step for window in steps if window.step not in warm_up | paired]
        notes += _said(side, unpaired, "without counterpart")
    return pairs, notes


def _said(side: str, steps: Sequence[int | None], note: str) -> list[str]:
    if not steps:
        return []
    return [f"{side}: step{'s' if len(steps) > 1 else ''} {', '.join(map(str, steps))} {note}"]


def _window(trace: Trace, which: Which) -> Window:
    if which == EVERY:
        return trace.whole
    for window in trace.steps:
        if which in (window.step, FIRST):
            return window
    numbers = ", ".join(str(window.step) for window in trace.steps) or "none"
    raise CompareError(f"{_named(trace)} (trace {trace.trace_id}) has no step {which}; it has {numbers}")


def traces_of(con: duckdb.DuckDBPyConnection, name: str, ranks: int | str = EVERY) -> list[str]:
    """Return the trace, or the traces of the capture, whose id starts with `name`, in the order of ranks.

    `ranks` of a capture: a number, `first` (the lowest) or `all`. `con` has `traces` and `capture_ranks`. Raise
    CompareError if the prefix is not unique or matches nothing, or the capture has no such rank.
    """
    members = con.execute(
        "SELECT capture_id, rank, trace_id FROM capture_ranks "
        f"WHERE left_out_reason IS NULL AND starts_with(capture_id, {quoted(name)}) ORDER BY rank, trace_id"
    ).fetchall()
    captures = {capture for capture, _, _ in members}
    traces = con.execute(f"SELECT trace_id FROM traces WHERE starts_with(trace_id, {quoted(name)})").fetchall()
    if len(captures) + len(traces) != 1:
        matching_ids = sorted([*captures, *(trace for (trace,) in traces)])
        raise CompareError(
            f"{name!r} is a prefix of {len(matching_ids)} captures and traces: {', '.join(matching_ids[:10])}"
            if matching_ids
            else f"no capture or trace id starts with {name!r}"
        )
    if traces:
        return [traces[0][0]]
    rank_numbers = [rank for _, rank, _ in members]
    chosen_ranks = set(rank_numbers) if ranks == EVERY else {rank_numbers[0] if ranks == FIRST else ranks}
    if not chosen_ranks <= set(rank_numbers):
        raise CompareError(f"capture {members[0][0]} has no rank {ranks}; it has {', '.join(map(str, rank_numbers))}")
    return [trace for _, rank, trace in members if rank in chosen_ranks]
