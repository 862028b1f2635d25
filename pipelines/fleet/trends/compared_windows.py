"""The choice of the traces and windows of two sides to compare, with a reason for each excluded trace or step."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import duckdb

from pipelines.base.datafiles import threshold
from pipelines.fleet.trends.comparison import CompareError, Pair, Trace, Window
from pipelines.models.sqltext import quoted

FIRST, EVERY = "first", "all"
_UNSURE = "compared, though it may be warm-up"
_ELSEWHERE = "left out, because not compared on all ranks"
_ALONE = threshold("compare_warm_up_alone")
_COMMON = threshold("compare_common_steps")
_SIDES = ("control", "test")


class Chosen(NamedTuple):
    """Pairs of windows, and notes on excluded or uncertain traces and steps."""

    pairs: list[Pair]
    left_out: list[str]


Which = int | str
"""A step's number, `first` (the first step of each trace), or `all` (the whole trace, with time outside steps)."""


def choose(control: Sequence[Trace], test: Sequence[Trace], steps: Which | tuple[Which, Which] | None = None) -> Chosen:
    """Pair the traces of two sides by rank, and their windows by step.

    `steps`: the window of both sides, or (window of control, window of test). None means all steps that both sides have
    on all ranks, without warm-up. For None and for `first`, ranks without steps are excluded. If no rank has steps on
    both sides, whole traces are compared. Raise CompareError if a trace has no such step.
    """
    which = steps if isinstance(steps, tuple) or steps is None else (steps, steps)
    places, left_out = _by_rank(control, test)
    if which is None or FIRST in which:
        stepped = [place for place in places if place.control.steps and place.test.steps]
        left_out += _without_steps(places, whole=not stepped)
        if not stepped:
            return Chosen([place.pair(place.control.whole, place.test.whole) for place in places], left_out)
        places = stepped
    if which is None:
        pairs, notes = _all_steps(places)
        return Chosen(pairs, [*left_out, *notes])
    windows = [(_window(place.control, which[0]), _window(place.test, which[1])) for place in places]
    return Chosen([place.pair(*pair) for place, pair in zip(places, windows, strict=True)], left_out)


class _Place(NamedTuple):
    """Two traces to compare. `where`: as in Pair."""

    where: str
    control: Trace
    test: Trace

    def pair(self, control: Window, test: Window) -> Pair:
        return Pair(self.where, self.control.rank if self.control.rank == self.test.rank else None, control, test)


def _by_rank(control: Sequence[Trace], test: Sequence[Trace]) -> tuple[list[_Place], list[str]]:
    """Pair traces of the same rank, and return notes on traces without counterpart.

    The traces are paired in their order if the sides have no common rank, or if a side has two traces of one rank or a
    trace without rank.
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
    for side, traces in zip(_SIDES, (control, test), strict=True):
        if unpaired := [_named(trace) for trace in traces if trace.trace_id not in paired]:
            notes.append(f"{side}: {', '.join(unpaired)} without counterpart")
    names = [" and ".join(dict.fromkeys(map(_named, pair))) if len(pairs) > 1 else "" for pair in pairs]
    return [_Place(name, *pair) for name, pair in zip(names, pairs, strict=True)], notes


def _named(trace: Trace) -> str:
    return trace.file if trace.rank is None else f"rank {trace.rank}"


def _without_steps(places: Sequence[_Place], *, whole: bool) -> list[str]:
    """Return notes on the places where a side has no steps. `whole`: whether whole traces are compared instead."""
    places_by_sides: dict[tuple[str, ...], list[str]] = {}
    for place in places:
        sides = tuple(side for side, trace in zip(_SIDES, place[1:], strict=True) if not trace.steps)
        places_by_sides.setdefault(sides, []).append(place.where)
    if whole:
        return [f"{sides[0]} has no steps: whole traces are compared" for sides in places_by_sides if len(sides) == 1]
    return [
        f"{', '.join(names)} left out: no steps in {' and '.join(sides)}"
        for sides, names in places_by_sides.items()
        if sides
    ]


def _all_steps(places: Sequence[_Place]) -> tuple[list[Pair], list[str]]:
    """Return the pairs of steps to compare at all places, without warm-up, and notes on excluded steps.

    A step that is warm-up at one place is excluded at all places. If no pair remains at all places, the steps of each
    place are compared.
    """
    each_alone = [_paired_steps(place.control.steps, place.test.steps) for place in places]
    warm_up = tuple(frozenset[int | None]().union(*(steps.warm_up[index] for steps in each_alone)) for index in (0, 1))
    steps_by_place = [_paired_steps(place.control.steps, place.test.steps, warm_up) for place in places]
    numbers_by_place = [{_numbers(pair) for pair in steps.pairs} for steps in steps_by_place]
    kept, all_numbers = set.intersection(*numbers_by_place), set.union(*numbers_by_place)
    notes = []
    if not kept:
        kept, notes = all_numbers, ["no step is compared on all ranks: those of each rank are"]
    pairs = []
    for place, steps in zip(places, steps_by_place, strict=True):
        pairs += [place.pair(*pair) for pair in steps.pairs if _numbers(pair) in kept]
        notes += [note for note in steps.notes(kept) if note not in notes]
    dropped = sorted(all_numbers - kept)
    if all(control == test for control, test in dropped):
        return pairs, notes + _said("both", [number for number, _ in dropped], _ELSEWHERE)
    for side, numbers in zip(_SIDES, zip(*dropped, strict=True), strict=True):
        notes += _said(side, numbers, _ELSEWHERE)
    return pairs, notes


def _numbers(pair: tuple[Window, Window]) -> tuple[int, int]:
    control, test = (window.step for window in pair)
    assert control is not None and test is not None
    return control, test


@dataclass(frozen=True)
class _Steps:
    """The pairs of steps of two traces, and by side all steps and the excluded or uncertain steps.

    common: the numbers by which steps are paired, empty if they are paired in order. warm_up: the numbers of excluded
    steps. unsure: the numbers of steps that are compared although they may be warm-up.
    """

    sides: tuple[Sequence[Window], Sequence[Window]]
    pairs: list[tuple[Window, Window]]
    common: set[int | None]
    warm_up: list[set[int | None]]
    unsure: list[set[int | None]]

    def notes(self, kept: Collection[tuple[int, int]]) -> list[str]:
        """Return notes on excluded or uncertain steps. `kept`: the numbers of the pairs that are compared."""
        notes: list[str] = []
        kept_by_side = [{pair[index].step for pair in self.pairs if _numbers(pair) in kept} for index in (0, 1)]
        unsure_on_both = self.unsure[0] & self.unsure[1]
        notes += _said("both", self._among(0, unsure_on_both & kept_by_side[0]), _UNSURE)
        if self.common:
            notes += _said("both", self._among(0, self.common & self.warm_up[0]), "left out as warm-up")
        for index, side in enumerate(_SIDES):
            unsure = (self.unsure[index] - unsure_on_both) & kept_by_side[index]
            notes += _said(side, self._among(index, unsure), _UNSURE)
            if not self.common:
                notes += _said(side, self._among(index, self.warm_up[index]), "left out as warm-up")
            paired = self.warm_up[index] | {pair[index].step for pair in self.pairs}
            unpaired = [window.step for window in self.sides[index] if window.step not in paired]
            notes += _said(side, unpaired, "without counterpart")
        return notes

    def _among(self, index: int, numbers: Collection[int | None]) -> list[int | None]:
        return [window.step for window in self.sides[index] if window.step in numbers]


_NOWHERE = (frozenset[int | None](), frozenset[int | None]())


def _paired_steps(
    control: Sequence[Window], test: Sequence[Window], elsewhere: Sequence[frozenset[int | None]] = _NOWHERE
) -> _Steps:
    """Pair the steps with the same numbers, without warm-up.

    If all common steps are warm-up, pair them nevertheless. If the two sides have few numbers in common, pair the steps
    in order. `elsewhere`: the numbers of steps that are warm-up on other ranks, by side.
    """
    sides = (control, test)
    numbers = [{window.step for window in steps} for steps in sides]
    warm_up = [{window.step for window in steps if window.warm_up_times is not None} for steps in sides]
    unsure: list[set[int | None]] = [set(), set()]
    common = numbers[0] & numbers[1]
    if len(common) < _COMMON * min(map(len, numbers)):
        common = set()
    if common:
        sure = warm_up[0] & warm_up[1] | {w.step for w in (*control, *test) if (w.warm_up_times or 0) > _ALONE}
        sure |= elsewhere[0] | elsewhere[1]
        warm_up, unsure = [sure, sure], [steps - sure for steps in warm_up]
        if common <= sure:  # all common steps are warm-up, so compare them anyway
            warm_up, unsure = [set(), set()], [common | steps for steps in unsure]
    else:
        warm_up = [steps | others for steps, others in zip(warm_up, elsewhere, strict=True)]
    steps_by_side = [
        [w for w in steps if w.step not in left_out and (not common or w.step in common)]
        for steps, left_out in zip(sides, warm_up, strict=True)
    ]
    return _Steps(sides, list(zip(*steps_by_side, strict=False)), common, warm_up, unsure)


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
    """Return the trace or the traces of the capture (in the order of ranks) whose id starts with `name`.

    `ranks` of a capture: a number, `first` (the lowest) or `all`. `con` has `traces` and `capture_ranks`. Raise
    CompareError if the prefix does not match exactly one id, or if the capture has no such rank.
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
