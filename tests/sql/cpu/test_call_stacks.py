"""Call stacks, compared with a plain stack machine."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import LISTS, at_once
from tests.harness import each, op, rows_of


def machine(events: list[dict]) -> list[tuple[int, int | None, int]]:
    """Return (event, parent, depth) of each event.

    The machine walks starts and ends in order. An end closes the event on top of the stack.
    """
    marks = []
    for i, e in enumerate(events):
        ts, dur = e["ts"], e["dur"]
        marks.append((e["tid"], ts, 2 if dur == 0 else 1, -dur, 2 * i if dur == 0 else i, i, True))
        marks.append(
            (e["tid"], ts + dur, 2 if dur == 0 else 0, dur if dur else 0, 2 * i + 1 if dur == 0 else -i, i, False)
        )
    rows, stacks = [], {}
    for tid, *_, event, is_start in sorted(marks):
        stack = stacks.setdefault(tid, [])
        if is_start:
            rows.append((event, stack[-1] if stack else None, len(stack) + 1))
            stack.append(event)
        else:
            stack.pop()
    return sorted(rows)


def test_nested_touching_and_instant_events() -> None:
    events = [op("a", 0, 10), op("b", 0, 4), op("c", 4, 6), op("i", 10, 0), op("d", 10, 2), op("other", 1, 1, tid=2)]
    rows = rows_of(events, "call_stacks", "event_id, parent_event_id, depth")
    assert rows == [(0, None, 1), (1, 0, 2), (2, 0, 2), (3, 4, 2), (4, None, 1), (5, None, 1)]


@pytest.mark.slow
@settings(max_examples=LISTS, deadline=None)
@given(
    at_once(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 8), st.integers(1, 2)), min_size=1, max_size=20), 40)
)
def test_equal_to_the_stack_machine(shapes: list[list[tuple[int, int, int]]]) -> None:
    traces = [[op(f"o{i}", ts, dur, tid) for i, (ts, dur, tid) in enumerate(shape)] for shape in shapes]
    for events, con in zip(traces, each(traces, "call_stacks"), strict=True):
        rows = con.execute("SELECT event_id, parent_event_id, depth FROM call_stacks ORDER BY ALL").fetchall()
        assert rows == machine(events)
