"""The nodes of host threads, by hand: whose time lies between two of them."""

from __future__ import annotations

import numpy as np

from pipelines.critical_path.graph.host_nodes import HostEvents, host_nodes

Row = tuple[int, int, int, bool]
"""Thread, start, duration, whether it is an operator; its number is its place."""


def gaps(*rows: Row) -> list[tuple[int, int, int, int]]:
    """Thread, from, to and owner of each stretch outside operators, all of them in a window of 100 ns."""
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
    """The second thread has no frame; that of the first is still open when the second one's first gap begins."""
    first = [(0, 0, 10, True), (0, 20, 60, False), (0, 30, 5, True)]
    second = [(1, 0, 25, True), (1, 60, 10, True), (1, 90, 5, True)]
    told = [(0, 10, 20, -1), (0, 20, 30, 1), (0, 35, 80, 1)]
    assert gaps(*first, *second) == [*told, (1, 25, 60, -1), (1, 70, 90, -1)]
    # The other way round, and with frames on both sides of one that has none.
    turned = [(1 - thread, *rest) for thread, *rest in (*second, *first)]
    assert gaps(*turned) == [(0, 25, 60, -1), (0, 70, 90, -1), (1, 10, 20, -1), (1, 20, 30, 4), (1, 35, 80, 4)]
    third = [(2, start, duration, kind) for _, start, duration, kind in first]
    assert gaps(*first, *second, *third)[3:5] == [(1, 25, 60, -1), (1, 70, 90, -1)]


def test_a_frame_without_duration_owns_nothing() -> None:
    """Neither what comes after it on its thread, nor on the next thread where it is the last of its own."""
    first = [(0, 0, 10, True), (0, 20, 0, False), (0, 30, 10, True), (0, 50, 0, False)]
    second = [(1, 0, 5, True), (1, 40, 5, True)]
    assert gaps(*first, *second) == [(0, 10, 20, -1), (0, 20, 30, -1), (0, 40, 50, -1), (1, 5, 40, -1)]
    within = [(0, 0, 10, True), (0, 15, 70, False), (0, 20, 0, False), (0, 30, 10, True)]
    assert gaps(*within) == [(0, 10, 15, -1), (0, 15, 20, 1), (0, 20, 30, 1), (0, 40, 85, 1)]
