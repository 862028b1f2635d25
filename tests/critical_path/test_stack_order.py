"""The order of a thread's stack, compared with a stack in plain Python.

The events include crossing events, equal times and events without a duration.
"""

from __future__ import annotations

from typing import NamedTuple

import duckdb
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipelines.critical_path.graph import stack_order as module
from pipelines.critical_path.graph.stack_order import stack_order
from tests.effort import examples


class Event(NamedTuple):
    window: int
    thread: int
    start: int
    duration: int
    is_operator: bool


POPS = {1: False, 2: True, 3: False}  # by window
EVENTS = st.lists(
    st.builds(
        Event,
        window=st.sampled_from(sorted(POPS)),
        thread=st.sampled_from([1, 2, 900_000]),
        start=st.integers(0, 6),
        duration=st.integers(0, 6),
        is_operator=st.booleans(),
    ),
    max_size=14,
)


def walked(events: list[Event]) -> dict[tuple[int, int], list[tuple]]:
    """Return the expected rows of each (window, thread).

    A row is a mark's event, change and parent. An operator's row also has the number of open operators and, after the
    first row, data about the previous operator's mark.
    """
    by_thread: dict[tuple[int, int], list[tuple]] = {}
    for window, thread in {(e.window, e.thread) for e in events}:
        marks = []
        for i, e in enumerate(events):
            if (e.window, e.thread) == (window, thread):
                if e.duration:
                    marks += [(e.start, 1, -e.duration, i, 1, i), (e.start + e.duration, 0, e.duration, -i, -1, i)]
                else:
                    marks += [(e.start, 2, 0, i, 1, i), (e.start, 2, 0, i, 2, i)]
        stack: list[int] = []
        rows, before, n_open = [], None, 0
        for *_, kind, i in sorted(marks):
            if kind == 1:
                parent = stack[-1] if stack else None
                stack.append(i)
            else:
                top = stack.pop()
                i = top if POPS[window] else i
                parent = stack[-1] if stack and POPS[window] else None
            change = 1 if kind == 1 else -1
            at = events[i].start + (events[i].duration if change < 0 else 0)
            row: tuple = (i, change, parent, None, None, None, False, None)
            if events[i].is_operator:
                n_open += change
                row = (i, change, parent, n_open, None, None, False, None)
                if before is not None:
                    last, last_at, last_parent = before
                    around = last_parent if POPS[window] else parent
                    both_lock = i % 2 == 0 and last // 2 % 2 == 0
                    row = (i, change, parent, n_open, last, at - last_at, both_lock, around)
                before = (2 * i + (change < 0), at, parent)
            rows.append(row)
        by_thread[window, thread] = rows
    return by_thread


def computed(events: list[Event]) -> dict[tuple[int, int], list[tuple]]:
    columns = {
        "thread_key": np.array([e.window * 1048576 + e.thread for e in events], dtype=np.int64),
        "event_id": np.arange(len(events)),
        "start_ns": np.array([e.start for e in events], dtype=np.int64),
        "duration_ns": np.array([e.duration for e in events], dtype=np.int64),
        "is_operator": np.array([e.is_operator for e in events], dtype=bool),
        "is_lock": np.arange(len(events)) % 2 == 0,
        "is_blocking": np.arange(len(events)) % 3 == 0,
        "exit_pops_top": np.array([POPS[e.window] for e in events], dtype=bool),
    }
    by_thread: dict[tuple[int, int], list[tuple]] = {}
    with duckdb.connect() as con:
        con.execute("CREATE TABLE _stack_events AS SELECT * FROM columns")
        del columns  # DuckDB reads the arrays by the name of this variable
        stack_order(con)
        rows = con.execute(
            "SELECT thread_key // 1048576, thread_key % 1048576, ordinal, is_blocking, event_id, change, parent_event_id, "
            "n_open, last_node_id, since_last_ns, both_lock, around_event_id FROM _stack_order ORDER BY 1, 2, 3"
        ).fetchall()
    for window, thread, ordinal, is_blocking, *row in rows:
        of_thread = by_thread.setdefault((window, thread), [])
        of_thread.append(tuple(row))
        assert (ordinal, is_blocking) == (len(of_thread), row[0] % 3 == 0)
    return by_thread


@settings(max_examples=examples(150), deadline=None)
@given(EVENTS)
@example([Event(window, 1, start, 4, True) for window in (1, 2) for start in (0, 2, 3)])
def test_marks_are_those_of_a_stack(events: list[Event]) -> None:
    assert computed(events) == walked(events)


def test_windows_in_several_groups_and_parts_are_those_of_all_together(monkeypatch: pytest.MonkeyPatch) -> None:
    events = [Event(window, thread, s, 5 - s, True) for s in range(5) for window in POPS for thread in (1, 2)]
    together = computed(events)
    monkeypatch.setattr(module, "EVENTS", 12)
    monkeypatch.setattr(module, "_PART", 3)
    assert computed(events) == together == walked(events)
