"""The mark that encloses a time, compared with a search over all marks."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.critical_path.causes.enclosing import Enclosing
from tests.effort import examples

Tree = tuple[int, list]  # a rank and the marks nested in it


@st.composite
def nested(draw: st.DrawFn, start: int = 0, end: int = 60, depth: int = 4) -> list[tuple[int, int, int]]:
    """Return marks (start, end, rank) that nest as calls do."""
    marks, at = [], start
    while at < end and draw(st.booleans()):
        first = draw(st.integers(at, end - 1))
        last = draw(st.integers(first + 1, end))
        marks.append((first, last, draw(st.integers(1, 3))))
        if depth:
            marks += draw(nested(first, last, depth - 1))
        at = last
    return marks


@settings(max_examples=examples(100))
@given(st.lists(nested(), min_size=1, max_size=3))
def test_the_lowest_rank_and_of_equal_ones_the_outermost(threads: list[list[tuple[int, int, int]]]) -> None:
    marks = [(thread, *mark) for thread, of in enumerate(threads) for mark in of]
    thread, start, end, rank = (np.array([mark[i] for mark in marks], dtype=np.int64) for i in range(4))
    enclosing = Enclosing.of(thread, start, end, rank)
    asked = np.array([(t, at) for t in range(len(threads) + 1) for at in range(62)], dtype=np.int64)
    for (of, at), mark in zip(asked.tolist(), enclosing.at_times(asked[:, 0], asked[:, 1]).tolist(), strict=True):
        around = [(r, -(e - s), i) for i, (t, s, e, r) in enumerate(marks) if t == of and s <= at < e]
        if not around:
            assert mark == -1
        else:
            best = min(around)
            t, s, e, r = marks[mark]
            assert (t, r, -(e - s)) == (of, *best[:2])


def test_marks_that_cross_are_cut() -> None:
    thread, rank = np.zeros(2, dtype=np.int64), np.array([2, 1])
    enclosing = Enclosing.of(thread, np.array([0, 5]), np.array([10, 15]), rank)
    times = np.arange(-1, 17)
    marks = enclosing.at_times(np.zeros_like(times), times).tolist()
    assert marks == [-1, *[0] * 5, *[1] * 5, *[-1] * 7]
