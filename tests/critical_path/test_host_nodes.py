"""The owner of the time between two nodes of a host thread, on hand-made threads."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.critical_path.graph import host_edges
from pipelines.critical_path.graph.host_nodes import Frames, HostEvents, HostNodes, host_nodes
from tests.effort import examples

Row = tuple[int, int, int, bool]
"""Thread, start, duration, and whether the event is an operator; the event's number is its index."""


def gaps(*rows: Row) -> list[tuple[int, int, int, int]]:
    """Return thread, start, end and owner of each interval outside operators in a window of 100 ns."""
    thread, start, duration, is_operator = map(np.array, zip(*rows, strict=True))
    no = np.zeros(len(rows), dtype=bool)
    events = HostEvents(
        thread=thread, event=np.arange(len(rows)), start=start, duration=duration, is_operator=is_operator,
        waits=no, shown=np.where(is_operator, 0, 2),
    )  # fmt: skip
    nodes, _ = host_nodes(events, np.full(int(thread.max()) + 1, 100))
    places = np.flatnonzero(nodes.in_gap & (np.diff(nodes.at, prepend=0) > 0))
    return [(int(nodes.thread[i]), int(nodes.at[i - 1]), int(nodes.at[i]), int(nodes.owner[i])) for i in places]


def test_a_frame_owns_gaps_of_its_own_thread_only() -> None:
    """The second thread has no frame.

    The first thread's frame is still open when the second thread's first gap begins.
    """
    first = [(0, 0, 10, True), (0, 20, 60, False), (0, 30, 5, True)]
    second = [(1, 0, 25, True), (1, 60, 10, True), (1, 90, 5, True)]
    gaps_of_first = [(0, 10, 20, -1), (0, 20, 30, 1), (0, 35, 80, 1)]
    assert gaps(*first, *second) == [*gaps_of_first, (1, 25, 60, -1), (1, 70, 90, -1)]
    # Also in reverse order, and with a thread without frames between two threads with frames.
    turned = [(1 - thread, *rest) for thread, *rest in (*second, *first)]
    assert gaps(*turned) == [(0, 25, 60, -1), (0, 70, 90, -1), (1, 10, 20, -1), (1, 20, 30, 4), (1, 35, 80, 4)]
    third = [(2, start, duration, kind) for _, start, duration, kind in first]
    assert gaps(*first, *second, *third)[3:5] == [(1, 25, 60, -1), (1, 70, 90, -1)]


def test_a_frame_without_duration_owns_nothing() -> None:
    """A frame of length 0 owns no later time of its thread.

    If it is its thread's last event, it owns no time of the next thread either.
    """
    first = [(0, 0, 10, True), (0, 20, 0, False), (0, 30, 10, True), (0, 50, 0, False)]
    second = [(1, 0, 5, True), (1, 40, 5, True)]
    assert gaps(*first, *second) == [(0, 10, 20, -1), (0, 20, 30, -1), (0, 40, 50, -1), (1, 5, 40, -1)]
    within = [(0, 0, 10, True), (0, 15, 70, False), (0, 20, 0, False), (0, 30, 10, True)]
    assert gaps(*within) == [(0, 10, 15, -1), (0, 15, 20, 1), (0, 20, 30, 1), (0, 40, 85, 1)]


ROWS = st.tuples(st.integers(0, 4), st.integers(0, 30), st.integers(0, 12), st.booleans())


@settings(max_examples=examples(100), deadline=None)
@given(st.lists(ROWS, min_size=1, max_size=25), st.integers(1, 12))
def test_threads_may_be_read_a_few_at_a_time(rows: list[Row], at_a_time: int) -> None:
    number, start, duration, is_operator = map(np.array, zip(*rows, strict=True))
    present, thread = np.unique(number, return_inverse=True)
    order = np.arange(len(rows), dtype=np.int32)
    events = HostEvents(
        thread.astype(np.uint8), order, start, duration, is_operator, order % 3 == 0, (order % 3).astype(np.int8)
    )
    until = np.full(len(present), 25)
    whole = host_nodes(events, until)
    with patch.object(host_edges, "EVENTS", at_a_time):
        held = [events]
        parts = host_edges._nodes(held, until)
    assert not held
    (nodes, frames), (same, others) = whole, parts
    for name in HostNodes.__dataclass_fields__:
        # The time before a thread's first node has no owner, so its value does not matter.
        there = nodes.before if name == "owner" else slice(None)
        assert getattr(nodes, name)[there].tolist() == getattr(same, name)[there].tolist(), name
    frames, others = (table[np.argsort(table.event)] for table in (frames, others))
    for name in Frames.__dataclass_fields__:
        assert getattr(frames, name).tolist() == getattr(others, name).tolist(), name
